"""Key-value caches in 8 or 4 bits, for sampling only: anything in a loss, a KL or a ratio comes from a full forward."""

from typing import Any, Final

from mlx_lm.models import cache as mlx_caches

from reference.trainer.config.errors import TrainerError
from reference.trainer.rollout.caches import Prefilled

BITS: Final = (None, 8, 4)
GROUPS: Final = (64, 32)
"""Columns of a head that share a scale, the largest that divides the head; mlx-lm's own default is 64."""


def stored(prefilled: Prefilled, bits: int | None) -> Prefilled:
    """The same prefill with its keys and values in so many bits; None leaves them as they are.

    Recurrent state is not quantised: it is small, and its error would add up. A sliding window's rotating cache is left as it is
    too, for it never grows beyond its window and mlx-lm has no quantised one.

    Raises:
        NotImplementedError: no cache, or a kind of cache, that mlx-lm can quantise.
        TrainerError: a head that no group size divides.
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
