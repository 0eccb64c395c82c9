"""Cases of policy losses with their conventions: every algorithm, layout, KL and denominator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np

from gates.families.loss import calls, covering
from gates.families.loss.choosing import BEYOND, WORDS, with_choices
from gates.model import Case, Level
from gates_reference.algorithms import ALGORITHMS, AXES, VARIANTS, Algorithm

PART_BECAUSE = (
    "k·2u·S: a part errs by k·2u times the sum of its own |terms|, these add up to S, and each gradient belongs to one "
    "part; differences of log-probs and the part's sum carry their rounding errors"
)


def _first(*axes: str) -> tuple[str, ...]:
    """Return the first algorithm of the table for each combination of choices on these axes."""
    firsts: dict[tuple[Any, ...], str] = {}
    for row in ALGORITHMS.values():
        firsts.setdefault(tuple(getattr(row, axis) for axis in axes), row.name)
    return tuple(firsts.values())


COUNTING = ("row-mean", "token-mean", "micro-batch")  # aggregations that divide by a count of tokens
LEVELS = _first("value_level", "bound")  # one algorithm for each combination of ratio level and bound
AGGREGATED = _first("aggregation")
QUICK = 8  # one in eight compositions is quick
ONE_WIDTH = frozenset(  # half of the cases: many libraries have a single ε
    (
        "no-mask", "row-mask", "prefixes", "float64", "token-advantages", "row-advantages", "kl", "on-policy-kl",
        "kl-times-token-ratio", "k1-none", "k2-sequence", "kl-far", "by-prompt", "uneven-micro-batches",
    )
)  # fmt: skip


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
    row = calls.row_for(algorithm, changes)
    if name in ONE_WIDTH and not {"epsilon_low", "epsilon_high"} & set(changes) and _has_two_widths(row):
        changes |= _one_width(row)
    chosen: dict[str, Any] = {**calls.batch_of(row), **(data or {})}
    choice = {**calls.WHOLE, **row.constants, **changes}
    conventions = {
        "algorithm": algorithm,
        "dtype": chosen.get("dtype", "float32"),
        "ratio": "on-policy" if changes.get("old", "given") is None else "off-policy",
        "rows": "holes" if chosen.get("holes") and rows == "mask" else rows,
        "advantages": "token" if chosen.get("by_token") else "row",
        "weights": weights != "none",
        **({"empty_rows": True} if chosen.get("empty_row") else {}),
        **({name: choice[name] for name in ("kl_ratio", "kl_estimator")} if choice["beta"] else {}),
        **({"kl_aggregation": changes.get("kl_aggregation") or "same"} if choice["beta"] else {}),
        **({"dapo_denominator": choice["dapo_denominator"]} if choice["dapo_denominator"] else {}),
        **({"count_eps": changes.get("count_eps") or 0.0} if row.aggregation in COUNTING else {}),
        **_widths(row, choice),
        **({"arithmetic": arithmetic} if arithmetic else {}),
    }
    conventions |= (declared := {axis: changes[axis] for axis in AXES if axis in changes})
    declared |= {name: True for name in ("clipped", "lower_bound") if conventions.get(name)}
    if choice.get("kl_clamp"):
        declared["kl_clamp"] = choice["kl_clamp"]
    if changes.get("count_eps"):
        declared["count_eps"] = changes["count_eps"]
    if changes.get("kl_aggregation"):
        declared["kl_aggregation"] = changes["kl_aggregation"]
    if "kl_clamp" in changes:
        conventions["kl_clamp"] = changes["kl_clamp"]
    if row.aggregation == "width" and rows in {"mask", "row-mask", "lengths"}:
        beyond = beyond or BEYOND
    made = partial(
        calls.make, algorithm=algorithm, data=chosen, changes=changes, rows=rows, weights=weights, beyond=beyond
    )
    level: Level | None = "robustness" if chosen.get("empty_row") else None

    def compose(choices: Mapping[str, Any]) -> Case:
        return with_choices(
            choices, case_of, row, changes, data or {}, {"rows": rows, "weights": weights, "beyond": beyond}
        )

    case_of = partial(case, algorithm, name, quick=quick, arithmetic=arithmetic)
    return Case(
        name,
        made,
        quick=quick,
        conventions=conventions,
        declared=declared,
        level=level,
        compose=compose,
        changeable=(*WORDS, "lower_bound", "kl_clamp", "count_eps"),
    )


OF_INPUTS = ("rows", "advantages", "dtype", "ratio")  # a law is about inputs of one layout and dtype


def derived(
    case: Case,
    make: Callable[[np.random.Generator, Callable[[np.random.Generator], Any]], Any],
    asks: Mapping[str, Any] = MappingProxyType({}),
    **fields: Any,
) -> Case:
    """Return a case whose inputs are made from those of another; with other choices, from those of the other with these.

    Args:
        case: the other one.
        make: returns the inputs from a generator and the function that makes the inputs of the other.
        asks: conventions that it needs besides those of the other.
        fields: attributes that differ.
    """
    compose = case.compose

    def composed_alike(axes: Mapping[str, Any]) -> Case:
        return derived(compose(axes), make, asks, **fields)  # type: ignore[misc]

    return replace(
        case,
        make=lambda rng: make(rng, case.make),
        conventions={**case.conventions, **asks},
        compose=composed_alike if compose else None,
        **{"changeable": tuple(name for name in case.changeable if name not in OF_INPUTS), **fields},
    )


def _rare(case: Case) -> Case:
    """Return a case on rare input, where a failure is fragile."""
    return derived(case, lambda rng, make: make(rng), level="robustness", changeable=case.changeable)


def _widths(row: Algorithm, choice: Mapping[str, Any]) -> dict[str, Any]:
    """Return the conventions of a bound: whether an optional one exists, how a cap is read, one width or two."""
    low, high = choice["epsilon_low"], choice["epsilon_high"]
    if row.bound == "none":
        return {} if row.ratio_level == "none" else {"clipped": low is not None}
    if row.bound == "cap":
        return {"lower_bound": low is not None, "cispo_bound": choice["cispo_bound"]}
    return {"clip_width": "one" if low == high else "two"} if row.bound in {"clip", "log-clip"} else {}


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
    if preset.ratio_level != "seq_sum":  # a longer product has too wide a limit
        yield this("long-rows", data={"width": 28})
    if algorithm == "grpo":  # layouts of a row of full width, and of an empty row
        yield this("prefixes-to-the-end", rows="lengths")
        yield this("empty-prefix", rows="lengths", beyond=BEYOND, data={"empty_row": True})
        yield this("empty-flat-row", rows="flat", data={"empty_row": True})
    if not preset.by_row:
        yield this("token-weights", weights="token")
        yield this("token-advantages", data={"by_token": True}, quick=True)
    if calls.batch_for(algorithm).get("by_token"):
        yield this("row-advantages", data={"by_token": False})
    if preset.bound in {"clip", "log-clip"}:
        yield this("one-width", **_one_width(preset))
    yield from _bound_cases(algorithm)
    if preset.kl_in_loss:
        yield from _kl_cases(algorithm)
    yield from _found_cases(algorithm)
    yield from _constant_cases(algorithm)


def _bound_cases(algorithm: str) -> Iterator[Case]:
    """Yield the cases about an algorithm's bounds."""
    this, preset = partial(case, algorithm), ALGORITHMS[algorithm]
    if preset.value_level == "token" and preset.bound in {"clip", "gate"}:
        yield _rare(this("far-ratios", data={"spread": 2.0}))
    if "delta" in preset.constants:
        yield from _one_sided(algorithm)
    if preset.two_sided:
        yield this("two-sided-clip", delta=calls.tight_delta(algorithm), quick=algorithm == "grpo")
    if preset.bound == "none" and preset.ratio_level != "none":
        yield this("clipped", data={"spread": 0.15}, epsilon_low=0.2, epsilon_high=0.25, quick=True)


def _one_sided(algorithm: str) -> Iterator[Case]:
    """Yield the cases of a preset with a dual clip for libraries that have none."""
    this, near = partial(case, algorithm, delta=None), {"spread": 0.3}
    yield this("no-dual-clip", data=near, quick=True)
    yield this("no-dual-clip-kl", data=near, beta=0.04)
    yield this("no-dual-clip-by-token", data={**near, "by_token": True})
    yield this("no-dual-clip-no-mask", rows="all", data={**near, "equal_lengths": True})
    yield this("no-dual-clip-on-policy", data=near, old=None)
    yield this("no-dual-clip-by-prompt", data=near, dapo_denominator="group", group_size=4)
    yield this("no-dual-clip-window", data=near, dapo_denominator="trl", tokens_in_step=171.5)


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
    if algorithm in {"grpo", "dapo", "bnpo-trl"}:  # one of each count
        yield this("count-eps", count_eps=1e-4, quick=True)
    if "sapo_temperature_positive" in preset.constants:
        yield this("temperatures", sapo_temperature_positive=0.5, sapo_temperature_negative=2.0, quick=True)


def _has_two_widths(row: Algorithm) -> bool:
    return row.bound in {"clip", "log-clip"} and row.constants["epsilon_low"] != row.constants["epsilon_high"]


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
    yield this(
        "no-mask-kl", rows="all", data={"equal_lengths": True}, beta=0.04
    )  # no aggregation shows: diagnosed last
    if algorithm in {"grpo", "dapo", "gspo"}:
        yield this("kl-clamped", beta=0.04, kl_clamp=10.0, quick=True)
        yield _rare(this("kl-far", beta=0.04, kl_clamp=None, data={"found": "far-reference"}))
    for aggregation in {"grpo": ("token-mean", "row-sum"), "dapo": ("row-mean",)}.get(algorithm, ()):
        yield this(f"kl-{aggregation}", beta=0.3, kl_aggregation=aggregation, quick=aggregation == "token-mean")
    if algorithm not in (*LEVELS, "dapo"):
        return  # the others share the KL of one of these, over another denominator
    yield from (this(f"kl-times-{level}-ratio", beta=0.04, kl_ratio=level) for level in ("token", "sequence"))
    yield from (
        this(f"{estimator}-{level}", beta=0.3, kl_estimator=estimator, kl_ratio=level, quick=level == "token")
        for estimator, level in (("k1", "none"), ("k2", "none"), ("k1", "token"), ("k2", "sequence"))
    )


PRECISE: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (  # name, keywords of the batch, changes of the loss
    ("near", {}, {}),
    ("far", {"spread": 20.0}, {}),  # at |D| = 19 the rounding of D alone is 8 units
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
        if row.mean_ratio and name == "far":
            spread = {"spread": 12.0}  # a row's mean stays below the 10 nats at which a library cuts it
        yield case(
            row.name,
            f"{row.name}-{name}-{dtype}",
            data={"width": 48, "dtype": dtype, **spread},
            arithmetic="float64",
            quick=name in {"far", "kl"} and row.name in {"grpo", "gspo"},
            **changes,
        )
