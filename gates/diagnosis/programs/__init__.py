"""The forward definitions, one file for each family of ops."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from gates.diagnosis.program import Program


@cache
def programs() -> Mapping[str, Program]:
    """Return the definition of each op that can be diagnosed, by the op's name."""
    from gates.diagnosis.programs import (  # noqa: PLC0415  a check without a failure needs none of them
        advantages,
        gae,
        kto,
        loss,
        preference,
        several,
    )
    from gates.families.kl import program as kl  # noqa: PLC0415
    from gates.families.logprobs import gradient as logprobs_gradient  # noqa: PLC0415
    from gates.families.logprobs import program as logprobs  # noqa: PLC0415
    from gates.families.ratio import program as ratio  # noqa: PLC0415
    from gates.families.ratio import statistics  # noqa: PLC0415
    from gates.families.sampling import draws  # noqa: PLC0415
    from gates.families.sampling import program as sampling  # noqa: PLC0415

    found = (
        *advantages.PROGRAMS,
        *draws.PROGRAMS,
        *gae.PROGRAMS,
        *kl.PROGRAMS,
        *kto.PROGRAMS,
        *logprobs.PROGRAMS,
        *logprobs_gradient.PROGRAMS,
        *loss.PROGRAMS,
        *preference.PROGRAMS,
        *ratio.PROGRAMS,
        *sampling.PROGRAMS,
        *several.PROGRAMS,
        *statistics.PROGRAMS,
    )
    return {program.op: program for program in found}
