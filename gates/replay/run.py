"""A traced run with its model in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from gates.model import Array
from gates.replay import trace
from gates.replay.forward.errors import UnsupportedError
from gates.replay.forward.language_model import LanguageModel
from gates.replay.forward.model import load
from gates.replay.forward.scores import log_probs
from gates.replay.trace import Step, Trace, Update


@dataclass(frozen=True)
class Run:
    """What a run wrote, and the model that it began with.

    Attributes:
        trace: of the run.
        folder: of the model.
        base: the model without adapters.
        rows: of the data; None if they are not known.
        users: reward functions of the user by name, of a completion and its row of the data.
    """

    trace: Trace
    folder: Path
    base: LanguageModel
    rows: Sequence[Mapping[str, Any]] | None = None
    users: Mapping[str, Callable[[str, Mapping[str, Any]], float]] = field(default_factory=dict)

    @cached_property
    def tokenizer(self) -> Any:
        """The model's tokenizer."""
        from tokenizers import Tokenizer  # noqa: PLC0415  only the trainer's installation has it

        return Tokenizer.from_file(str(self.folder / "tokenizer.json"))

    @cached_property
    def end_ids(self) -> frozenset[int]:
        """The tokens that end a completion: those read from the model, and those of the configuration."""
        return frozenset((*self.trace.eos_ids, *self.trace.config["rollout"]["stop_ids"]))

    @property
    def dropout(self) -> bool:
        """Whether passes of updates have masks, which are drawn and stand in the trace."""
        return bool(self.trace.config["adapter"]["dropout"])

    def model(
        self,
        adapters: Mapping[str, Array],
        norms: Mapping[str, Array] | None = None,
        factors: Mapping[str, Array] | None = None,
    ) -> LanguageModel:
        """Return the model with these adapters; `norms` and `factors` as in `forward.Model.adapted`."""
        if not adapters:
            return self.base
        settings = self.trace.config["adapter"]
        kind, scale = settings["kind"], settings["scale"]
        return self.base.adapted(adapters, kind=kind, scale=scale, norms=norms, factors=factors)

    def update_scores(
        self, step: Step, update: Update, adapters: Mapping[str, Array], lengths: Array, width: int
    ) -> tuple[Array, Array]:
        """Return log-probs and entropies (B, T) of an update's rows by other adapters, with the norms and the masks of the update.

        Raises:
            UnsupportedError: the masks do not fit the forward pass.
        """
        if not self.dropout:
            return self.scores(self.model(adapters, update.before), step, update.rows, lengths, width)
        kept = 1.0 - self.trace.config["adapter"]["dropout"]
        ends = np.cumsum(update.facts["micro_batches"])
        scored = []
        for start, end, masks in zip([0, *ends[:-1]], ends, update.masks, strict=True):
            if not lengths[start:end].any():  # no forward pass, so no masks
                scored.append((np.zeros((end - start, width)),) * 2)
                continue
            factors = {name: mask / kept for name, mask in masks.items()}
            model = self.model(adapters, update.before, factors)
            scored.append(self.scores(model, step, update.rows[start:end], lengths[start:end], width))
        values, entropies = zip(*scored, strict=True)
        return np.concatenate(values), np.concatenate(entropies)

    def scores(self, model: LanguageModel, step: Step, rows: Array, lengths: Array, width: int) -> tuple[Array, Array]:
        """Return log-probs and entropies (B, T) in nats of the first tokens of a step's rows, 0 past `lengths` (B,)."""
        tokens = step.arrays["tokens"][rows]
        completions = [row[:length] for row, length in zip(tokens, lengths, strict=True)]
        ids = [step.ids[row] for row in rows]
        values, entropies = log_probs(model, ids, completions, self.trace.temperature)
        return _wide(values, width), _wide(entropies, width)

    def trained(self, step: Step) -> Array:
        """Return the number of tokens (R,) of each row that train."""
        if not self.trace.settings.get("mask_truncated_completions"):
            return step.lengths
        tokens = step.arrays["tokens"]
        ended = [row[n - 1] in self.end_ids for row, n in zip(tokens, step.lengths, strict=True)]
        return np.where(ended, step.lengths, 0)

    def scored(self, step: Step) -> Array:
        """Return the number of tokens (R,) of each row whose old and reference log-probs a step needs.

        A KL in the reward is that of the whole completion, also of one that does not train.
        """
        return step.lengths if self.kl_in_reward else self.trained(step)

    @property
    def kl_in_reward(self) -> bool:
        """Whether the KL lowers the reward."""
        return bool(self.trace.settings.get("kl_in_reward") and self.trace.settings.get("beta"))


def load_run(folder: Path, model: Path, otherwise: Callable[[Path], LanguageModel] | None = None) -> Run:
    """Read a run's trace from the run's folder, and the model that it trained, by `otherwise` if NumPy lacks its family.

    Raises:
        ConfigurationError: there is no trace, or a file is torn.
        UnsupportedError: the model's family has no forward pass here.
    """
    return Run(trace.load(folder), model, _model(model, otherwise))


def _model(folder: Path, otherwise: Callable[[Path], LanguageModel] | None) -> LanguageModel:
    try:
        return load(folder)
    except UnsupportedError as error:
        if otherwise is None:
            raise
        reason = str(error)
    try:
        return otherwise(folder)
    except UnsupportedError as error:
        raise UnsupportedError(f"{reason}; {error}") from None


def _wide(rows: Sequence[Array], width: int) -> Array:
    made = np.zeros((len(rows), width))
    for row, values in zip(made, rows, strict=True):
        row[: len(values)] = values[:width]
    return made
