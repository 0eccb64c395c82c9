"""Cases of whole updates: each trainer with its defaults, then with the settings of its paper.

A library that has no clip, that trains on one prompt a step, or that takes rows of one length declares so, and is asked
the cases of it in place of the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from gates.families.trainer import step_inputs
from gates.families.trainer.step_inputs import GROUPS, ROWS, SCORED_PAIRS
from gates.model import Case

ALL = GROUPS * ROWS
RATE = {"learning_rate": 3e-3}  # moves ratios
KL = {"beta": 0.4, **RATE}
PAPER: Mapping[str, Mapping[str, Any]] = {  # what is asked of each trainer: what its paper has
    "grpo": {"algorithm": "grpo", "epsilon_low": 0.02, "epsilon_high": 0.02, **KL, "scale": "group"},
    "rloo": {"kl_in_reward": 0.0, **RATE},
    "dpo": {"loss": "dpo", "beta": 0.5, **RATE},
    "orpo": {"beta": 0.5, **RATE},
    "cpo": {"beta": 0.5, **RATE},
    "simpo": {"beta": 2.5, "margin": 1.0, **RATE},
    "kto": {"beta": 0.5, "desirable_weight": 1.5, "undesirable_weight": 0.5, **RATE},
    "online_dpo": {"loss": "dpo", "beta": 0.5, **RATE},
    "sft": RATE,
}
CLIPPED = ("grpo",)
WITHOUT_PADDING = ("dpo", "online_dpo")  # as well as GRPO


def _case(
    trainer: str,
    name: str,
    settings: Mapping[str, Any],
    *,
    micro: int = ALL,
    clip: str = "",
    prompts: str = "several",
    lengths: str = "ragged",
    **more: Any,
) -> Case:
    one, equal = prompts == "one", lengths == "equal"
    make = partial(
        step_inputs.inputs,
        trainer=trainer,
        settings=settings,
        micro=ROWS if one else micro,
        updates=2,
        prompts=1 if one else None,
        equal_lengths=equal,
    )
    declared = {"prompts_per_step": "one"} if one else {"row_lengths": "equal"} if equal else {}
    if clip == "none":
        declared |= {"clip": "none"}
    conventions = {"trainer": trainer, "row_lengths": lengths}
    if trainer in CLIPPED:
        conventions["prompts_per_step"] = prompts
    if clip:
        conventions["clip"] = clip
    return Case(
        f"{trainer}-{name}",
        make,
        conventions=conventions,
        declared=declared,
        sample="training step",
        limit_s=120,
        **more,
    )


def _cases() -> Iterator[Case]:
    for trainer, paper in PAPER.items():
        clip = "widths" if trainer in CLIPPED else ""
        yield _case(trainer, "defaults", {})
        yield _case(trainer, "settings", paper, clip=clip, quick=trainer == "grpo")
        if trainer in CLIPPED:
            yield _case(trainer, "micro-batches", RATE, micro=4, proof=True)
            yield _case(trainer, "kl", KL, clip="none")
            yield _case(trainer, "one-prompt", {}, prompts="one")
            yield _case(trainer, "one-prompt-kl", KL, prompts="one", clip="none")
            yield _case(trainer, "equal-lengths", {}, lengths="equal")
            yield _case(trainer, "equal-lengths-kl", KL, lengths="equal", clip="none")
        if trainer in SCORED_PAIRS:  # a loop of its own in TRL
            yield _case(trainer, "micro-batches", RATE, micro=4)
        if trainer in WITHOUT_PADDING:
            yield _case(trainer, "equal-lengths", {}, lengths="equal")
            yield _case(trainer, "equal-lengths-settings", paper, lengths="equal")


CASES = tuple(_cases())
