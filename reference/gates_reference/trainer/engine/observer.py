"""What may watch the steps of a run without taking part in them."""

from collections.abc import Sequence
from typing import Any


class Observer:
    """Is told each stage of a step, in this order. What it is given must not be changed; a subclass keeps what it wants."""

    def rolled_out(self, chosen: Sequence[int], request: Any, made: Any) -> None:
        """See the `Generation` of the prompts at these places of the source; `request` is None where pairs came with the data."""

    def learns(self, model: Any, number: int, generation: Any, steps: Sequence[Any], advantages: Any) -> None:
        """See what step `number` learns from: its `Generation`, `Step`s and advantages (R,), before the first update."""

    def scored(self, inputs: Any, batch: Any, totals: Any) -> None:
        """See the `Inputs`, `MicroBatch` and `StepTotals` of a micro-batch as its loss read them, without a graph."""

    def updated(self, model: Any, update: Any, gradient: Any) -> None:
        """See an `Update`: its numbers, the sum of its micro-batches' gradients before the clip, the model after it."""

    def ended(self, number: int, learning_rate: float) -> None:
        """See the end of step `number`, which learned at this rate."""

    def evaluated(self, number: int) -> None:
        """See the end of the evaluation after step `number`."""
