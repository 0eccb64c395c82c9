"""What a replay asks of a model."""

from collections.abc import Mapping
from typing import Protocol

import numpy.typing as npt

from gates.replay.forward.arrays import Array


class LanguageModel(Protocol):
    """A causal language model in float64: row b, position t of its logits depends on ids[b, : t + 1] only."""

    @property
    def computed_by(self) -> str:
        """The program that computes the logits."""

    @property
    def vocabulary(self) -> int:
        """The number of tokens."""

    @property
    def linear_layers(self) -> list[str]:
        """The paths of layers that multiply by a matrix or a stack of matrices, embeddings included."""

    def adapted(
        self,
        arrays: Mapping[str, Array],
        *,
        kind: str,
        scale: float,
        norms: Mapping[str, Array] | None = None,
        factors: Mapping[str, Array] | None = None,
    ) -> "LanguageModel":
        """Return the model with low-rank adapters, by the names and shapes of mlx-lm's adapters.safetensors (`forward.Model.adapted`)."""

    def hidden(self, ids: npt.ArrayLike) -> Array:
        """Return states (B, L, width) of ids (B, L), of which `head` makes logits."""

    def head(self, hidden: Array) -> Array:
        """Return the logits (…, V) of states (…, width)."""

    def close(self) -> None:
        """Release what the model holds."""
