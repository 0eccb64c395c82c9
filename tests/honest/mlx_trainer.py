"""A linear layer with a low-rank adapter as mlx-lm writes it, on the CPU; without an update the adapter is merged.

gates check trainer.lora-dropout --subject tests/honest/mlx_trainer.py
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

VERSIONS = {"mlx": mx.__version__}


def lora_linear(*, x: Any, weight: Any, a: Any, b: Any, scale: float, p: float, draw: Any) -> dict[str, Any]:
    """Add the adapter's product, or merge the adapter into the base where nothing is dropped."""
    with mx.stream(mx.cpu):
        inputs, base, down, up = (mx.array(array) for array in (x, weight, a, b))
        if draw is None:
            merged = base + scale * (down @ up).T
            return {"y": np.array(inputs @ merged.T), "kept": np.ones_like(x)}
        key = mx.random.key(sum(int(number) * 10_007**place for place, number in enumerate(draw)))
        kept = mx.random.bernoulli(1 - p, inputs.shape, key=key)
        dropped = (1 / (1 - p)) * kept * inputs
        y = inputs @ base.T + scale * ((dropped @ down) @ up)
        return {"y": np.array(y), "kept": np.array(kept.astype(inputs.dtype))}


OPS = {"lora_linear": lora_linear}
