"""What replaying measures: for each quantity its worst number, and where that is."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gates.model import Array


@dataclass
class Measures:
    """The worst number of each quantity so far, and its location; `left_out` says what could not be recomputed, and why."""

    worst: dict[str, tuple[float, str]] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def leave_out(self, reason: str) -> None:
        """Say once that something could not be recomputed."""
        if reason not in self.left_out:
            self.left_out.append(reason)

    def add(self, quantity: str, value: float, where: str = "") -> None:
        """Keep a number if it is the largest of its quantity; NaN is larger than all."""
        value = float("inf") if np.isnan(value) else float(value)
        if quantity not in self.worst or value > self.worst[quantity][0]:
            self.worst[quantity] = (value, where if value else "")

    def count(self, quantity: str, wrong: Array | int, where: str = "") -> None:
        """Add to the number of things that are wrong; the first one's location stays."""
        number, first = self.worst.get(quantity, (0.0, ""))
        more = int(np.sum(wrong))
        self.worst[quantity] = (number + more, first or (where if more else ""))

    def distance(self, quantity: str, got: Array, want: Array, where: str = "", *, scale: Array | float = 1.0) -> None:
        """Keep the largest |got - want| / scale; numbers that are not finite must be equal."""
        a, b = np.asarray(got, np.float64), np.asarray(want, np.float64)
        if a.shape != b.shape:
            self.add(quantity, float("inf"), f"{where}: shape {list(a.shape)}, must be {list(b.shape)}")
            return
        with np.errstate(invalid="ignore"):
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            off = np.where(same, 0.0, np.where(np.isfinite(a) & np.isfinite(b), np.abs(a - b) / scale, np.inf))
        if not off.size:
            self.add(quantity, 0.0)
            return
        at = np.unravel_index(int(off.argmax()), off.shape)
        index = f" at {[int(i) for i in at]}" if off.ndim else ""
        self.add(quantity, float(off[at]), f"{where}{index}: got {a[at]:.8g}, want {b[at]:.8g}")
