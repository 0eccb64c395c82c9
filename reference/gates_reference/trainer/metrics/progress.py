"""Progress of a run or a warm-up as plain lines for logs: the first step, the last one, and one every ten seconds between them."""

import contextlib
import datetime as dt
import sys
import time
from collections.abc import Callable, Mapping
from typing import Final

EVERY_SECONDS: Final = 10.0
"""The shortest time between two lines; the first and the last step always have a line."""


class Progress:
    """Decide by a clock in seconds which steps get a line, and write the lines."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._first = self._steps = 0
        self._started = 0.0
        self._said: float | None = None

    def start(self, step: int, steps: int) -> None:
        """Note that the run starts or resumes at `step` of `steps`."""
        self._first, self._steps = step, steps
        self._started, self._said = self._clock(), None

    def line(self, step: int, parts: list[str]) -> str | None:
        """Return the line of a completed step, counted from 1; None if the last line is less than ten seconds old."""
        now = self._clock()
        last = step == self._steps
        if self._said is not None and now - self._said < EVERY_SECONDS and not last:
            return None
        self._said = now
        took = now - self._started
        left = took / max(step - self._first, 1) * (self._steps - step)
        clock = f"took {_duration(took)}" if last else f"{_duration(left)} left"
        return f"step {step} of {self._steps}: {', '.join([*parts, clock])}"


def measures(numbers: Mapping[str, float], times: Mapping[str, float]) -> list[str]:
    """Return what a line says of a training step: the reward and how many groups have a signal, or margin and loss of pairs.

    A policy-gradient loss is left out: it is 0 by design while every ratio is 1.
    """
    nan = float("nan")
    speed = f"{times.get('tokens_per_second', nan):.0f} tokens/s"
    if "margin_mean" in numbers:  # pairs in the data have no rewards
        return [f"margin {numbers['margin_mean']:.4g}", f"loss {numbers.get('loss', nan):.4g}", speed]
    signal = [f"signal in {numbers['signal_share']:.0%} of groups"] if "signal_share" in numbers else []
    return [f"reward {numbers.get('reward_mean', nan):.4g}", *signal, speed]


def say(line: str) -> None:
    """Print a line on stderr; a closed log must not stop a run."""
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr, flush=True)  # noqa: T201  the console's output


class WarmUp:
    """Say what the supervised warm-up of a tiny model is for, and how far it is."""

    def __init__(self, steps: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._steps = steps
        self._lines = Progress(clock)
        self._lines.start(0, steps)

    def __call__(self, step: int, loss: float) -> None:
        """Note that a step, counted from 1, is done."""
        if step == 1:
            say(
                f"model.warmup: {self._steps} supervised steps come first, because a model with random weights earns no reward to "
                "learn from; the warmed-up model is cached, so that later runs start at once"
            )
        line = self._lines.line(step, [f"loss {loss:.4g}"])
        if line is not None:
            say(f"warm-up {line}")


def _duration(seconds: float) -> str:
    """Format seconds as hours, minutes and seconds: 0:01:05."""
    return str(dt.timedelta(seconds=round(seconds)))
