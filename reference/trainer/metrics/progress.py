"""How far a run is, in plain lines, for logs: the first step, the last one, and one now and then between them."""

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Final

EVERY_SECONDS: Final = 10.0
"""Between two lines; the first and the last step have theirs whenever they are done."""


class Progress:
    """Says which steps have a line, by a clock in seconds, and what stands in it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._first = self._steps = 0
        self._started = 0.0
        self._said: float | None = None

    def start(self, step: int, steps: int) -> None:
        """The run starts, or goes on, at `step` of `steps`."""
        self._first, self._steps = step, steps
        self._started, self._said = self._clock(), None

    def line(self, step: int, numbers: Mapping[str, float], times: Mapping[str, float]) -> str | None:
        """The line of a step that is done, counted from 1; None where there was one within the last ten seconds."""
        now = self._clock()
        last = step == self._steps
        if self._said is not None and now - self._said < EVERY_SECONDS and not last:
            return None
        self._said = now
        took = now - self._started
        left = took / max(step - self._first, 1) * (self._steps - step)
        gain = "margin" if "margin_mean" in numbers else "reward"  # pairs of the data have no rewards
        parts = [
            f"loss {numbers.get('loss', float('nan')):.4g}",
            f"{gain} {numbers.get(f'{gain}_mean', float('nan')):.4g}",
            f"{times.get('tokens_per_second', float('nan')):.0f} tokens/s",
            f"took {_duration(took)}" if last else f"{_duration(left)} left",
        ]
        return f"step {step} of {self._steps}: {', '.join(parts)}"


def _duration(seconds: float) -> str:
    """Hours, minutes and seconds, as 0:01:05."""
    return str(dt.timedelta(seconds=round(seconds)))
