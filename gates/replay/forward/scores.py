"""Log-probs and entropies of completions under a model."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from gates.replay.forward.arrays import Array, Ids
from gates.replay.forward.language_model import LanguageModel

ELEMENTS: Final = 1 << 22
"""The most logits that are held at a time: 32 MiB."""


def log_probs(
    model: LanguageModel, prompts: Sequence[npt.ArrayLike], completions: Sequence[npt.ArrayLike], temperature: float
) -> tuple[list[Array], list[Array]]:
    """Return log-probs and entropies in nats of each token of each completion, two lists of arrays (n,).

    The distribution of a token is softmax(logits / temperature) at the position before it.

    Raises:
        ValueError: a prompt is empty, the lists differ in length, or the temperature is not positive.
    """
    if len(prompts) != len(completions) or not temperature > 0:
        raise ValueError(
            f"expected as many prompts as completions and a temperature above 0, "
            f"found {len(prompts)}, {len(completions)} and {temperature}"
        )
    firsts = [_row(prompt) for prompt in prompts]
    lasts = [_row(completion) for completion in completions]
    if not all(len(first) for first in firsts):
        raise ValueError("a prompt is empty, so the first token of its completion has no position before it")
    if not any(len(last) for last in lasts):
        return [np.empty(0) for _ in lasts], [np.empty(0) for _ in lasts]
    hidden = model.hidden(_padded(firsts, lasts))
    rows = np.repeat(np.arange(len(lasts)), [len(last) for last in lasts])
    sources = np.concatenate([np.arange(len(last)) + len(first) - 1 for first, last in zip(firsts, lasts, strict=True)])
    values, entropies = _scored(model, hidden[rows, sources], np.concatenate(lasts), temperature)
    ends = np.cumsum([len(last) for last in lasts])[:-1]
    return np.split(values, ends), np.split(entropies, ends)


def _row(ids: npt.ArrayLike) -> Ids:
    return np.asarray(ids, np.int64).reshape(-1)


def _padded(firsts: Sequence[Ids], lasts: Sequence[Ids]) -> Ids:
    """Return rows of prompt and completion, right-padded with id 0."""
    joined = [np.concatenate(pair) for pair in zip(firsts, lasts, strict=True)]
    ids = np.zeros((len(joined), max(map(len, joined))), np.int64)
    for row, tokens in zip(ids, joined, strict=True):
        row[: len(tokens)] = tokens
    return ids


def _scored(model: LanguageModel, hidden: Array, targets: Ids, temperature: float) -> tuple[Array, Array]:
    """Return log-probs and entropies (N,) of targets (N,) at hidden states (N, width), a piece of the logits at a time."""
    step = max(1, ELEMENTS // model.vocabulary)
    pieces = [
        _of_logits(model.head(hidden[start : start + step]) / temperature, targets[start : start + step])
        for start in range(0, len(targets), step)
    ]
    values, entropies = zip(*pieces, strict=True)
    return np.concatenate(values), np.concatenate(entropies)


def _of_logits(logits: Array, targets: Ids) -> tuple[Array, Array]:
    """Return x_id − logsumexp(x) and −Σ p log p of logits x (N, V)."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    powers = np.exp(shifted)
    total = powers.sum(axis=-1)
    logs = np.log(total)
    values = shifted[np.arange(len(targets)), targets] - logs
    return values, logs - np.einsum("nv,nv->n", powers, shifted) / total
