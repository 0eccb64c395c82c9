"""Is a NaN reward left out as unscored? A rule of Gates, asked of subjects that declare it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from gates.families.advantages.gates.definition import scale_of
from gates.families.advantages.gates.inputs import BOUNDS, PRESETS, least_spread, rewards
from gates.families.advantages.op import GROUP_ADVANTAGES, NAN_UNSCORED
from gates.model import Case, Draw, Evidence, Probe, Trial
from gates.registry import gate

CASES = (("trl", "float32"), ("mlxrl", "float32"), ("trl", "float64"))


def _make(rng: np.random.Generator, preset: str, dtype: str) -> dict[str, Any]:
    grouped = rewards(rng, groups=8, size=6, dtype=dtype).reshape(-1, 6)
    grouped[0, 2] = np.nan
    grouped[1, [0, 4]] = np.nan
    grouped[2, 1:] = np.nan  # one scored member, whose advantage is 0
    return {"rewards": grouped.reshape(-1), "group_size": 6, **PRESETS[preset]}


def _preconditions(t: Draw) -> Iterator[Evidence]:
    scores = t.inputs["rewards"]
    yield t.precondition("unscored rewards", int(np.isnan(scores).sum()), ">=", 3)
    least = least_spread(scores, t.inputs["group_size"])
    yield t.precondition("least deviation of a group over its largest |reward|", least, ">=", 0.1)


@gate(
    "advantages.unscored-rewards",
    name="group_advantages[unscored]",
    level="rule",
    question="Is a NaN reward left out as unscored, without touching the other members of its group?",
    why="One reward function that could not score must not turn a whole group into NaN or shift its mean.",
    ops=(GROUP_ADVANTAGES,),
    cases=tuple(
        Case(
            f"{preset}-ordinary-{dtype}",
            partial(_make, preset=preset, dtype=dtype),
            quick=(preset, dtype) == CASES[0],
            conventions={**PRESETS[preset], "dtype": dtype},
            declared=NAN_UNSCORED,
        )
        for preset, dtype in CASES
    ),
    bounds=BOUNDS,
    requires=_preconditions,
    probes=(Probe("group_advantages", ("advantages",)),),
)
def unscored_rewards(t: Trial) -> Iterator[Evidence]:
    """Compare groups with unscored members with the definition; one group has a single scored member."""
    got = t.got(GROUP_ADVANTAGES, **t.inputs)["advantages"]
    want = t.want(GROUP_ADVANTAGES, **t.inputs)
    limits = t.textbook(GROUP_ADVANTAGES, **t.inputs)["advantages"]
    yield from t.agrees(
        f"advantage error in 2u·S ({t.inputs['rewards'].dtype})", got, want, limits, scale=scale_of(t.inputs)
    )
