"""Wall-clock time of the phases of a step."""

import contextlib
import time
from collections.abc import Iterator


class Clock:
    """Add up the wall-clock seconds of named phases."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Add the time inside the block to a phase."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[phase] = self._seconds.get(phase, 0.0) + time.perf_counter() - start

    def read(self) -> dict[str, float]:
        """Return the seconds of each phase since the last reading."""
        seconds, self._seconds = self._seconds, {}
        return seconds
