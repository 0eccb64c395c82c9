"""Causal convolutions of each channel by itself."""

import numpy as np

from gates.replay.forward.arrays import Array
from gates.replay.forward.modules import Modules


def causal(modules: Modules, path: str, x: Array) -> Array:
    """Return y_t = Σ_j w_j x_{t − K + 1 + j} (+ bias) of each channel of x (B, L, channels), with zeros before the first x.

    The weight is (channels, K, 1).
    """
    weight = modules[f"{path}.weight"][..., 0]
    size = weight.shape[1]
    padded = np.pad(x, ((0, 0), (size - 1, 0), (0, 0)))
    y = sum((padded[:, j : j + x.shape[1]] * weight[:, j] for j in range(size)), np.zeros(()))
    return np.asarray(y + modules[f"{path}.bias"] if f"{path}.bias" in modules else y)
