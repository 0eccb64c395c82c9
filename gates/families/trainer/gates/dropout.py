"""Is dropout of an adapter's input that of its definition, and does it act only in updates?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from gates.families.trainer.gates import runs as training
from gates.families.trainer.op import LORA_LINEAR, STEP_LOGPROBS
from gates.families.units import FLOAT32_U
from gates.model import Bound, Case, Evidence, Probe, Trial
from gates.registry import gate

ROWS, INPUTS, RANK, OUTPUTS = 64, 96, 8, 24
SIGMAS = 6.5  # standard deviations of a binomial share, exceeded once in 10¹⁰
ROUNDINGS = (INPUTS + RANK + OUTPUTS) / 2  # in units of 2u: one rounding for each term of the longest chain of sums
SHARE_BECAUSE = f"{SIGMAS} standard deviations of a binomial share of {ROWS * INPUTS} elements: one in 10¹⁰"


def _make(rng: np.random.Generator, p: float) -> dict[str, Any]:
    return {
        "x": rng.normal(0.0, 1.0, (ROWS, INPUTS)).astype(np.float32),
        "weight": (rng.normal(0.0, 1.0, (OUTPUTS, INPUTS)) / math.sqrt(INPUTS)).astype(np.float32),
        "a": (rng.normal(0.0, 1.0, (INPUTS, RANK)) / math.sqrt(INPUTS)).astype(np.float32),
        "b": rng.normal(0.0, 1.0, (RANK, OUTPUTS)).astype(np.float32),
        "scale": 2.0,
        "p": p,
    }


@gate(
    "trainer.lora-dropout.matches-definition",
    level="definition",
    name="lora_linear",
    question="Is a share p of the adapter's input dropped and the rest divided by 1 − p, with the base's own path untouched?",
    why="Without the division an adapter trains at a scale that it never has again once dropout is off.",
    ops=(LORA_LINEAR,),
    cases=tuple(
        Case(f"p-{p}", partial(_make, p=p), quick=True, conventions={"dtype": "float32"}) for p in (0.05, 0.5, 0.9)
    ),
    bounds={
        "output error in 2u·S": Bound(
            "derived",
            "one rounding for each term of a sum: I + r + O of them, whatever the order",
            ROUNDINGS,
            level="precision",
        ),
        "distance of the dropped share from p": Bound(
            "derived", SHARE_BECAUSE, lambda t: SIGMAS * _deviation(float(t.inputs["p"]))
        ),
        "distance of the share that another draw changes from 2p(1 − p)": Bound(
            "derived",
            SHARE_BECAUSE,
            lambda t: SIGMAS * _deviation(2 * float(t.inputs["p"]) * (1 - float(t.inputs["p"]))),
        ),
        "elements that the same draw changes": Bound("exact", "a draw is a function of its numbers", 0, level="law"),
        "elements dropped outside an update": Bound(
            "exact", "rollouts and constants are those of the policy itself", 0, level="law"
        ),
    },
    probes=(Probe("lora_linear", ("y",)),),
)
def lora_dropout_matches_definition(t: Trial) -> Iterator[Evidence]:
    """Compare the output with the definition for the drawn mask, and compare the masks of several draws."""
    x = dict(t.inputs)
    p = float(x["p"])
    first, again, other, plain = (
        t.got(LORA_LINEAR, **x, draw=draw) for draw in ([7, 1, 0], [7, 1, 0], [7, 2, 0], None)
    )
    layer = {name: x[name] for name in ("weight", "a", "b", "scale")}
    masks = [np.asarray(outputs["kept"]) > 0 for outputs in (first, again, other, plain)]
    for outputs, kept, probability in ((first, masks[0], p), (plain, masks[3], 0.0)):
        masked = {"x": x["x"], **layer, "kept": kept, "p": probability}
        want, limits = t.want(LORA_LINEAR, **masked), t.textbook(LORA_LINEAR, **masked)["y"]
        scale = 2 * FLOAT32_U * want.scale
        yield from t.agrees("output error in 2u·S", outputs["y"], want.y, limits, scale=scale)
    dropped = float(np.mean(~masks[0]))
    yield t.number("distance of the dropped share from p", abs(dropped - p), "<=", where=f"{dropped:.4f}")
    changed = float(np.mean(masks[0] != masks[2]))
    quantity = "distance of the share that another draw changes from 2p(1 − p)"
    yield t.number(quantity, abs(changed - 2 * p * (1 - p)), "<=", where=f"{changed:.4f}")
    yield t.number("elements that the same draw changes", int(np.sum(masks[0] != masks[1])), "<=")
    yield t.number("elements dropped outside an update", int(np.sum(~masks[3])), "<=")


def _deviation(share: float) -> float:
    return math.sqrt(share * (1 - share) / (ROWS * INPUTS))


TABLES: Mapping[str, Mapping[str, Any]] = {
    "adapter": {"b_std": 0.2, "dropout": 0.5},  # with B = 0, as in a fresh adapter, dropout has no effect
    "algorithm": {"settings": {"beta": 0.1}},
    "loop": {"iterations": 2, "steps": 1, "micro_batch_rows": 5},
}


@gate(
    "trainer.dropout.acts-in-updates-only",
    level="law",
    name="step_logprobs",
    question="With dropout, are rollouts, old log-probs and reference log-probs those of the policy itself?",
    why="A rollout of a policy with holes is drawn from another policy than the one that is trained, saved and served.",
    ops=(STEP_LOGPROBS,),
    cases=(Case("one-step", partial(training._make, tables=TABLES), quick=True, limit_s=60),),
    bounds={
        "log-probs of the sampler that dropout changes": Bound("exact", "a rollout is no update", 0),
        "old log-probs that dropout changes": Bound(
            "exact", "old log-probs are constants of the step, not its update", 0
        ),
        "reference log-probs that dropout changes": Bound("exact", "the reference has no adapter", 0),
        "log-probs of the policy that a second run changes": Bound("exact", "masks are a function of the seed", 0),
    },
)
def dropout_acts_in_updates_only(t: Trial) -> Iterator[Evidence]:
    """Take the first step with and without dropout; only the policy's log-probs in the update must change."""
    tables = t.inputs["tables"]
    share = tables["adapter"]["dropout"]
    plain, first, again = (
        t.got(STEP_LOGPROBS, model=t.inputs["model"], tables={**tables, "adapter": {**tables["adapter"], "dropout": p}})
        for p in (0.0, share, share)
    )
    yield t.precondition("sampled tokens", int(np.isfinite(plain["sampler"]).sum()), ">=", 32)
    for name, quantity in (
        ("sampler", "log-probs of the sampler that dropout changes"),
        ("old", "old log-probs that dropout changes"),
        ("reference", "reference log-probs that dropout changes"),
    ):
        yield t.number(quantity, _differ(first[name], plain[name]), "<=")
    quantity = "log-probs of the policy that a second run changes"
    yield t.number(quantity, _differ(first["policy"], again["policy"]), "<=")
    moved = _differ(first["policy"], plain["policy"])
    yield t.negative_control(
        "log-probs of the policy that dropout changes", moved, ">=", 16, "dropout that is off proves nothing"
    )


def _differ(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> int:
    if left.shape != right.shape:
        return max(left.size, right.size)
    return int(np.sum((left != right) & ~(np.isnan(left) & np.isnan(right))))
