"""Estimates with intervals from the steps of several passes, and rejection of impossible measurements."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from benches import timing
from benches.trainers.workloads import Shape, Workload

#: Peaks are those of a matrix product; no training step exceeds twice that rate.
GENEROUS: Final = 2.0
#: Tolerance of the mean length: the sampler's filter removes up to 5% of the other tokens, and the end token's logit varies.
TOLERANCE: Final = 0.15
DEVIATIONS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Step:
    """One timed step: seconds, tokens of each completion, and tokens of forward passes outside generation."""

    rollout_s: float
    step_s: float
    lengths: tuple[int, ...]
    forward_tokens: int = 0

    @property
    def tokens(self) -> int:
        """Completion tokens, including end tokens but not padding."""
        return sum(self.lengths)

    @property
    def rest_s(self) -> float:
        """Seconds outside generation: reward, scoring, loss, gradient, optimizer."""
        return self.step_s - self.rollout_s


@dataclass(slots=True)
class Pass:
    """The measurements of one process."""

    steps: list[Step] = field(default_factory=list)
    warmup_s: float = 0.0
    settings: dict[str, Any] = field(default_factory=dict)
    peak_bytes: int | None = None
    resident_bytes: int | None = None

    def take(self, message: dict[str, Any]) -> None:
        """Add a message of the process; a cold step counts as warm-up."""
        if message["event"] == "settings":
            self.settings.update(message["settings"])
            return
        if message["event"] == "libraries":
            self.settings["blas_loaded"] = message["blas"]
            return
        self.resident_bytes = max(self.resident_bytes or 0, message["resident_bytes"])
        if message["cold"]:
            self.warmup_s += message["step_s"]
            return
        if message["peak_bytes"] is not None:
            self.peak_bytes = max(self.peak_bytes or 0, message["peak_bytes"])
        lengths = tuple(message["lengths"])
        self.steps.append(Step(message["rollout_s"], message["step_s"], lengths, message["forward_tokens"]))


def _aligned(passes: Sequence[Pass]) -> bool:
    """Return whether each step has the same completion lengths in every pass."""
    kinds = {tuple(step.lengths for step in run.steps) for run in passes}
    return len(kinds) == 1


def sums(passes: Sequence[Pass], chosen: np.ndarray) -> np.ndarray:
    """Return sums over steps (B, 4), of rollout seconds, other seconds, completion tokens and 1, for each choice of passes.

    Contention only adds to a time. So if each step does the same work in every pass, its time is the 10% quantile over the
    passes; if lengths differ, all steps of all passes count.

    Args:
        passes: each with at least one step.
        chosen: (B, P) indices of passes.
    """
    rows = [np.array([[s.rollout_s, s.rest_s, s.tokens, 1.0] for s in run.steps]) for run in passes]
    if _aligned(passes):
        return np.asarray(np.quantile(np.stack(rows)[chosen], timing.LOW, axis=1).sum(axis=1))
    return np.asarray(np.stack([run.sum(axis=0) for run in rows])[chosen].sum(axis=1))


def resampled(count: int) -> np.ndarray:
    """Return resamples of `count` passes for a bootstrap, (B, count); the first row is the passes themselves."""
    drawn = np.random.default_rng(0).integers(count, size=(timing.RESAMPLES, count))
    return np.concatenate([np.arange(count)[None], drawn])


def bounds(values: np.ndarray, count: int) -> tuple[float, float, float]:
    """Return the first of bootstrapped values with the 95% interval of the others, which needs several passes."""
    if count < 2:
        return float(values[0]), 0.0, math.inf
    low, high = np.quantile(values[1:], [0.025, 0.975])
    return float(values[0]), float(low), float(high)


Statistic = Callable[[np.ndarray], np.ndarray]
"""Takes sums (..., 4) as `sums` returns them and gives a number for each."""


def interval(series: Sequence[Sequence[Pass]], statistic: Statistic) -> tuple[float, float, float]:
    """Return a statistic with its 95% interval by a bootstrap over passes.

    Args:
        series: the passes of a target; the reference has two series, which are averaged, so that every 10% quantile is of
            equally many passes.
        statistic: of the sums over steps.
    """
    count = min(map(len, series))
    chosen = resampled(count)
    return bounds(np.mean([statistic(sums(passes[:count], chosen)) for passes in series], axis=0), count)


def ratio(over: Sequence[Pass], under: Sequence[Sequence[Pass]], *, generation: bool) -> tuple[float, float, float]:
    """Return the time per completion token divided by that of others in the same rounds, with its interval.

    Per token, since targets draw different lengths if rows end early; otherwise it is the ratio of step times.

    Args:
        over: passes of one target, one for each round.
        under: series of passes in the same rounds; their times are averaged.
        generation: compare the time of generation instead of whole steps.
    """
    chosen = resampled(len(over))

    def statistic(totals: np.ndarray) -> np.ndarray:
        return np.asarray((totals[..., 0] + (0.0 if generation else totals[..., 1])) / totals[..., 2])

    below = np.mean([statistic(sums(passes, chosen)) for passes in under], axis=0)
    return bounds(statistic(sums(over, chosen)) / below, len(over))


def tokens_per_second(totals: np.ndarray) -> np.ndarray:
    """Return completion tokens over seconds of generation."""
    return np.asarray(totals[..., 2] / totals[..., 0])


def rollout_seconds(totals: np.ndarray) -> np.ndarray:
    """Return the mean seconds of a step's generation."""
    return np.asarray(totals[..., 0] / totals[..., 3])


def rest_seconds(totals: np.ndarray) -> np.ndarray:
    """Return the mean seconds of a step without generation."""
    return np.asarray(totals[..., 1] / totals[..., 3])


def step_seconds(totals: np.ndarray) -> np.ndarray:
    """Return the mean seconds of a step."""
    return rollout_seconds(totals) + rest_seconds(totals)


def per_second(rows: int, *, generation: bool) -> Statistic:
    """Return the statistic `rows` divided by the seconds of a step, or of its generation."""
    seconds = rollout_seconds if generation else step_seconds
    return lambda totals: np.asarray(rows / seconds(totals))


def refused(shape: Shape, workload: Workload, passes: Sequence[Pass], peak: float) -> str:
    """Return why a measurement is impossible, or "".

    Args:
        shape: of the model.
        workload: with its lengths on the shape.
        passes: the measured passes.
        peak: floating-point operations per second of a matrix product on this machine.
    """
    if not any(run.steps for run in passes) or not all(run.steps for run in passes):
        return "a pass has no timed step"
    steps = [step for run in passes for step in run.steps]
    return _lengths(workload, steps) or next((r for s in steps if (r := _too_fast(shape, s, peak))), "")


def _lengths(workload: Workload, steps: Sequence[Step]) -> str:
    for step in steps:
        if len(step.lengths) != workload.rows:
            return f"a step returned {len(step.lengths)} completions, must be {workload.rows}"
        if min(step.lengths) < 1 or max(step.lengths) > workload.tokens:
            return f"completions have {min(step.lengths)} to {max(step.lengths)} tokens, must be 1 to {workload.tokens}"
    lengths = np.array([n for step in steps for n in step.lengths], float)
    mean = workload.mean_length()
    if workload.ending == "none":
        short = int((lengths < workload.tokens).sum())
        return f"{short} of {len(lengths)} completions end early, none may" if short else ""
    allowed = TOLERANCE * mean + DEVIATIONS * mean / math.sqrt(len(lengths))
    if abs(lengths.mean() - mean) > allowed:
        return f"completions have {lengths.mean():.1f} tokens on average, must be {mean:.1f} ± {allowed:.1f}"
    return ""


def floors(shape: Shape, step: Step, peak: float) -> tuple[float, float]:
    """Return the least seconds of generation and of the rest of a step: two operations for each weight and token.

    Scoring need not run the head at every position, so the head does not count there.
    """
    rate = GENEROUS * peak
    blocks = shape.products() - shape.vocab * shape.hidden
    return 2.0 * shape.products() * step.tokens / rate, 2.0 * blocks * step.forward_tokens / rate


def _too_fast(shape: Shape, step: Step, peak: float) -> str:
    took_each = (step.rollout_s, step.rest_s)
    for part, took, floor in zip(("generation", "the rest"), took_each, floors(shape, step, peak), strict=True):
        if took < floor:
            return f"{part} of a step took {took:.3g} s, must take {floor:.3g} s at twice this machine's {peak / 1e9:.3g} GFLOP/s"
    return ""
