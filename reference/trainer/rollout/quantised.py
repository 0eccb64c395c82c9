"""Key-value caches in 8 or 4 bits, for sampling only: losses, KLs and ratios always use a full forward pass."""

from typing import Any, Final

from mlx_lm.models import cache as mlx_caches

from reference.trainer.config.errors import TrainerError
from reference.trainer.rollout.caches import Prefilled

BITS: Final = (None, 8, 4)
GROUPS: Final = (64, 32)
"""Columns of a head that share a scale: the first of these that divides the head; mlx-lm's default is 64."""


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
