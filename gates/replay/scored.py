"""The model of a run with its adapters, in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gates.model import Array
from gates.replay.forward.model import Model
from gates.replay.forward.scores import log_probs


@dataclass(frozen=True)
class Scorer:
    """Scores completions with adapters of a run."""

    base: Model
    adapter: Mapping[str, Any]

    def model(self, adapters: Mapping[str, Array], norms: Mapping[str, Array] | None = None) -> Model:
        """Return the model with these adapters; `norms` as in `Model.adapted`."""
        if not adapters:
            return self.base
        return self.base.adapted(adapters, kind=self.adapter["kind"], scale=self.adapter["scale"], norms=norms)

    def scores(
        self, model: Model, ids: Sequence[Array], tokens: Array, lengths: Array, temperature: float
    ) -> tuple[Array, Array]:
        """Return log-probs and entropies (B, T) in nats of completions (B, T) after their prompts, 0 past the end."""
        completions = [row[:length] for row, length in zip(tokens, lengths, strict=True)]
        values, entropies = log_probs(model, ids, completions, temperature)
        return _wide(values, tokens.shape), _wide(entropies, tokens.shape)


def _wide(rows: Sequence[Array], shape: tuple[int, ...]) -> Array:
    made = np.zeros(shape)
    for row, values in zip(made, rows, strict=True):
        row[: len(values)] = values
    return made
