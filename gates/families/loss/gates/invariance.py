"""Is a loss independent of row order, duplication, padding width, and the split of a step?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gates.families.loss import calls, cases, laws
from gates.families.loss.op import POLICY_LOSS
from gates.families.units import UNIT
from gates.model import Array, Bound, Case, Draw, Evidence, Probe, Trial, precondition
from gates.registry import gate
from gates_reference.algorithms import ALGORITHMS
from gates_reference.oracle.losses import PolicyLoss

WIDER = 5  # added columns of padding
SPLIT = (5, 3)  # rows of the two calls; of 24 rows (15, 9)
EVEN = [0.5, 0.5]  # wrong shares for the negative control
PLAIN: dict[str, Any] = {}
KL: dict[str, Any] = {"beta": 0.3}
FILLED = {"policy": -0.5, "old": -0.6, "reference": -0.7, "advantages": 1.0}  # token values in the added columns


def _data(rng: np.random.Generator, algorithm: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    data = calls.batch_for(algorithm)
    if ALGORITHMS[algorithm].ratio_level == "seq_sum":
        data = {**data, "spread": 0.1}
    return calls.make(rng, algorithm, data, changes)


def _of_rows(inputs: Mapping[str, Any], chosen: Array) -> dict[str, Any]:
    """Return the call with these rows only."""
    rows = len(inputs["mask"])
    return {
        name: value[chosen] if isinstance(value, np.ndarray) and value.shape[:1] == (rows,) else value
        for name, value in inputs.items()
    }


def _permuted(rng: np.random.Generator, algorithm: str, changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Shuffle rows, and tokens within rows; broken, the advantages belong to other rows.

    Padding stays on the right, because a subject may support only right-padded rows.
    """
    left = _data(rng, algorithm, changes)
    rows, width = left["mask"].shape
    order = rng.permutation(rows)
    if "micro_batches" in ALGORITHMS[algorithm].constants:  # a micro-batch keeps its rows
        order = np.concatenate([4 + rng.permutation(4), rng.permutation(4)])
    order = np.roll(order, int(order[-1] == rows - 1))  # the longest row must move
    right = _of_rows(left, order)
    columns = np.stack([[*rng.permutation(size), *range(size, width)] for size in right["mask"].sum(axis=1)])
    for name in ("policy", "old", "reference", "advantages"):
        if right[name] is not None and right[name].shape == (rows, width):
            right[name] = np.take_along_axis(right[name], columns, axis=1)
    take = np.empty((rows, width), np.int64)
    take[order[:, None], columns] = np.arange(rows * width).reshape(rows, width)
    misplaced = np.roll(left["advantages"], 1, axis=0)
    return {
        "left": left,
        "right": right,
        "take": take.reshape(-1),
        "broken": {"right": {"advantages": misplaced}},
    }


def _copied(rng: np.random.Generator, algorithm: str, changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Duplicate every row: same loss, half the gradient in each copy; broken, the copies have twice the advantage."""
    left = _data(rng, algorithm, changes)
    rows = len(left["mask"])
    right = _of_rows(left, np.tile(np.arange(rows), 2))
    if "micro_batches" in ALGORITHMS[algorithm].constants:
        right["micro_batches"] = [4, 4, 4, 4]
    doubled = right["advantages"].copy()
    doubled[rows:] *= 2.0
    broken = {"right": {"advantages": doubled}}
    return {"left": left, "right": right, "take": np.arange(left["mask"].size), "factor": 2.0, "broken": broken}


def _wider(
    rng: np.random.Generator, algorithm: str, changes: Mapping[str, Any], *, poison: bool = False
) -> Mapping[str, Any]:
    """Add columns of padding that hold token values or NaN; broken, every other row has tokens there."""
    left = _data(rng, algorithm, changes)
    rows, width = left["mask"].shape
    right, filled = dict(left), {}
    for name in ("policy", "old", "reference", "advantages", "mask"):
        value = left[name]
        if value is None or value.shape != (rows, width):
            continue
        added = np.zeros((rows, WIDER), bool) if name == "mask" else np.full((rows, WIDER), FILLED[name], value.dtype)
        padding = np.full_like(added, np.nan) if poison and name != "mask" else added
        right[name] = np.concatenate([value, padding], axis=1)
        filled[name] = np.concatenate([value, added], axis=1)
    filled["mask"][::2] = True
    take = (np.arange(rows)[:, None] * (width + WIDER) + np.arange(width)).reshape(-1)
    return {"left": left, "right": right, "take": take, "broken": {"right": filled}}


def _cases(make: Callable[..., Mapping[str, Any]]) -> Iterator[Case]:
    for algorithm, row in ALGORITHMS.items():
        for name, changes in (("plain", PLAIN), ("kl", KL)):
            if name == "kl" and not row.kl_in_loss:
                continue
            whole = cases.case(algorithm, f"{algorithm}-{name}", **changes)
            of_algorithm = partial(make, algorithm=algorithm, changes=changes)
            quick = algorithm == "grpo" or (algorithm in {"dapo", "gspo", "rloo"} and name == "plain")
            yield Case(whole.name, of_algorithm, quick=quick, conventions=whole.conventions)


def _poisoned_cases() -> Iterator[Case]:
    for algorithm in ("grpo", "gspo", "rloo"):  # ratio levels: token, mean of a row, sum of a row
        conventions = cases.case(algorithm, algorithm).conventions
        of_algorithm = partial(_wider, algorithm=algorithm, changes=PLAIN, poison=True)
        yield Case(f"{algorithm}-nan", of_algorithm, conventions=conventions, level="hardening")


def _reordered_call(inputs: Mapping[str, Any]) -> bool:
    """Return whether this is the call with shuffled rows, in which the longest row is not the last."""
    return not bool(inputs["mask"][-1].all())


def _probe(when: Callable[[Mapping[str, Any]], bool]) -> tuple[Probe, ...]:
    return (Probe("policy_loss", ("loss", "gradient"), when),)


@gate(
    "loss.order-does-not-matter",
    level="law",
    name="policy_loss[permutation]",
    question="Do rows in another order, and tokens in another order in them, have the same loss and the same gradients?",
    why="A group, a mask or an advantage that is found by its place, not by its row, trains on another row's answer.",
    ops=(POLICY_LOSS,),
    cases=tuple(_cases(_permuted)),
    bounds=laws.BOUNDS,
    requires=laws.preconditions,
    probes=_probe(_reordered_call),
)
def order_does_not_matter(t: Trial) -> Iterator[Evidence]:
    """Compare both orders; the advantages of other rows must change the result."""
    yield from laws.hold(t)


@gate(
    "loss.copies-do-not-matter",
    level="law",
    name="policy_loss[batch size]",
    question="Does a step in which every row stands twice have the same loss, and half the gradient in each copy?",
    why="A sum where a mean belongs, or a denominator of one device's rows, makes the learning rate depend on the batch.",
    ops=(POLICY_LOSS,),
    cases=tuple(_cases(_copied)),
    bounds=laws.BOUNDS,
    requires=laws.preconditions,
    probes=_probe(lambda inputs: len(inputs["mask"]) in {16, 48}),
)
def copies_do_not_matter(t: Trial) -> Iterator[Evidence]:
    """Compare the step with the duplicated one; larger advantages in the copies must change the result."""
    yield from laws.hold(t)


@gate(
    "loss.wider-padding-does-not-matter",
    level="law",
    name="policy_loss[padding width]",
    question="Do loss and gradient stay the same when columns of padding are added?",
    why="A mean over the padded width ties the loss to the longest answer that happens to be in the batch.",
    ops=(POLICY_LOSS,),
    cases=(*_cases(_wider), *_poisoned_cases()),
    bounds=laws.BOUNDS,
    requires=laws.preconditions,
    probes=_probe(lambda inputs: inputs["mask"].shape[1] > 16),
)
def wider_padding_does_not_matter(t: Trial) -> Iterator[Evidence]:
    """Compare the narrow batch with the wide one; tokens in the added columns must change the result."""
    yield from laws.hold(t)


def _split_cases() -> Iterator[Case]:
    for algorithm, row in ALGORITHMS.items():
        if row.aggregation == "micro-batch":
            continue  # depends on the split by definition
        changes = KL if row.kl_in_loss else PLAIN
        whole = cases.case(algorithm, algorithm, **changes)
        of_algorithm = partial(_data, algorithm=algorithm, changes=changes)
        quick = algorithm in {*cases.AGGREGATED, "gspo"}
        yield Case(algorithm, of_algorithm, quick=quick, conventions=whole.conventions)


@dataclass(frozen=True, slots=True)
class _Split:
    """A step, its two uneven parts with their shares, and the definition's results for each."""

    whole: Mapping[str, Any]
    parts: list[dict[str, Any]]
    shares: list[float]
    wanted: PolicyLoss
    of_parts: list[PolicyLoss]

    @property
    def unit(self) -> float:
        return 2 * UNIT[str(self.whole["policy"].dtype)]

    @property
    def scale(self) -> float:
        return self.unit * float(self.wanted.gradient_scale.max())

    def preconditions(self) -> Iterator[Evidence]:
        far = _joined([x.gradient for x in self.of_parts], EVEN) - self.wanted.gradient
        yield precondition("largest |∂loss/∂policy| of the definition", np.abs(self.wanted.gradient).max(), ">", 1e-3)
        yield precondition("distance of parts weighed alike in 2u·S", float(np.abs(far).max()) / self.scale, ">=", 1e4)
        yield precondition("share of elements at a clip bound", self.wanted.near_branch.mean(), "<=", 0.0)


def _split(inputs: Mapping[str, Any], want: Callable[..., Any]) -> _Split:
    rows = len(inputs["mask"])
    parts = [_of_rows(inputs, indices) for indices in np.split(np.arange(rows), [rows * SPLIT[0] // sum(SPLIT)])]
    by_tokens = ALGORITHMS[inputs["algorithm"]].by_tokens  # else the share of a part is that of its rows
    sizes = [float(part["mask"].sum()) if by_tokens else float(len(part["mask"])) for part in parts]
    whole, *of_parts = (want(POLICY_LOSS, **calls.rounded(x)) for x in (inputs, *parts))
    return _Split(inputs, parts, [size / sum(sizes) for size in sizes], whole, of_parts)


SPLIT_BECAUSE = "each of the three calls errs by at most k·2u·S of its own, and the parts' shares of S add up to S: 2k"


def _parts_differ(t: Draw) -> Iterator[Evidence]:
    yield from _split(t.inputs, t.want).preconditions()


@gate(
    "loss.splits-add-up",
    level="law",
    name="policy_loss[split]",
    question="Is the loss of a step the mean of the losses of its parts, each weighed by its rows (DAPO, CISPO: its tokens)?",
    why="Gradient accumulation and data parallelism rest on it; rows that see each other break both.",
    ops=(POLICY_LOSS,),
    cases=tuple(_split_cases()),
    bounds={
        f"distance of the {what} in 2u·S": Bound("derived", SPLIT_BECAUSE, lambda t: t.facts["limit"], "precision")
        for what in ("losses", "gradients")
    }
    | {
        laws.NOT_FINITE: laws.BOUNDS[laws.NOT_FINITE],
    },
    requires=_parts_differ,
    probes=(Probe("policy_loss", ("loss", "gradient"), lambda inputs: len(inputs["mask"]) in {8, 24}),),
)
def splits_add_up(t: Trial) -> Iterator[Evidence]:
    """Compare a step with its two uneven parts; with equal weights the parts must not add up."""
    split = _split(t.inputs, t.want)
    t.facts["limit"] = 2.0 * laws.roundings(t.inputs)
    whole, parts = t.got(POLICY_LOSS, **t.inputs), [t.got(POLICY_LOSS, **part) for part in split.parts]
    numbers = [x[name] for x in (whole, *parts) for name in ("loss", "gradient")]
    yield t.number(laws.NOT_FINITE, laws.not_finite(*numbers), "<=")
    loss = sum(share * float(x["loss"]) for share, x in zip(split.shares, parts, strict=True))
    scale = split.unit * split.wanted.loss_scale
    limit, *limits = (t.textbook(POLICY_LOSS, **x) for x in (t.inputs, *split.parts))
    both = limit["loss"] + sum(share * x["loss"] for share, x in zip(split.shares, limits, strict=True))
    yield from t.agrees("distance of the losses in 2u·S", loss, float(whole["loss"]), both, scale=scale)
    joined = _joined([x["gradient"] for x in parts], split.shares)
    slopes = limit["gradient"] + _joined([x["gradient"] for x in limits], split.shares)
    yield from t.agrees("distance of the gradients in 2u·S", joined, whole["gradient"], slopes, scale=split.scale)
    moved = float(np.abs(_joined([x["gradient"] for x in parts], EVEN) - whole["gradient"]).max()) / split.scale
    yield t.negative_control(
        "distance of its parts weighed alike in 2u·S", moved, ">=", 5e3, "half of the definition's, at least"
    )


def _joined(gradients: list[Array], shares: list[float]) -> Array:
    return np.concatenate([share * np.asarray(x, np.float64) for share, x in zip(shares, gradients, strict=True)])
