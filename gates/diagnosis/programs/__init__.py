"""The forward definitions, one file for each family of ops."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from gates.diagnosis.program import Program


@cache
def programs() -> Mapping[str, Program]:
    """Return the definition of each op that can be diagnosed, by the op's name."""
    from gates.diagnosis.programs import (  # noqa: PLC0415  a check without a failure needs none of them
        draws,
        kl,
        logprobs,
        logprobs_gradient,
        ratio,
        sampling,
        statistics,
    )
    from gates.families.advantages import program as advantages  # noqa: PLC0415
    from gates.families.advantages import recurrence  # noqa: PLC0415
    from gates.families.loss import program as loss  # noqa: PLC0415
    from gates.families.preference import kto  # noqa: PLC0415
    from gates.families.preference import program as preference  # noqa: PLC0415

    found = (
        *advantages.PROGRAMS,
        *draws.PROGRAMS,
        *kl.PROGRAMS,
        *logprobs.PROGRAMS,
        *logprobs_gradient.PROGRAMS,
        *loss.PROGRAMS,
        *kto.PROGRAMS,
        *preference.PROGRAMS,
        *recurrence.PROGRAMS,
        *ratio.PROGRAMS,
        *sampling.PROGRAMS,
        *statistics.PROGRAMS,
    )
    return {program.op: program for program in found}
