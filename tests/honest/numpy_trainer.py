"""A linear layer with a low-rank adapter in plain NumPy, in the dtype of its input.

gates check trainer.lora-dropout --subject tests/honest/numpy_trainer.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

VERSIONS = {"numpy": np.__version__}


def lora_linear(*, x: Any, weight: Any, a: Any, b: Any, scale: float, p: float, draw: Any) -> dict[str, Any]:
    """Add the adapter's product, of an input that an update drops in part."""
    kept = np.ones_like(x)
    dropped = x
    if draw is not None:
        kept = (np.random.default_rng(draw).random(x.shape) >= p).astype(x.dtype)
        dropped = x * kept / (1 - p)
    return {"y": x @ weight.T + scale * (dropped @ a @ b), "kept": kept}


OPS = {"lora_linear": lora_linear}
