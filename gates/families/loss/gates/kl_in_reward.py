"""Does a KL in the reward stay out of the gradient?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from gates.families import arrays
from gates.families.loss import cases
from gates.families.loss.op import REWARDED_LOSS
from gates.families.units import FLOAT32_U
from gates.model import Array, Bound, Case, Draw, Evidence, Probe, Trial
from gates.registry import gate
from gates_reference.oracle import advantages, kl, losses


def _rewarded(rng: np.random.Generator, beta: float, spread: float) -> dict[str, Any]:
    inputs = arrays.loss_inputs(rng, rows=12, spread=spread)
    return {
        **{name: inputs[name] for name in ("policy", "old", "reference", "mask")},
        "rewards": rng.integers(0, 3, 12).astype(np.float64) + 0.25 * np.tile(np.arange(4.0), 3),
        "group_size": 4,
        "beta": beta,
    }


REWARD_BECAUSE = f"{cases.PART_BECAUSE}; k = 4, and a rounding of the advantage to float32"


def _leave_one_out(rewards: Array, group_size: int) -> Array:
    convention: dict[str, Any] = {"scale": "none", "ddof": None, "eps": None, "eps_mode": None}
    return advantages.group_advantages(rewards, group_size, **convention, baseline="leave-one-out")


def definition(x: Mapping[str, Any]) -> tuple[Array, Array, losses.PolicyLoss]:
    """Return the rewards less the KL, their advantages, and the loss with these."""
    penalty = kl.token_kl(x["old"], x["reference"], estimator="k1", mask=x["mask"], reduction="sum")
    lowered = x["rewards"] - x["beta"] * penalty
    of_lowered = _leave_one_out(lowered, x["group_size"])
    without: dict[str, Any] = dict.fromkeys(("epsilon_low", "epsilon_high", "delta", "kl_ratio"))
    want = losses.policy_loss(
        x["policy"],
        old=x["old"],
        reference=None,
        advantages=of_lowered,
        mask=x["mask"],
        algorithm="rloo",
        beta=0.0,
        **without,
    )
    return lowered, of_lowered, want


def _preconditions(t: Draw) -> Iterator[Evidence]:
    x = t.inputs
    _, of_lowered, want = definition(x)
    change = float(np.abs(of_lowered - _leave_one_out(x["rewards"], x["group_size"])).max())
    yield t.precondition("largest change of an advantage by the KL", change, ">=", 0.05)
    leak = x["beta"] / len(of_lowered)  # what Σ k1 of the policy would add to each token's gradient
    yield t.precondition("a KL's own gradient against the largest", leak / np.abs(want.gradient).max(), ">=", 1e-3)


@gate(
    "loss.rloo.kl-in-reward",
    level="definition",
    name="policy_loss[kl in reward]",
    question="Is RLOO's KL taken from the reward before leave-one-out, summed, of the old policy, and out of the gradient?",
    why="A KL that keeps its graph moves the policy twice, with a loss of the same value.",
    ops=(REWARDED_LOSS,),
    cases=(
        Case("ragged", partial(_rewarded, beta=0.1, spread=0.1), quick=True),
        Case("heavy", partial(_rewarded, beta=1.5, spread=0.1), quick=True),
        Case("off-policy", partial(_rewarded, beta=0.3, spread=0.4)),
    ),
    bounds={
        "advantage error in 2u·S": Bound(
            "derived", "rewards and KL in float64, one rounding to float32; S = max|R| of the group", 2.0, "precision"
        ),
        "loss error in 2u·S": Bound("derived", REWARD_BECAUSE, 5.0, "precision"),
        "gradient error in 2u·S": Bound("derived", REWARD_BECAUSE, 5.0, "precision"),
    },
    requires=_preconditions,
    probes=(Probe("rewarded_loss", ("loss", "gradient", "advantages")),),
)
def kl_in_reward(t: Trial) -> Iterator[Evidence]:
    """Compare advantages, loss and gradient with those of the lowered rewards, with constant advantages."""
    x = dict(t.inputs)
    lowered, wanted_advantages, wanted = definition(x)
    got = t.got(REWARDED_LOSS, **x)
    unit = 2 * FLOAT32_U
    largest = np.repeat(np.abs(lowered).reshape(-1, 4).max(axis=1), 4)
    limits = t.textbook(REWARDED_LOSS, **x)
    for name, quantity, want, scale in (
        ("advantages", "advantage error in 2u·S", wanted_advantages, unit * largest),
        ("loss", "loss error in 2u·S", wanted.loss, unit * wanted.loss_scale),
        ("gradient", "gradient error in 2u·S", wanted.gradient, unit * np.where(x["mask"], wanted.gradient_scale, 0.0)),
    ):
        yield from t.agrees(quantity, got[name], want, limits[name], scale=scale)
