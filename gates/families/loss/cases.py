"""Cases of policy losses with their conventions: every algorithm, layout, KL and denominator."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from gates.families import arrays, row_inputs
from gates.families.loss import covering
from gates.model import Array, Case, Level
from reference.algorithms import ALGORITHMS, AXES, VARIANTS, Algorithm, composed

PART_BECAUSE = (
    "k·2u·S: a part errs by k·2u times the sum of its own |terms|, these add up to S, and each gradient belongs to one "
    "part; differences of log-probs and the part's sum carry their rounding errors"
)
BASE: dict[str, Any] = {
    "epsilon_low": None,
    "epsilon_high": None,
    "delta": None,
    "beta": 0.0,
    "kl_ratio": "none",
    "max_length": None,
    "micro_batches": None,
    "dapo_denominator": None,
}
WHOLE: dict[str, Any] = {
    **BASE,
    "kl_estimator": "k3",
    "group_size": None,
    "tokens_in_step": None,
    "cispo_bound": None,
    "sapo_temperature_positive": None,
    "sapo_temperature_negative": None,
}
SCALARS = ("epsilon_low", "epsilon_high", "delta", "beta", "sapo_temperature_positive", "sapo_temperature_negative")
EXCLUDED = slice(1, None, 3)  # rows that a row mask excludes
FAR = (slice(None), slice(None, None, 4))  # tokens whose KL is clamped
FAR_BY = 4.0  # nats, so that k3 is 50
FARTHER_BY = 12.0  # nats, so that k1 is -12


def _first(*axes: str) -> tuple[str, ...]:
    """Return the first algorithm of the table for each combination of choices on these axes."""
    firsts: dict[tuple[Any, ...], str] = {}
    for row in ALGORITHMS.values():
        firsts.setdefault(tuple(getattr(row, axis) for axis in axes), row.name)
    return tuple(firsts.values())


LEVELS = _first("value_level", "bound")  # one algorithm for each combination of ratio level and bound
AGGREGATED = _first("aggregation")
BOTH_RATIOS = ("off-policy", "on-policy")  # for laws that compare a call with and without `old`
QUICK = 8  # one in eight compositions is quick
BEYOND = 3  # padding columns after the longest row


def batch_for(algorithm: str) -> dict[str, Any]:
    """Return the keywords of a batch that an algorithm needs.

    A clip of mean ratios stops whole rows, so the batch has more. GSPO-token with one advantage per row would be GSPO, so
    its advantages are per token.
    """
    return _batch_of(ALGORITHMS[algorithm])


def _batch_of(row: Algorithm) -> dict[str, Any]:
    if row.mean_ratio:
        return {"rows": 24} if row.by_row else {"rows": 24, "by_token": True}
    if row.ratio_level == "seq_sum" and row.bound != "none":
        return {"spread": 0.15}
    return {"spread": 0.8} if "delta" in row.constants else {}  # few ratios of an ordinary batch exceed a δ of 3


def tight_delta(algorithm: str, usual: float = 1.5) -> float:
    """Return a δ that some ratios of a batch exceed."""
    return 1.06 if ALGORITHMS[algorithm].mean_ratio else usual


def row_for(algorithm: str, changes: Mapping[str, Any]) -> Algorithm:
    """Return the row of an algorithm with those of the changes that are choices on axes."""
    return composed(algorithm, **{axis: changes[axis] for axis in AXES if changes.get(axis) is not None})


def make(
    rng: np.random.Generator,
    algorithm: str,
    data: Mapping[str, Any],
    changes: Mapping[str, Any],
    rows: str = "mask",
    weights: str = "none",
    beyond: int = 0,
) -> dict[str, Any]:
    """Return the keywords of one call of policy_loss.

    `rows` says how completions are marked off from padding ("all": there is none; "row-mask": some rows do not train),
    `weights` whether off-policy weights are given and for what, `beyond` how many columns lie behind the longest row. `found` of the
    data is what the search for inputs asked for: advantages that are ±1, rows of one token, an estimate that a clamp
    holds on its negative side, or ratios of e^-300 and less.
    """
    found = data.get("found", "")
    inputs = arrays.loss_inputs(rng, **{name: value for name, value in data.items() if name != "found"})
    _change(rng, inputs, found)
    choice = {**WHOLE, **row_for(algorithm, changes).constants, **changes}
    if not choice["beta"]:
        inputs["reference"], choice["kl_ratio"], choice["kl_estimator"] = None, None, None
    if choice.get("kl_clamp"):
        for name in ("policy", "old"):
            inputs[name][FAR] -= FARTHER_BY if found == "negative" else FAR_BY
    if changes.get("old", "given") is None:
        inputs["old"] = None
    if choice["micro_batches"]:
        choice["micro_batches"] = _scaled(choice["micro_batches"], len(inputs["mask"]))
    inputs["weights"] = None
    if weights != "none":
        shape = inputs["mask"].shape if weights == "token" else inputs["mask"].shape[:1]
        drawn = rng.uniform(0.2, 2.0, shape)
        drawn[rng.random(shape) < 0.25] = 0.0  # dropped by masked importance sampling
        inputs["weights"] = drawn.astype(inputs["policy"].dtype)
    call = {**inputs, "algorithm": algorithm, "lengths": None, **{k: v for k, v in choice.items() if k != "old"}}
    if rows in {"mask", "row-mask"} and beyond:
        call |= {name: _wider(values, beyond) for name, values in _by_token(call).items()}
        call["mask"][:, -beyond:] = False
    if rows == "row-mask":
        call["row_mask"] = np.ones(len(call["mask"]), bool)
        call["row_mask"][EXCLUDED] = False
        return call
    return call if rows == "mask" else _without_mask(call, rows, beyond)


def _scaled(sizes: Sequence[int], rows: int) -> list[int]:
    """Return the sizes of two micro-batches, in the same proportion if they have another number of rows in all."""
    if sum(sizes) == rows:
        return list(sizes)
    first = rows * sizes[0] // sum(sizes)
    return [first, rows - first]


def _by_token(given: Mapping[str, Any]) -> dict[str, Array]:
    return {k: v for k, v in given.items() if isinstance(v, np.ndarray) and v.shape == given["mask"].shape}


def _wider(values: Array, columns: int) -> Array:
    """Return an array with more columns that hold what its last one holds."""
    return np.pad(values, ((0, 0), (0, columns)), mode="edge")


def _change(rng: np.random.Generator, inputs: dict[str, Any], found: str) -> None:
    """Turn a batch into the special input `found`."""
    if found == "ones":
        inputs["advantages"] = np.resize([1.0, -1.0], len(inputs["advantages"])).astype(inputs["policy"].dtype)
    if found == "far-below":
        inputs["policy"][:, ::2] -= rng.uniform(300.0, 600.0, inputs["policy"][:, ::2].shape)
    if found == "short":
        inputs["mask"][::2] = np.arange(inputs["mask"].shape[1]) < 1


def _without_mask(given: dict[str, Any], rows: str, beyond: int) -> dict[str, Any]:
    mask = given["mask"]
    if rows == "all" and not mask.all():
        raise ValueError("slots that do not count need a mask")
    if not np.array_equal(mask, np.arange(mask.shape[1]) < mask.sum(axis=1)[:, None]):
        raise ValueError("a mask with holes has no lengths")
    if rows != "lengths":
        return row_inputs.passed(given, mask, "whole" if rows == "all" else rows)
    wide = {name: _wider(values, beyond) for name, values in _by_token(given).items()}
    return {**given, **wide, "mask": None, "lengths": mask.sum(axis=1)}


def valid(inputs: Mapping[str, Any]) -> Array:
    """Return which elements of the policy's log-probs are tokens."""
    return row_inputs.tokens(inputs, "policy")


def rows_of(inputs: Mapping[str, Any]) -> Array:
    """Return the row index of each element of the policy's log-probs."""
    if inputs["policy"].ndim == 1:
        return np.repeat(np.arange(len(inputs["lengths"])), inputs["lengths"])
    return np.broadcast_to(np.arange(len(inputs["policy"]))[:, None], inputs["policy"].shape)


def of_elements(inputs: Mapping[str, Any], value: Array) -> Array:
    """Broadcast values of rows to elements; values of elements are returned unchanged."""
    return value if value.shape == inputs["policy"].shape else value[rows_of(inputs)]


def rounded(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs with scalars rounded to the data's dtype, as kernels round them."""
    return arrays.rounded(inputs, SCALARS)


def case(
    algorithm: str,
    name: str,
    *,
    data: Mapping[str, Any] | None = None,
    quick: bool = False,
    rows: str = "mask",
    weights: str = "none",
    beyond: int = 0,
    arithmetic: str = "",
    **changes: Any,
) -> Case:
    """Return one case of one algorithm, with the conventions that it needs."""
    row = row_for(algorithm, changes)
    chosen: dict[str, Any] = {**_batch_of(row), **(data or {})}
    choice = {**WHOLE, **row.constants, **changes}
    conventions = {
        "algorithm": algorithm,
        "dtype": chosen.get("dtype", "float32"),
        "ratio": "on-policy" if changes.get("old", "given") is None else "off-policy",
        "rows": "holes" if chosen.get("holes") and rows == "mask" else rows,
        "advantages": "token" if chosen.get("by_token") else "row",
        "weights": weights != "none",
        **({"empty_rows": True} if chosen.get("empty_row") else {}),
        **({name: choice[name] for name in ("kl_ratio", "kl_estimator")} if choice["beta"] else {}),
        **({"dapo_denominator": choice["dapo_denominator"]} if choice["dapo_denominator"] else {}),
        **_widths(row, choice),
        **({"arithmetic": arithmetic} if arithmetic else {}),
    }
    conventions |= (declared := {axis: changes[axis] for axis in AXES if axis in changes})
    declared |= {name: True for name in ("clipped", "lower_bound") if conventions.get(name)}
    if choice.get("kl_clamp"):
        declared["kl_clamp"] = choice["kl_clamp"]
    if row.aggregation == "width" and rows in {"mask", "row-mask", "lengths"}:
        beyond = beyond or BEYOND
    made = partial(make, algorithm=algorithm, data=chosen, changes=changes, rows=rows, weights=weights, beyond=beyond)
    level: Level | None = "robustness" if chosen.get("empty_row") else None

    def compose(choices: Mapping[str, Any]) -> Case:
        axes = {axis: word for axis, word in choices.items() if axis in AXES}
        other = row_for(algorithm, {**changes, **axes})
        if other.by_row and (weights == "token" or (data or {}).get("by_token")):
            raise ValueError("where a row has one ratio, it has one advantage and one weight")
        kept = {key: value for key, value in changes.items() if key not in _lost(row, axes)}
        near = {**(data or {}), **_near(other, (data or {}).get("spread", 0.0))}
        again = partial(case, algorithm, name, data=near, quick=quick, rows=rows, weights=weights, beyond=beyond)
        kept |= axes
        return again(arithmetic=arithmetic, **{**kept, **_bounds(other, {**WHOLE, **other.constants, **kept}, choices)})

    return Case(
        name,
        made,
        quick=quick,
        conventions=conventions,
        declared=declared,
        level=level,
        compose=compose,
        changeable=("clip_width", "lower_bound", "cispo_bound"),
    )


def _bounds(row: Algorithm, choice: Mapping[str, Any], choices: Mapping[str, Any]) -> dict[str, Any]:
    """Return the widths by which a case's bound has the choices of a subject, such as one width of a clip for both sides."""
    low, high, bounds = choice["epsilon_low"], choice["epsilon_high"], dict[str, Any]()
    if choices.get("lower_bound") and row.bound == "cap" and choice["cispo_bound"] == "absolute" and high < 1.0:
        raise ValueError("a cap below the lower bound has no agreed meaning")
    if "clip_width" in choices and row.bound in {"clip", "log-clip"}:
        bounds["epsilon_high"] = low if choices["clip_width"] == "one" else 1.25 * low
    if "lower_bound" in choices and row.bound == "cap":
        bounds["epsilon_low"] = 0.2 if choices["lower_bound"] else None
    if "cispo_bound" in choices and row.bound == "cap":  # the same cap c
        bounds["cispo_bound"] = choices["cispo_bound"]
        bounds["epsilon_high"] = high + (1.0 if choices["cispo_bound"] == "absolute" else -1.0)
    return bounds


def _near(row: Algorithm, spread: float) -> dict[str, float]:
    """Return the spread that a row's product of ratios needs to stay a number, where a case has a wider one."""
    most = _batch_of(row).get("spread", 1.0) if row.ratio_level == "seq_sum" else math.inf
    return {"spread": most} if spread > most else {}


def derived(
    case: Case, make: Callable[[np.random.Generator, Callable[[np.random.Generator], Any]], Any], **fields: Any
) -> Case:
    """Return a case whose inputs are made from those of another; with other choices, from those of the other with these.

    Args:
        case: the other one.
        make: returns the inputs from a generator and the function that makes the inputs of the other.
        fields: attributes that differ.
    """
    compose = case.compose

    def composed_alike(axes: Mapping[str, Any]) -> Case:
        return derived(compose(axes), make, **fields)  # type: ignore[misc]

    return replace(case, make=lambda rng: make(rng, case.make), compose=composed_alike if compose else None, **fields)


def _rare(case: Case) -> Case:
    """Return a case on rare input, where a failure is fragile."""
    return derived(case, lambda rng, make: make(rng), level="robustness")


def _widths(row: Algorithm, choice: Mapping[str, Any]) -> dict[str, Any]:
    """Return the conventions of a bound: whether an optional one exists, how a cap is read, one width or two."""
    low, high = choice["epsilon_low"], choice["epsilon_high"]
    if row.bound == "none":
        return {} if row.ratio_level == "none" else {"clipped": low is not None}
    if row.bound == "cap":
        return {"lower_bound": low is not None, "cispo_bound": choice["cispo_bound"]}
    return {"clip_width": "one" if low == high else "two"} if row.bound in {"clip", "log-clip"} else {}


def _lost(row: Algorithm, axes: Mapping[str, Any]) -> set[str]:
    """Return the constants that do not exist under other choices: the row's own, and those of a changed bound."""
    lost = set(row.constants) - set(composed(row.name, **axes).constants)
    return lost | ({"delta", "epsilon_low", "epsilon_high"} if {"bound", "ratio_level"} & set(axes) else set())


def cases_of(algorithm: str) -> Iterator[Case]:
    """Yield the cases that compare an algorithm's loss and gradient with their definition."""
    this, preset = partial(case, algorithm), ALGORITHMS[algorithm]
    yield this("ragged", quick=True)
    yield this("no-mask", rows="all", data={"equal_lengths": True}, quick=algorithm == "grpo")
    yield this("empty-row", data={"empty_row": True}, quick=algorithm == "grpo")
    yield this("row-mask", rows="row-mask", quick=algorithm in {"grpo", "dapo", "cispo"})
    yield this("holes", data={"holes": True})
    yield this("on-policy", old=None, quick=algorithm == "grpo")
    yield this("prefixes", rows="lengths", beyond=BEYOND, quick=algorithm == "grpo")
    yield this("flat-rows", rows="flat", quick=algorithm in {"grpo", "gspo"})
    yield this("float64", data={"dtype": "float64"})
    yield this("row-weights", weights="row", quick=True)
    if algorithm == "grpo":  # layouts of a row of full width, and of an empty row
        yield this("prefixes-to-the-end", rows="lengths")
        yield this("empty-prefix", rows="lengths", beyond=BEYOND, data={"empty_row": True})
        yield this("empty-flat-row", rows="flat", data={"empty_row": True})
    if not preset.by_row:
        yield this("token-weights", weights="token")
        yield this("token-advantages", data={"by_token": True}, quick=True)
    if batch_for(algorithm).get("by_token"):
        yield this("row-advantages", data={"by_token": False})
    if preset.bound == "clip":
        yield this("one-width", **_one_width(preset))
    if preset.two_sided:
        yield this("two-sided-clip", delta=tight_delta(algorithm), quick=algorithm == "grpo")
    if preset.bound == "none" and preset.ratio_level != "none":
        yield this("clipped", data={"spread": 0.15}, epsilon_low=0.2, epsilon_high=0.25, quick=True)
    if preset.kl_in_loss:
        yield from _kl_cases(algorithm)
    yield from _found_cases(algorithm)
    yield from _constant_cases(algorithm)


def _constant_cases(algorithm: str) -> Iterator[Case]:
    """Yield the cases with other values of an algorithm's own constants."""
    this, preset = partial(case, algorithm), ALGORITHMS[algorithm]
    if "dapo_denominator" in preset.constants:
        yield this("by-prompt", dapo_denominator="group", group_size=4, quick=True)
        yield this("window", dapo_denominator="trl", tokens_in_step=171.5, quick=True)
    if preset.bound == "cap":
        yield this("lower-bound", epsilon_low=0.2)
        yield this("absolute-bound", cispo_bound="absolute", epsilon_high=0.8, quick=True)
        yield this("throttled", cispo_bound="absolute", epsilon_high=0.2, old=None)
        yield this("absolute-lower-bound", cispo_bound="absolute", epsilon_high=1.25, epsilon_low=0.2)
    if preset.aggregation == "micro-batch":
        yield this("uneven-micro-batches", micro_batches=[3, 5], quick=True)
    if "sapo_temperature_positive" in preset.constants:
        yield this("temperatures", sapo_temperature_positive=0.5, sapo_temperature_negative=2.0, quick=True)


def _one_width(row: Algorithm) -> dict[str, Any]:
    """Return one width for both sides of a clip that differs from the row's widths."""
    low, high = row.constants["epsilon_low"], row.constants["epsilon_high"]
    width = low if low != high else 0.5 * low
    return {"epsilon_low": width, "epsilon_high": width}


def compositions() -> Iterator[Case]:
    """Yield compositions that cover every valid pair of choices."""
    for index, changes in enumerate(covering.covering()):
        yield case("grpo", covering.named(changes), quick=index % QUICK == 0, **changes)


def variants() -> Iterator[Case]:
    """Yield the presets with another choice, as libraries ship them."""
    for row in VARIANTS:
        axes = {axis: getattr(row, axis) for axis in row.overrides}
        widths = row.constants if row.bound == "clip" and row.ratio_level == "seq_sum" else {}
        yield case(row.name, f"{row.name}-{'-'.join(axes.values())}", quick=True, **axes, **widths)
        if row.kl_in_loss:
            yield case(row.name, f"{row.name}-{'-'.join(axes.values())}-kl", beta=0.3, kl_ratio="token", **axes)


def _found_cases(algorithm: str) -> Iterator[Case]:
    """Yield the cases found by tools/mutate_numpy_baseline.py; each comment names a mutation that no other case catches."""
    this = partial(case, algorithm)
    if algorithm in {
        "grpo",
        "sapo",
    }:  # `A != 1` instead of `A != 0`: groups of two with binary rewards have advantages of ±1
        yield this("found-advantages-of-one", data={"found": "ones"})
    if algorithm == "dapo":  # Σ m + 1 or max(Σ m, 2) instead of Σ m: a step of one token
        single = {"rows": 1, "width": 1, "group_size": 1, "equal_lengths": True, "found": "ones"}
        yield this("found-one-token", data=single)
    if algorithm == "sapo":  # D instead of exp(D) as the error: visible only with a steep gate
        far = {"dtype": "float64", "found": "far-below"}
        steep = this("found-steep-gate", data=far, sapo_temperature_positive=30.0, sapo_temperature_negative=60.0)
        yield _rare(steep)
    if algorithm == "gmpo":  # the rounding of a D that the clip holds
        held = this("found-far-and-clipped", data={"dtype": "float64", "found": "far-below"})
        yield _rare(held)
    if algorithm != "grpo":
        return
    # an estimate without its sign: only k1 falls below −c
    yield this("found-k1-clamped", beta=0.3, kl_estimator="k1", kl_clamp=10.0, data={"found": "negative"})
    # the slope of a clamped estimate: it has none, but the ratio that multiplies it does
    yield this("found-kl-clamped-times-token-ratio", beta=0.04, kl_ratio="token", kl_clamp=10.0)
    # max(n, 2) instead of n: rows of one token
    yield this("found-rows-of-one-token", beta=0.3, kl_ratio="sequence", data={"found": "short"})


def _kl_cases(algorithm: str) -> Iterator[Case]:
    this = partial(case, algorithm)
    yield this("kl", beta=0.04, quick=True)
    yield this("on-policy-kl", beta=0.04, old=None)
    yield this("kl-and-weights", beta=0.3, weights="row", quick=True)
    if algorithm in {"grpo", "dapo", "gspo"}:
        yield this("kl-clamped", beta=0.04, kl_clamp=10.0, quick=True)
    if algorithm not in (*LEVELS, "dapo"):
        return  # the others share the KL of one of these, over another denominator
    yield from (this(f"kl-times-{level}-ratio", beta=0.04, kl_ratio=level) for level in ("token", "sequence"))
    yield from (
        this(f"{estimator}-{level}", beta=0.3, kl_estimator=estimator, kl_ratio=level, quick=level == "token")
        for estimator, level in (("k1", "none"), ("k2", "none"), ("k1", "token"), ("k2", "sequence"))
    )


PRECISE: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (  # name, keywords of the batch, changes of the loss
    ("near", {}, {}),
    ("far", {"spread": 20.0}, {}),  # at |D| = 32 the rounding of D alone is 8 units
    ("kl", {}, {"beta": 0.3, "kl_ratio": "token"}),
    ("k2-far", {"spread": 2.0}, {"beta": 0.3, "kl_ratio": "sequence", "kl_estimator": "k2"}),
)


def precise_cases() -> Iterator[Case]:
    """Yield the cases that hold every element to the bound of kernels, for small and for huge ratios.

    Algorithms that differ only in their denominator have two cases, in float32.
    """
    for row, dtype, (name, data, changes) in product(ALGORITHMS.values(), ("float32", "float64"), PRECISE):
        if (changes and not row.kl_in_loss) or (
            row.name not in LEVELS and (dtype == "float64" or name in {"near", "k2-far"})
        ):
            continue
        # A product of 48 ratios must fit float32.
        spread = {"spread": 1.0} if row.ratio_level == "seq_sum" and data else data
        yield case(
            row.name,
            f"{row.name}-{name}-{dtype}",
            data={"width": 48, "dtype": dtype, **spread},
            arithmetic="float64",
            quick=name in {"far", "kl"} and row.name in {"grpo", "gspo"},
            **changes,
        )
