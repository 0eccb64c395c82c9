"""Try whether a model decodes a ragged batch as it decodes each of its rows alone.

mlx-lm's batches give each row a mask of its own. A model whose attention takes one mask for all rows fails with it, or, where the
number of rows happens to equal a number of heads, applies one row's mask to another (gemma2 of mlx-lm 0.32.2).
"""

import weakref
from typing import Any, Final

import mlx.core as mx
import numpy as np

from gates_reference.trainer.rollout import caches

LENGTHS: Final = (1, 2, 3, 5, 8)
STEPS: Final = 2
LIMIT: Final = 0.1
"""Of the range of a row's logits: another row's mask moves those of the tiny gemma2 by 0.31, and a batch those of a sound family by
less than 1e-5. It is the limit of the median row, because a router may choose other experts in one."""

_LAST: list[tuple[weakref.ref[Any], str]] = []


def why_not(model: Any) -> str:
    """Return why rows of this model cannot be decoded in one batch, "" if they can; only the last model's answer is kept."""
    if not (_LAST and _LAST[0][0]() is model):
        _LAST[:] = [(weakref.ref(model), _tried(model))]
    return _LAST[0][1]


def _tried(model: Any) -> str:
    tokens = np.random.default_rng(0).integers(1, 16, (len(LENGTHS), max(LENGTHS) + STEPS)).astype(np.int32)
    try:
        off = _distance(model, tokens)
    except (ValueError, IndexError, TypeError, AttributeError) as error:
        return (
            f"a batch of rows of different lengths fails in mlx-lm's {caches.family(model)}: {str(error).rstrip('.')}"
        )
    if off <= LIMIT:
        return ""
    return (
        f"a row in a batch has other logits than alone in mlx-lm's {caches.family(model)}: they differ by {off:.0%} of their "
        f"range, must be at most {LIMIT:.0%}"
    )


def _distance(model: Any, tokens: np.ndarray) -> float:
    """Return the largest difference of logits in the batch and alone in the median row, as a share of the row's range."""
    prompts = [row[:length] for row, length in zip(tokens, LENGTHS, strict=True)]
    batch, rows = caches.merged(model, prompts).cache, [caches.alone(model, prompt).cache for prompt in prompts]
    worst = np.zeros(len(LENGTHS))
    for step in range(STEPS):
        column = np.array([row[length + step] for row, length in zip(tokens, LENGTHS, strict=True)], np.int32)[:, None]
        together = np.array(caches.feed(model, mx.array(column), batch).astype(mx.float32))
        for row, cache in enumerate(rows):
            alone = np.array(caches.feed(model, mx.array(column[row : row + 1]), cache).astype(mx.float32))[0]
            span = max(float(np.ptp(alone)), float(np.finfo(np.float32).tiny))
            worst[row] = max(worst[row], float(np.abs(together[row] - alone).max()) / span)
    return float(np.median(worst))
