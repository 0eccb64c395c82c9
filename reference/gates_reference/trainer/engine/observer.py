"""What may watch the steps of a run without taking part in them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from gates_reference.trainer.algorithms import protocol
    from gates_reference.trainer.engine.micro_batches import Inputs, Step
    from gates_reference.trainer.engine.rollout import Generation
    from gates_reference.trainer.engine.step import Update
    from gates_reference.trainer.rollout.table import Request


class Observer:
    """Is told each stage of a step, in this order; this one looks away. What it is given must not be changed."""

    def rolled_out(self, chosen: Sequence[int], request: "Request | None", made: "Generation") -> None:
        """See a rollout of the prompts at these places of the source; `request` is None where pairs came with the data."""

    def learns(
        self,
        model: Any,
        number: int,
        generation: "Generation",
        steps: "Sequence[Step]",
        advantages: NDArray[np.float32],
    ) -> None:
        """See what step `number` learns from, before its first update."""

    def scored(self, inputs: "Inputs", batch: "protocol.MicroBatch", totals: "protocol.StepTotals") -> None:
        """See a micro-batch as its loss read it, without a graph."""

    def updated(self, model: Any, update: "Update", gradient: Any) -> None:
        """See an optimizer step: its numbers, the sum of its micro-batches' gradients before the clip, the model after it."""

    def ended(self, number: int, learning_rate: float) -> None:
        """See the end of step `number`, which learned at this rate."""

    def evaluated(self, number: int) -> None:
        """See the end of the evaluation after step `number`."""
