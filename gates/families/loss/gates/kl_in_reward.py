"""Does a KL in the reward stay out of the gradient?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from gates.families import arrays
from gates.families.loss import cases
from gates.families.loss.op import REWARDED_LOSS
from gates.families.units import FLOAT32_U
from gates.model import Bound, Case, Evidence, Probe, Trial
from gates.registry import gate
from reference.oracle import advantages, kl, losses


def _rewarded(rng: np.random.Generator, beta: float, spread: float) -> dict[str, Any]:
    inputs = arrays.loss_inputs(rng, rows=12, spread=spread)
    return {
        **{name: inputs[name] for name in ("policy", "old", "reference", "mask")},
        "rewards": rng.integers(0, 3, 12).astype(np.float64) + 0.25 * np.tile(np.arange(4.0), 3),
        "group_size": 4,
        "beta": beta,
    }


REWARD_BECAUSE = f"{cases.PART_BECAUSE}; k = 4, and a rounding of the advantage to float32"


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
    probes=(Probe("rewarded_loss", ("loss", "gradient", "advantages")),),
)
def kl_in_reward(t: Trial) -> Iterator[Evidence]:
    """Compare advantages, loss and gradient with those of lowered rewards, whose advantages are constants."""
    x = dict(t.inputs)
    penalty = kl.token_kl(x["old"], x["reference"], estimator="k1", mask=x["mask"], reduction="sum")
    convention: dict[str, Any] = {"scale": "none", "ddof": None, "eps": None, "eps_mode": None}
    lowered = x["rewards"] - x["beta"] * penalty
    wanted_advantages = advantages.group_advantages(lowered, 4, **convention, baseline="leave-one-out")
    plain = advantages.group_advantages(x["rewards"], 4, **convention, baseline="leave-one-out")
    yield t.precondition(
        "largest change of an advantage by the KL", float(np.abs(wanted_advantages - plain).max()), ">=", 0.05
    )
    without: dict[str, Any] = dict.fromkeys(("epsilon_low", "epsilon_high", "delta", "kl_ratio"))
    wanted = losses.policy_loss(
        x["policy"],
        old=x["old"],
        reference=None,
        advantages=wanted_advantages,
        mask=x["mask"],
        algorithm="rloo",
        beta=0.0,
        **without,
    )
    leak = x["beta"] / len(wanted_advantages)  # what Σ k1 of the policy itself would add to each token's gradient
    yield t.precondition("a KL's own gradient against the largest", leak / np.abs(wanted.gradient).max(), ">=", 1e-3)
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
