"""Are truncated completions left out of the loss and its denominators, but still counted as rows?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from gates.families import arrays
from gates.families.loss import calls, cases
from gates.families.loss.op import LOSS_OF_COMPLETIONS, POLICY_LOSS
from gates.families.units import FLOAT32_U
from gates.model import Array, Bound, Case, Draw, Evidence, Probe, Trial
from gates.registry import gate
from gates_reference.algorithms import ALGORITHMS
from gates_reference.oracle import dynamic_sampling

ROWS, GROUP, WIDTH, MICRO_BATCH = 12, 4, 16, 4
TRUNCATED = [1, 3, 4, 5, 6, 7]  # half of the first group and micro-batch, all of the second, none of the third


def _make(
    rng: np.random.Generator,
    algorithm: str,
    changes: dict[str, Any],
    *,
    mask_truncated: bool,
    micro_batch_rows: int = MICRO_BATCH,
) -> dict[str, Any]:
    inputs = arrays.loss_inputs(
        rng, rows=ROWS, width=WIDTH, spread=0.02 if ALGORITHMS[algorithm].ratio_level == "seq_sum" else 0.3
    )
    del inputs["mask"]
    choice = {**calls.WHOLE, **ALGORITHMS[algorithm].constants, **changes}
    ended = np.ones(ROWS, np.bool_)
    ended[TRUNCATED] = False
    lengths = rng.integers(2, WIDTH, ROWS)
    lengths[~ended] = WIDTH  # only a completion of full width is truncated
    lengths[-1] = WIDTH  # ends exactly at the limit
    own = ("epsilon_low", "epsilon_high", "beta", "dapo_denominator")
    return {
        **inputs,
        "reference": inputs["reference"] if choice["beta"] else None,
        "lengths": lengths,
        "ended": ended,
        "mask_truncated": mask_truncated,
        "group_size": GROUP,
        "max_length": WIDTH,
        "micro_batch_rows": micro_batch_rows,
        "algorithm": algorithm,
        **{name: choice[name] for name in own},
    }


def _case(name: str, algorithm: str, *, mask: bool = True, rows: int = MICRO_BATCH, **changes: Any) -> Case:
    make = partial(_make, algorithm=algorithm, changes=changes, mask_truncated=mask, micro_batch_rows=rows)
    return Case(
        name, make, quick=name == algorithm, proof=True, conventions={"algorithm": algorithm, "dtype": "float32"}
    )


def _cases() -> Iterator[Case]:
    yield from (_case(algorithm, algorithm) for algorithm in ALGORITHMS)
    yield _case("kl", "grpo", beta=0.3)
    yield from (_case(f"dapo-{by}", "dapo", dapo_denominator=by) for by in ("group", "trl"))
    yield _case("kept", "dapo", mask=False)
    # caught `micro_batch_rows` instead of min(micro_batch_rows, rows - start): the last micro-batch counted as full
    yield _case("found-uneven-micro-batches", "bnpo-trl", rows=5)


def _mask(x: Mapping[str, Any], *, mask_truncated: bool) -> Array:
    return dynamic_sampling.completion_mask(x["lengths"], x["ended"], width=WIDTH, mask_truncated=mask_truncated)


def _option_acts(t: Draw) -> Iterator[Evidence]:
    x, asked = t.inputs, t.inputs["mask_truncated"]
    masks = [_mask(x, mask_truncated=masked) for masked in (asked, not asked)]
    want, without = (t.want(POLICY_LOSS, **_policy_loss(x, mask)) for mask in masks)
    yield t.precondition("truncated completions", int(np.sum(~x["ended"])), ">=", 2)
    change = np.abs(want.gradient - without.gradient).max()
    yield t.precondition("largest change of the gradient by the option", float(change), ">", 1e-3)
    yield t.precondition("share of elements at a clip bound", float(want.near_branch.mean()), "<=", 0.0)


@gate(
    "loss.truncated-completions.are-masked",
    level="definition",
    name="loss_of_completions[mask_truncated_completions]",
    question="Are truncated completions out of the loss and of every count of tokens, and still rows in every mean over rows?",
    why="A denominator that still counts what the numerator left out shrinks the step with every truncated completion.",
    ops=(LOSS_OF_COMPLETIONS,),
    cases=tuple(_cases()),
    bounds={
        "loss error in 2u·S": Bound("derived", f"{cases.PART_BECAUSE}; k = 4", 4.0, "precision"),
        "gradient error in 2u·S": Bound("derived", f"{cases.PART_BECAUSE}; k = 4", 4.0, "precision"),
    },
    requires=_option_acts,
    probes=(Probe("loss_of_completions", ("loss", "gradient")),),
)
def truncated_completions_are_masked(t: Trial) -> Iterator[Evidence]:
    """Compare with the policy loss of the same rows with the definition's mask."""
    x = dict(t.inputs)
    mask = _mask(x, mask_truncated=x["mask_truncated"])
    want = t.want(POLICY_LOSS, **_policy_loss(x, mask))
    got = t.got(LOSS_OF_COMPLETIONS, **x)
    unit, tiny = 2 * FLOAT32_U, float(np.finfo(np.float32).tiny)
    limits = t.textbook(POLICY_LOSS, **_policy_loss(x, mask))
    scale = unit * want.loss_scale
    yield from t.agrees("loss error in 2u·S", got["loss"], want.loss, limits["loss"], scale=scale)
    scale = unit * np.where(mask, np.maximum(want.gradient_scale, tiny), 0.0)
    yield from t.agrees("gradient error in 2u·S", got["gradient"], want.gradient, limits["gradient"], scale=scale)


def _policy_loss(x: Mapping[str, Any], mask: Array) -> dict[str, Any]:
    """Return the step as keywords of policy_loss."""
    constants = {**calls.WHOLE, **ALGORITHMS[x["algorithm"]].constants}
    step = int(x["micro_batch_rows"])
    sizes = [min(step, ROWS - start) for start in range(0, ROWS, step)]
    own = ("policy", "old", "reference", "advantages", "algorithm", "epsilon_low", "epsilon_high", "beta")
    call = {
        **constants,
        **{name: x[name] for name in own},
        "mask": mask,
        "dapo_denominator": x["dapo_denominator"],
        "group_size": GROUP if x["dapo_denominator"] == "group" else None,
        "tokens_in_step": float(mask.sum()) if x["dapo_denominator"] == "trl" else None,
        "max_length": WIDTH if constants["max_length"] else None,
        "micro_batches": sizes if constants["micro_batches"] else None,
        "lengths": None,
        "weights": None,
    }
    return calls.rounded(call)
