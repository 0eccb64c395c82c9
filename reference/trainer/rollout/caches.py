"""mlx-lm's caches for rows that come and go: how prompts get in, and how rows are kept, repeated and dropped.

Which rows a cache holds is decided on the host: mlx-lm's `BatchKVCache.filter` asks the device once for every layer.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import mlx.core as mx
import numpy as np
from mlx.utils import tree_map
from mlx_lm.models import cache as mlx_caches
from numpy.typing import NDArray

Ints = NDArray[np.int64]

LEFT_PADDED: Final = frozenset(("qwen3", "llama", "qwen3_moe", "gemma3_text", "qwen3_next", "qwen3_5", "qwen3_5_text"))
"""Model types whose ragged prompts may be left-padded into one batch: each shown right by tests/reference/trainer/test_rollout_families.py.

Others are prefilled one by one and merged, which is right for every model that mlx-lm can merge: `jamba`, `olmo_hybrid`
and `mamba` are wrong when padded, under mlx-lm's own batching too.
"""
WHOLE_LOGITS: Final = 1 << 22
"""Logits of a prefill, in elements (16 MB), above which only the last position's are computed, by a second call."""


class Prefilled(NamedTuple):
    """A cache that has seen the prompts, the logits (P, V) after their last tokens, and each row's left padding (P,)."""

    cache: list[Any]
    last: mx.array
    padding: Ints


def kinds(model: Any) -> set[str]:
    """The names of the cache classes that the model makes for itself, those inside a `CacheList` included."""
    return {name for layer in mlx_caches.make_prompt_cache(model) for name in _names(layer)}


def _names(layer: Any) -> list[str]:
    if isinstance(layer, mlx_caches.CacheList):
        return [name for part in layer.caches for name in _names(part)]
    return [type(layer).__name__]


def unmergeable(model: Any) -> list[str]:
    """The names of the model's cache classes that mlx-lm cannot merge into a batch."""
    return sorted(name for name in kinds(model) if not hasattr(getattr(mlx_caches, name, None), "merge"))


def family(model: Any) -> str:
    """The model type that decides how prompts are batched, "" if the model names none."""
    return str(getattr(model, "model_type", ""))


def feed(model: Any, ids: mx.array, cache: list[Any]) -> mx.array:
    """The logits (P, V) after the last column of ids (P, L), all of which the cache has seen then."""
    if ids.shape[1] > 1 and ids.size * _vocabulary(model) > WHOLE_LOGITS:
        model(ids[:, :-1], cache=cache)  # never evaluated but for the cache: no position but the last meets the head
        ids = ids[:, -1:]
    return model(ids, cache=cache)[:, -1, :]


def _vocabulary(model: Any) -> int:
    return int(getattr(getattr(model, "args", None), "vocab_size", 1))


def together(model: Any, prompts: Sequence[NDArray[np.int32]]) -> Prefilled:
    """Left-padded prompts in one forward pass; for model types in `LEFT_PADDED` only."""
    longest = max(len(prompt) for prompt in prompts)
    padding = np.array([longest - len(prompt) for prompt in prompts], np.int64)
    cache = [_padded(layer, padding.tolist()) for layer in mlx_caches.make_prompt_cache(model)]
    ids = np.zeros((len(prompts), longest), np.int32)
    for row, prompt in enumerate(prompts):
        ids[row, padding[row] :] = prompt
    last = feed(model, mx.array(ids), cache)
    for layer in cache:
        _end_of_padding(layer)
    return Prefilled(cache, last, padding)


def _end_of_padding(layer: Any) -> None:
    """Tell recurrent state that no column to come is padding, so that steps need no mask."""
    if isinstance(layer, mlx_caches.CacheList):
        for part in layer.caches:
            _end_of_padding(part)
    elif isinstance(layer, mlx_caches.ArraysCache):
        layer.finalize()


def _padded(layer: Any, padding: list[int]) -> Any:
    """The batched form of a model's own empty cache, expecting left-padded rows.

    Raises:
        NotImplementedError: a kind of cache that has no such form.
    """
    if isinstance(layer, mlx_caches.CacheList):
        return mlx_caches.CacheList(*(_padded(part, padding) for part in layer.caches))
    if isinstance(layer, mlx_caches.KVCache):
        return mlx_caches.BatchKVCache(padding)
    if isinstance(layer, mlx_caches.RotatingKVCache) and layer.keep == 0:
        return mlx_caches.BatchRotatingKVCache(layer.max_size, padding)
    if isinstance(layer, mlx_caches.ArraysCache):
        return mlx_caches.ArraysCache(len(layer.cache), left_padding=padding)
    raise NotImplementedError(f"a batch of left-padded prompts with a {type(layer).__name__}")


def alone(model: Any, prompt: NDArray[np.int32]) -> Prefilled:
    """One prompt by the model's own caches; right for every model."""
    cache = mlx_caches.make_prompt_cache(model)
    last = feed(model, mx.array(prompt[None, :]), cache)
    return Prefilled(cache, last, np.zeros(1, np.int64))


def merged(model: Any, prompts: Sequence[NDArray[np.int32]]) -> Prefilled:
    """Each prompt prefilled alone, then all merged into one batch.

    Raises:
        NotImplementedError: a kind of cache that mlx-lm cannot merge.
    """
    if loose := unmergeable(model):
        raise NotImplementedError(f"a batch of rows with {', '.join(loose)}, which mlx-lm cannot merge")
    apart = [alone(model, prompt) for prompt in prompts]
    layers = zip(*(one.cache for one in apart), strict=True)
    cache = [type(layer[0]).merge(list(layer)) for layer in layers]
    lengths = np.array([len(prompt) for prompt in prompts], np.int64)
    return Prefilled(cache, mx.concatenate([one.last for one in apart]), lengths.max() - lengths)


def select(layer: Any, positions: mx.array, cut: int = 0) -> None:
    """Keep these rows of a layer's cache, repeated where a position is, and drop `cut` columns that are padding in all."""
    if isinstance(layer, mlx_caches.CacheList):
        for part in layer.caches:
            select(part, positions, cut)
    elif isinstance(layer, mlx_caches.ArraysCache | mlx_caches.BatchRotatingKVCache):
        layer.filter(positions)  # neither asks the device
    elif isinstance(layer, mlx_caches.BatchKVCache):
        layer.keys, layer.values = (x[positions, :, cut:, :] for x in (layer.keys, layer.values))
        layer.offset = layer.offset[positions]
        layer.left_padding = layer.left_padding[positions] - cut
        layer._idx -= cut  # noqa: SLF001 - what its own `filter` does, without the question to the device
    else:  # one prompt's own cache, which knows nothing of rows: only its arrays have them
        layer.keys, layer.values = tree_map(lambda x: x[positions], (layer.keys, layer.values))
