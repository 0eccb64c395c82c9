"""Is the right completion chosen, and does only the chosen one train?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from gates.families.preference import inputs as generators
from gates.families.preference.op import BEST_OF_N, PREFER, WINNER_LOSS
from gates.families.units import UNIT
from gates.model import Bound, Case, Draw, Evidence, Level, Probe, SubjectFaultError, Trial, Wire
from gates.registry import gate
from gates_reference.oracle.preference_choice import best_of_n

KINDS: dict[str, tuple[Level, dict[str, Wire]]] = {  # kinds of scores: level, and conventions to declare
    "distinct": ("definition", {}),
    "ties": ("rule", {"ties": "first"}),
    "not-scored": ("rule", {"nan_rewards": "unscored"}),
    "infinities": ("hardening", {}),
}


def _cases(make: Callable[..., dict[str, Any]], *sizes: int) -> Iterator[Case]:
    for kind, (level, declared) in KINDS.items():
        for size in sizes:
            name = f"{kind}-{size}" if len(sizes) > 1 else kind
            yield Case(name, partial(make, kind=kind, size=size), quick=True, level=level, declared=declared)


def _both_preferred(t: Draw) -> Iterator[Evidence]:
    want = t.want(PREFER, **t.inputs)
    yield t.precondition("pairs that prefer the first", int((want[0::2] > 0).sum()), ">=", 1)
    yield t.precondition("pairs that prefer the second", int((want[0::2] < 0).sum()), ">=", 1)


@gate(
    "preference.online.prefers-the-higher",
    level="definition",
    name="prefer",
    question="Is the completion with the higher score chosen, the first of a tie, and none where one is not scored?",
    why="A tie that goes to the second, or to chance, makes a run depend on the order of its rows.",
    ops=(PREFER,),
    cases=tuple(_cases(generators.scores, 2)),
    bounds={"signs that differ": Bound("exact", "a comparison has no rounding", 0.0)},
    requires=_both_preferred,
    probes=(Probe("prefer", ("signs",)),),
)
def prefers_the_higher(t: Trial) -> Iterator[Evidence]:
    """Compare every sign."""
    scores = t.inputs["scores"]
    want = t.want(PREFER, scores=scores)
    got = t.got(PREFER, scores=scores)["signs"]
    if got.shape != want.shape:
        raise SubjectFaultError("shape", f"signs have shape {got.shape}, must be {want.shape}")
    yield t.number("signs that differ", int(np.sum(~(got == want))), "<=")


def _not_always_the_first(t: Draw) -> Iterator[Evidence]:
    want, size = t.want(BEST_OF_N, **t.inputs), t.inputs["group_size"]
    yield t.precondition("groups won by another row than the first", int((want % size > 0).sum()), ">=", 1)


@gate(
    "preference.best-of-n.selects",
    level="definition",
    name="best_of_n",
    question="Is the highest score that is not NaN selected, the lowest row of several, and is a group without one an error?",
    why="NumPy's argmax returns the NaN, and max() whatever came first: the run trains on what its reward refused to score.",
    ops=(BEST_OF_N,),
    cases=tuple(_cases(generators.groups, 2, 5)),
    bounds={
        "winners that differ": Bound("exact", "a comparison has no rounding", 0.0),
        "calls that chose among NaN alone": Bound("exact", "nothing was scored", 0.0),
    },
    requires=_not_always_the_first,
)
def best_of_n_selects(t: Trial) -> Iterator[Evidence]:
    """Compare winners; if some scores are NaN, then also remove every score of one group."""
    scores, size = t.inputs["scores"], t.inputs["group_size"]
    want = t.want(BEST_OF_N, scores=scores, group_size=size)
    got = t.got(BEST_OF_N, scores=scores, group_size=size)["rows"]
    if got.shape != want.shape:
        raise SubjectFaultError("shape", f"rows have shape {got.shape}, must be {want.shape}")
    yield t.number("winners that differ", int(np.sum(got != want)), "<=")
    if np.isnan(scores).any():
        unscored = np.where(np.arange(scores.size) // size == 1, np.nan, scores)
        outcome = t.call(BEST_OF_N, scores=unscored, group_size=size)
        refused = outcome.kind == "raised" and "NaN" in outcome.error
        where = outcome.error[:80] or outcome.kind
        yield t.number("calls that chose among NaN alone", int(not refused), "<=", where=where)


def _uneven_winners(t: Draw) -> Iterator[Evidence]:
    x = t.inputs
    winners = best_of_n(x["scores"], x["group_size"])
    yield t.precondition("different lengths among winners", len(set(x["mask"][winners].sum(axis=1).tolist())), ">=", 2)


@gate(
    "preference.best-of-n.trains-on-the-winner",
    level="definition",
    name="winner_loss",
    question="Is the loss the mean over prompts of the winner's mean −log-prob, and the gradient 0 in every other row?",
    why="Rows that lost and still weigh in make Best-of-N plain fine-tuning on everything that was sampled.",
    ops=(WINNER_LOSS,),
    cases=(
        Case("in-uneven-parts", generators.winners, quick=True, conventions={"dtype": "float32"}),
        Case(
            "unreadable",
            partial(generators.winners, garbage=True),
            quick=True,
            conventions={"dtype": "float32"},
            level="hardening",
        ),
    ),
    bounds={
        "loss error in 2u·S": Bound(
            "derived",
            "k·2u·S: a division per term, sums of a part carry their errors; k = 4",
            4.0,
            level="precision",
        ),
        "gradient error in 2u·S": Bound("derived", "two divisions; k = 2", 2.0, level="precision"),
    },
    requires=_uneven_winners,
    probes=(Probe("winner_loss", ("loss", "gradient")),),
)
def trains_on_the_winner(t: Trial) -> Iterator[Evidence]:
    """Compare with the definition, computed here."""
    x = dict(t.inputs)
    winners = best_of_n(x["scores"], x["group_size"])
    weight = np.zeros(x["mask"].shape)
    for row in winners:
        weight[row] = x["mask"][row] / (len(winners) * x["mask"][row].sum())
    want = -float(np.sum(weight[x["mask"]] * x["policy"].astype(np.float64)[x["mask"]]))
    got, limits, unit = t.got(WINNER_LOSS, **x), t.textbook(WINNER_LOSS, **x), 2 * UNIT["float32"]
    yield from t.agrees("loss error in 2u·S", got["loss"], want, limits["loss"], scale=unit * abs(want))
    yield from t.agrees("gradient error in 2u·S", got["gradient"], -weight, limits["gradient"], scale=unit * weight)
