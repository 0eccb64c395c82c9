"""Progress of a run as plain lines for logs: the first step, the last one, and one every ten seconds between them."""

import datetime as dt
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

    def line(self, step: int, numbers: Mapping[str, float], times: Mapping[str, float]) -> str | None:
        """Return the line of a completed step, counted from 1; None if the last line is less than ten seconds old."""
        now = self._clock()
        last = step == self._steps
        if self._said is not None and now - self._said < EVERY_SECONDS and not last:
            return None
        self._said = now
        took = now - self._started
        left = took / max(step - self._first, 1) * (self._steps - step)
        measure = "margin" if "margin_mean" in numbers else "reward"  # pairs in the data have no rewards
        parts = [
            f"loss {numbers.get('loss', float('nan')):.4g}",
            f"{measure} {numbers.get(f'{measure}_mean', float('nan')):.4g}",
            f"{times.get('tokens_per_second', float('nan')):.0f} tokens/s",
            f"took {_duration(took)}" if last else f"{_duration(left)} left",
        ]
        return f"step {step} of {self._steps}: {', '.join(parts)}"


def _duration(seconds: float) -> str:
    """Format seconds as hours, minutes and seconds: 0:01:05."""
    return str(dt.timedelta(seconds=round(seconds)))
