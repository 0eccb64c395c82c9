"""What a recorded loss holds beside the policy loss: an entropy bonus, and auxiliary losses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gates.families.loss.program import row_of
from gates.model import Array
from gates.recorded.finding import Total, bounded
from gates.recorded.settings import Settings
from gates.recorded.step import Piece, Step
from gates_reference.oracle.aggregation import row_weights

CONSTANTS = ("max_length", "micro_batches", "dapo_denominator", "group_size", "tokens_in_step", "count_eps")


@dataclass(slots=True)
class Extras:
    """The running sum of what a loss holds beside the policy loss; neither part depends on `policy`."""

    step: Step
    settings: Settings
    entropy: Total = field(init=False)

    def __post_init__(self) -> None:
        self.entropy = Total({"F32": "float32", "F64": "float64"}[self.step.file.dtypes["policy"]])

    def add(self, piece: Piece, inputs: Mapping[str, Any], factor: float) -> None:
        """Add the entropies of some rows; `factor` is their share in the step's loss."""
        if not self.settings.get("entropy_bonus"):
            return
        like_loss = self.settings.get("entropy_mean") == "loss"
        weights = factor * _weights(piece, inputs) if like_loss else np.ones((len(piece.mask), 1)) / self.step.tokens
        terms = np.where(piece.mask, self.step.slots("entropy", piece), 0.0) * weights
        wide = bounded(terms, 4.0 * np.finfo(self.entropy.dtype).eps * np.abs(terms), self.entropy.dtype).sum()
        self.entropy.add(float(wide.value), float(wide.limit()), int(piece.mask.sum()))

    def total(self) -> tuple[float, float]:
        """Return the sum and its limit, the rounding of the last additions included."""
        bonus = float(self.settings.get("entropy_bonus") or 0.0)
        auxiliary = self.step.file.number("auxiliary_loss") if "auxiliary_loss" in self.step.file else 0.0
        eps = float(np.finfo(self.entropy.dtype).eps)
        size = abs(bonus * self.entropy.value) + abs(auxiliary)
        return auxiliary - bonus * self.entropy.value, abs(bonus) * self.entropy.limit + 4.0 * eps * size


def _weights(piece: Piece, inputs: Mapping[str, Any]) -> Array:
    constants: dict[str, Any] = {name: inputs.get(name) for name in CONSTANTS}
    return row_weights(piece.mask, aggregation=row_of(inputs).aggregation, **constants)[:, None]
