"""Make the record of a target on a workload from its passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benches.trainers import estimates, models, targets, workloads
from benches.trainers.estimates import Pass
from benches.trainers.targets import REFERENCE, Target
from benches.trainers.workloads import Shape, Workload
from gates.results.speed_records import Interval, Outcome, TrainerRecord

Rounds = Mapping[int, Pass]
"""The passes of a target by the number of their round."""


@dataclass(slots=True)
class Measured:
    """The passes of one workload by target and round, and the reasons of failed targets.

    The reference runs twice a round, as `reference` and as `again`.
    """

    passes: dict[str, dict[int, Pass]] = field(default_factory=dict)
    again: dict[int, Pass] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def without_times(target: Target, shape: Shape, workload: Workload, outcome: Outcome, reason: str) -> TrainerRecord:
    """Return the record of a target without times, with the reason."""
    return TrainerRecord(outcome=outcome, reason=reason, **_common(target, shape, workload))


def _common(target: Target, shape: Shape, workload: Workload) -> dict[str, Any]:
    comparison, grade = targets.judged(target.name)
    return {
        "target": target.name,
        "workload": workload.name,
        "model": workloads.model_name(shape, workload),
        "entry": target.entry,
        "note": target.note,
        "comparison": comparison,
        "conformance": grade,
        "versions": targets.versions(target),
    }


def record(
    target: Target, shape: Shape, workload: Workload, measured: Measured, peak: float, more: Mapping[str, Any]
) -> TrainerRecord:
    """Return the record of a timed target.

    Args:
        target: the timed one.
        shape: of the model.
        workload: with its lengths on the shape.
        measured: of all targets on this workload.
        peak: floating-point operations per second of a matrix product on this machine.
        more: settings common to every process.
    """
    rounds = measured.passes.get(target.name, {})
    series = (
        [list(rounds.values()), list(measured.again.values())] if target.name == REFERENCE else [list(rounds.values())]
    )
    series = [runs for runs in series if runs]
    passes = [run for runs in series for run in runs]
    if target.name in measured.failed:
        return without_times(target, shape, workload, "error", measured.failed[target.name])
    if not passes:
        return without_times(target, shape, workload, "error", "no pass was completed")
    settings = {**passes[-1].settings, **more}
    common = {**_common(target, shape, workload), "settings": settings, "passes": len(passes)}
    if reason := estimates.refused(shape, workload, passes, peak):
        return TrainerRecord(outcome="rejected", reason=reason, **common)
    return TrainerRecord(
        outcome="timed",
        **common,
        **_numbers(target, workload, series),
        ratio=None if target.name == REFERENCE else _over_reference(target, rounds, measured),
        control=_control(measured, generation=target.generates),
    )


def _numbers(target: Target, workload: Workload, series: Sequence[Sequence[Pass]]) -> dict[str, Any]:
    passes = [run for runs in series for run in runs]
    steps = [step for run in passes for step in run.steps]
    peaks = [run.peak_bytes for run in passes if run.peak_bytes is not None]
    trains = not target.generates

    def estimated(statistic: Any) -> Interval:
        return _interval(estimates.interval(series, statistic))

    return {
        "steps": len(steps),
        "warmup_s": float(np.mean([run.warmup_s for run in passes])),
        "rollout_tokens_per_s": estimated(estimates.tokens_per_second),
        "gradient_s": estimated(estimates.rest_seconds) if trains else None,
        "step_s": estimated(estimates.step_seconds) if trains else None,
        "samples_per_s": estimated(estimates.per_second(workload.rows, generation=target.generates)),
        "iterations_per_s": estimated(estimates.per_second(1, generation=False)) if trains else None,
        "peak_memory_bytes": max(peaks) if peaks else None,
        "peak_rss_bytes": max((run.resident_bytes or 0 for run in passes), default=0) or None,
        "prompt_tokens": workload.prompt_tokens,
        "generated_tokens": round(float(np.mean([step.tokens for step in steps]))),
        "forward_tokens": round(float(np.mean([step.forward_tokens for step in steps]))),
    }


def _over_reference(target: Target, rounds: Rounds, measured: Measured) -> Interval | None:
    """Return its seconds divided by the reference's, whose two passes of a round are averaged."""
    first, second = measured.passes.get(REFERENCE, {}), measured.again
    shared = _shared(rounds, first, second)
    if not shared:
        return None
    under = [[first[n] for n in shared], [second[n] for n in shared]]
    return _interval(estimates.ratio([rounds[n] for n in shared], under, generation=target.generates))


def _control(measured: Measured, *, generation: bool) -> Interval | None:
    """Return the ratio of the reference to itself, round by round."""
    first, second = measured.passes.get(REFERENCE, {}), measured.again
    shared = _shared(first, second)
    if not shared:
        return None
    under = [[second[n] for n in shared]]
    return _interval(estimates.ratio([first[n] for n in shared], under, generation=generation))


def _shared(*every: Rounds) -> list[int]:
    """Return the rounds in which all have timed steps."""
    return [n for n in every[0] if all(n in rounds and rounds[n].steps for rounds in every)]


def _interval(estimate: tuple[float, float, float]) -> Interval:
    value, low, high = estimate
    return Interval(value=value, low=low, high=high)


def job(shape: Shape, workload: Workload, steps: int, warmup: int, threads: int) -> dict[str, Any]:
    """Return the job of a target's process."""
    folder = models.build(shape, workload)
    return {
        "folder": str(folder),
        "root": str(targets.ROOT),
        "prompts": models.prompts(folder, workload),
        "prompts_per_step": len(workload.prompts),
        "samples": workload.samples,
        "tokens": workload.tokens,
        "rewards": [float(i % workload.samples % 2) for i in range(workload.rows)],
        "steps": warmup + steps,
        "warmup": warmup,
        "layers": shape.layers,
        "dtype": shape.dtype,
        "threads": threads,
        **workloads.SETTINGS,
    }
