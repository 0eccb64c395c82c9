"""Activations and norms, over the last axis where they have one."""

from math import pi, sqrt

import numpy as np

from gates.replay.forward.arrays import Array


def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + e⁻ˣ)."""
    return np.asarray(0.5 + 0.5 * np.tanh(0.5 * x))


def silu(x: Array) -> Array:
    """Return x σ(x)."""
    return x * sigmoid(x)


def gelu_tanh(x: Array) -> Array:
    """Return GELU in its tanh form (Hendrycks and Gimpel 2016, arXiv 1606.08415)."""
    return np.asarray(0.5 * x * (1 + np.tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x))))


def softplus(x: Array) -> Array:
    """Return log(1 + eˣ)."""
    return np.logaddexp(0.0, x)


def softmax(x: Array) -> Array:
    """Return eˣ / Σ eˣ; −inf is allowed beside finite values."""
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def soft_cap(x: Array, cap: float) -> Array:
    """Return cap · tanh(x / cap)."""
    return np.asarray(cap * np.tanh(x / cap))


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    """Return w x / √(mean x² + ε) (Zhang and Sennrich 2019, arXiv 1910.07467)."""
    squares = np.einsum("...i,...i->...", x, x)[..., None] / x.shape[-1]
    return np.asarray(x / np.sqrt(squares + eps) * weight)


def l2_norm(x: Array, eps: float) -> Array:
    """Return x / √(Σ x² + ε)."""
    return np.asarray(x / np.sqrt(np.einsum("...i,...i->...", x, x)[..., None] + eps))


def layer_norm(x: Array, weight: Array, eps: float) -> Array:
    """Return w (x − mean x) / √(var x + ε) (Ba et al. 2016, arXiv 1607.06450)."""
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = np.einsum("...i,...i->...", centred, centred)[..., None] / x.shape[-1]
    return np.asarray(centred / np.sqrt(variance + eps) * weight)
