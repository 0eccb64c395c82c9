"""Fill mlx-lm's caches with prompts, keep, repeat or drop rows in them, and store keys and values in 8 or 4 bits.

Quantised caches are for sampling only: losses, KLs and ratios always use a full forward pass.

Rows are selected by positions from the host: mlx-lm's `BatchKVCache.filter` waits for the device once per layer.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import mlx.core as mx
import numpy as np
from mlx.utils import tree_map
from mlx_lm.models import cache as mlx_caches
from numpy.typing import NDArray

from gates_reference.trainer.config.errors import TrainerError

Ints = NDArray[np.int64]

LEFT_PADDED: Final = frozenset(("qwen3", "llama", "qwen3_moe", "gemma3_text", "qwen3_next", "qwen3_5", "qwen3_5_text"))
"""Model types whose ragged prompts may be left-padded into one batch, each tested in tests/reference/trainer/test_rollout_families.py.

Other models are prefilled one by one and merged, which is correct wherever mlx-lm can merge caches. `jamba`, `olmo_hybrid` and `mamba`
give wrong results when padded, in mlx-lm's own batching too.
"""
GROUPS: Final = (64, 32)
"""Columns of a head that share a scale of quantised keys or values: the first of these that divides the head; mlx-lm's default is 64."""
WHOLE_LOGITS: Final = 1 << 22
"""Elements of a prefill's logits (16 MB) above which a second call computes those of the last position only."""


class Prefilled(NamedTuple):
    """A cache that has seen the prompts, the logits (P, V) after their last tokens, and each row's left padding (P,)."""

    cache: list[Any]
    last: mx.array
    padding: Ints


def kinds(model: Any) -> set[str]:
    """Return the names of the model's own cache classes, including those inside a `CacheList`."""
    return {name for layer in mlx_caches.make_prompt_cache(model) for name in _names(layer)}


def _names(layer: Any) -> list[str]:
    if isinstance(layer, mlx_caches.CacheList):
        return [name for part in layer.caches for name in _names(part)]
    return [type(layer).__name__]


def unmergeable(model: Any) -> list[str]:
    """Return the names of the model's cache classes that mlx-lm cannot merge into a batch."""
    return sorted(name for name in kinds(model) if not hasattr(getattr(mlx_caches, name, None), "merge"))


def unrepeatable(model: Any) -> list[str]:
    """Return the names of the model's cache classes whose rows `select` cannot repeat: a family's own, not mlx-lm's shared ones."""
    return sorted({type(layer).__name__ for layer in mlx_caches.make_prompt_cache(model) if not _has_rows(layer)})


def _has_rows(layer: Any) -> bool:
    if isinstance(layer, mlx_caches.CacheList):
        return all(map(_has_rows, layer.caches))
    return isinstance(layer, mlx_caches.ArraysCache) or (hasattr(layer, "keys") and hasattr(layer, "values"))


def family(model: Any) -> str:
    """Return the model type, which decides how prompts are batched, "" if the model has none."""
    return str(getattr(model, "model_type", ""))


def feed(model: Any, ids: mx.array, cache: list[Any]) -> mx.array:
    """Feed ids (P, L) into the cache and return the logits (P, V) after the last column."""
    if ids.shape[1] > 1 and ids.size * _vocabulary(model) > WHOLE_LOGITS:
        model(ids[:, :-1], cache=cache)  # only its cache is evaluated, so the head runs for the last position only
        ids = ids[:, -1:]
    return model(ids, cache=cache)[:, -1, :]


def _vocabulary(model: Any) -> int:
    return int(getattr(getattr(model, "args", None), "vocab_size", 1))


def together(model: Any, prompts: Sequence[NDArray[np.int32]]) -> Prefilled:
    """Prefill left-padded prompts in one forward pass; only for model types in `LEFT_PADDED`."""
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
    """Mark the end of padding in recurrent state, so that decode steps need no mask."""
    if isinstance(layer, mlx_caches.CacheList):
        for part in layer.caches:
            _end_of_padding(part)
    elif isinstance(layer, mlx_caches.ArraysCache):
        layer.finalize()


def _padded(layer: Any, padding: list[int]) -> Any:
    """Return the batched form of a model's own empty cache for left-padded rows.

    Raises:
        NotImplementedError: the cache class has no such form.
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
    """Prefill one prompt with the model's own caches; correct for every model."""
    cache = mlx_caches.make_prompt_cache(model)
    last = feed(model, mx.array(prompt[None, :]), cache)
    return Prefilled(cache, last, np.zeros(1, np.int64))


def merged(model: Any, prompts: Sequence[NDArray[np.int32]]) -> Prefilled:
    """Prefill each prompt alone, then merge all into one batch.

    Raises:
        NotImplementedError: mlx-lm cannot merge the model's caches.
    """
    if loose := unmergeable(model):
        raise NotImplementedError(f"a batch of rows with {', '.join(loose)}, which mlx-lm cannot merge")
    apart = [alone(model, prompt) for prompt in prompts]
    layers = zip(*(prefilled.cache for prefilled in apart), strict=True)
    cache = [type(layer[0]).merge(list(layer)) for layer in layers]
    lengths = np.array([len(prompt) for prompt in prompts], np.int64)
    return Prefilled(cache, mx.concatenate([prefilled.last for prefilled in apart]), lengths.max() - lengths)


def select(layer: Any, positions: mx.array, cut: int = 0) -> None:
    """Select rows of a layer's cache by position (repetitions allowed), and drop `cut` columns that are padding in all rows."""
    if isinstance(layer, mlx_caches.CacheList):
        for part in layer.caches:
            select(part, positions, cut)
    elif isinstance(layer, mlx_caches.ArraysCache | mlx_caches.BatchRotatingKVCache):
        layer.filter(positions)  # neither waits for the device
    elif isinstance(layer, mlx_caches.BatchKVCache):
        layer.keys, layer.values = (x[positions, :, cut:, :] for x in (layer.keys, layer.values))
        layer.offset = layer.offset[positions]
        layer.left_padding = layer.left_padding[positions] - cut
        layer._idx -= cut  # noqa: SLF001 - as its own `filter` does, without waiting for the device
    else:  # one prompt's own cache, which has no row operations: only its arrays have rows
        layer.keys, layer.values = tree_map(lambda x: x[positions], (layer.keys, layer.values))


def stored(prefilled: Prefilled, bits: int | None) -> Prefilled:
    """Quantise keys and values of a prefill to 8 or 4 bits; with None return it unchanged.

    Recurrent state is not quantised: it is small, and its error would accumulate. The rotating cache of a sliding window is not
    quantised either: it does not grow, and mlx-lm has no quantised form of it.

    Raises:
        NotImplementedError: mlx-lm cannot quantise the model's caches.
        TrainerError: no group size divides a head.
    """
    if bits is None:
        return prefilled
    if not any(isinstance(layer, mlx_caches.KVCache) for layer in prefilled.cache):
        raise NotImplementedError("a quantised KV cache; this model has no plain KVCache to quantise")
    return prefilled._replace(cache=[_quantised(layer, bits) for layer in prefilled.cache])


def _quantised(layer: Any, bits: int) -> Any:
    if isinstance(layer, mlx_caches.ArraysCache | mlx_caches.RotatingKVCache):
        return layer
    if not isinstance(layer, mlx_caches.KVCache):
        raise NotImplementedError(f"a quantised {type(layer).__name__}; mlx-lm quantises KVCache only")
    widths = {layer.keys.shape[-1], layer.values.shape[-1]}
    for size in GROUPS:
        if all(width % size == 0 for width in widths):
            return layer.to_quantized(group_size=size, bits=bits)
    raise TrainerError(
        f"kv_bits is {bits}, but this model's heads have {sorted(widths)} columns, must be multiples of {GROUPS[-1]}; "
        "remove rollout.kv_bits"
    )
