"""Off-policy corrections: constant weights for tokens that were sampled by another program than the one that scores them.

With delta = old - sampling of each token, or its sum over a completion:

    TIS (truncated): w = clamp(exp delta, c_min, c_max)
    MIS (masked):    w = exp delta inside [c_min, c_max], ends included, and 0 elsewhere

Yao et al. (2025), "Your efficient RL framework secretly brings you off-policy RL training"; TRL's vllm_importance_sampling_mode.
"""

from typing import Literal

import mlx.core as mx

from gates_reference.trainer import double
from gates_reference.trainer.algorithms import ratio

Correction = Literal["tis", "mis"]
Level = Literal["token", "seq_sum"]


def weights(
    old: mx.array,
    sampling: mx.array,
    mask: mx.array,
    *,
    correction: str,
    level: str,
    c_min: float | None,
    c_max: float,
) -> mx.array:
    """Return the weights (B, T), or (B, 1) for whole completions; NaN in `sampling` means not recorded, so delta is 0."""
    known = mx.where(mx.isnan(sampling), old, sampling)
    pair = ratio.token(*(mx.stop_gradient(ratio.select(mask, x)) for x in (old, known)))
    raw = double.exp(*(pair if level == "token" else ratio.sequence_sum(pair)))
    bounded = corrected(raw, correction, 0.0 if c_min is None else c_min, c_max)
    return ratio.select(mask, bounded) if level == "token" else bounded


def corrected(raw: mx.array, correction: str, c_min: float, c_max: float) -> mx.array:
    """Bound the weights: clamp them (TIS), or set those strictly outside to 0 (MIS)."""
    if correction == "tis":
        return mx.minimum(mx.maximum(raw, c_min), c_max)
    return mx.where((raw >= c_min) & (raw <= c_max), raw, 0.0)
