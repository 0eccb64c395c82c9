"""The gated delta rule (Yang et al. 2024, arXiv 2412.06464), a linear attention."""

import numpy as np

from gates.replay.forward.arrays import Array


def gated_delta(queries: Array, keys: Array, values: Array, decay: Array, rate: Array) -> Array:
    """Return o_t = Sᵀ_t q_t with S_t = α_t S_{t−1} + β_t k_t (v_t − α_t Sᵀ_{t−1} k_t)ᵀ, of each head.

    Queries, keys and values are (B, L, heads, width), decay α and rate β are (B, L, heads).
    """
    rows, length, heads, width = keys.shape
    state = np.zeros((rows, heads, width, values.shape[-1]))
    out = np.empty_like(values)
    for t in range(length):
        state *= decay[:, t, :, None, None]
        key, query = keys[:, t, :, None, :], queries[:, t, :, None, :]
        change = rate[:, t, :, None] * (values[:, t] - (key @ state)[:, :, 0])
        state += key.swapaxes(-1, -2) * change[:, :, None, :]
        out[:, t] = (query @ state)[:, :, 0]
    return out
