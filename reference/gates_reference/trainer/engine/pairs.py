"""Generations from pairs of completions in the data: the chosen one first, rewards 1 and 0, nothing is sampled."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gates_reference.trainer.algorithms import protocol
from gates_reference.trainer.data import pairs
from gates_reference.trainer.data.prompts import Prompt
from gates_reference.trainer.data.rows import DataError
from gates_reference.trainer.engine.rollout import Generation, Source
from gates_reference.trainer.rewards.samples import Sample


@dataclass(frozen=True, slots=True)
class PairSource(Source):
    """Prompts whose rows hold a chosen and a rejected completion, neither longer than `rollout.max_tokens`."""

    chosen_column: str = "chosen"
    rejected_column: str = "rejected"

    def once(self, model: Any, chosen: Sequence[int], round_: int) -> Generation:
        """Return the pairs of these prompts (positions in `prompts`); the sampler's log-probs are NaN.

        Raises:
            DataError: a completion is missing or is not text.
        """
        del model, round_
        self.paths.add("offline")
        prompts = [self.prompts[position] for position in chosen]
        texts = [self._text(p, column) for p in prompts for column in (self.chosen_column, self.rejected_column)]
        end = pairs.end_id(self.tokenizer, self.eos_ids)
        encoded = [pairs.encode(self.tokenizer, text, end) for text in texts]
        lengths = np.array([len(ids) for ids in encoded], np.int64)
        tokens = np.full((len(texts), self.rollout.max_tokens), -1, np.int32)
        for row, ids in enumerate(encoded):
            tokens[row, : len(ids)] = ids
        unknown = np.full(tokens.shape, np.nan)
        samples = [
            Sample(prompt.text, text, int(lengths[row]), prompt.answer, row // 2, prompt.row)
            for row, (prompt, text) in enumerate(zip([p for p in prompts for _ in range(2)], texts, strict=True))
        ]
        made = Generation(
            prompts=prompts,
            samples=samples,
            rewards=protocol.Rewards(np.tile([[1.0], [0.0]], (len(prompts), 1)), np.ones(1), 2, lengths),
            tokens=tokens,
            lengths=lengths,
            ended=np.ones(len(texts), np.bool_),
            model=unknown,
            temperature_scaled=unknown,
            behaviour=unknown,
            taken=len(prompts),
        )
        if self.observer:
            self.observer.rolled_out(chosen, None, made)
        return made

    def _text(self, prompt: Prompt, column: str) -> str:
        text = prompt.row.get(column)
        if not isinstance(text, str):
            raise DataError(
                f"row {prompt.index}: {column!r} must be the text of a completion, found {type(text).__name__}"
            )
        return text
