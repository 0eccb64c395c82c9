"""Preference losses in MLX, float64 on the CPU stream; gradients by mx.value_and_grad.

Their arithmetic is declared as float32: exp of a float64 array has a relative error of 2e-7 in MLX 0.32.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn

mx.set_default_device(mx.cpu)
VERSIONS = {"mlx": mx.__version__}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "preference_loss": {"arithmetic": ("float32",)},
    "kto_loss": {"arithmetic": ("float32",)},
}


def tensor(values: Any) -> Any:
    """Return an array of MLX."""
    return mx.array(np.asarray(values), dtype=mx.float64 if values.dtype == np.float64 else mx.float32)


def differentiated(loss: Any, policy: Any) -> Any:
    """Return loss and gradient."""
    value, gradient = mx.value_and_grad(loss)(tensor(policy))
    return {"loss": value.item(), "gradient": np.array(gradient)}


def pair_losses(loss: Any, c: Any, r: Any, constants: Any) -> Any:  # noqa: PLR0911  a choice of seven
    """Return the loss of each pair, from log-ratios, or from log-probs where there is no reference."""
    beta = constants["beta"]
    if loss == "dpo":
        s, z = constants["label_smoothing"], beta * (c - r)
        return -nn.log_sigmoid(z) * (1 - s) - nn.log_sigmoid(-z) * s
    if loss == "hinge":
        return nn.relu(1 - beta * (c - r))
    if loss == "ipo":
        return mx.square(c - r - 1 / (2 * beta))
    if loss == "dpop":
        return -nn.log_sigmoid(beta * (c - r - constants["penalty"] * mx.maximum(0.0, -c)))
    if loss == "simpo":
        return -nn.log_sigmoid(beta * (c - r) - constants["margin"])
    if loss == "cpo":
        return mx.logaddexp(mx.array(0.0, c.dtype), -beta * (c - r))
    odds = (c - mx.log1p(-mx.exp(c))) - (r - mx.log1p(-mx.exp(r)))
    return -beta * nn.log_sigmoid(odds)


def preference_loss(
    *, policy: Any, reference: Any, mask: Any, loss: Any, attention_mask: Any = None, **constants: Any
) -> Any:
    """Return the mean over pairs, and its gradient."""
    counted = mx.array(mask).astype(tensor(policy).dtype)
    tokens = counted.sum(axis=1)
    even = np.arange(len(mask)) % 2 == 0
    everything = None if attention_mask is None else mx.array(attention_mask & even[:, None])

    def total(x: Any) -> Any:
        rows = x if reference is None else x - tensor(reference)
        sums = (rows * counted).sum(axis=1)
        if constants["lengths"] == "mean" or loss in {"simpo", "orpo"}:
            sums = sums / tokens
        losses = pair_losses(loss, sums[0::2], sums[1::2], constants)
        if loss == "orpo" and everything is None:
            losses = losses - sums[0::2]
        value = losses.mean()
        if loss == "cpo":
            value = value - constants["nll"] * (x * counted)[0::2].sum() / tokens[0::2].sum()
        if everything is not None:
            value = value - mx.where(everything, x, 0).sum() / everything.sum()
        return value

    return differentiated(total, policy)


def kto_loss(
    *,
    policy: Any,
    reference: Any,
    mask: Any,
    desirable: Any,
    mismatched: Any,
    beta: Any,
    desirable_weight: Any,
    undesirable_weight: Any,
) -> Any:
    """Return the mean over rows, and its gradient."""
    z0 = mx.maximum(tensor(mismatched).mean(), 0)
    counted, good = mx.array(mask), mx.array(desirable)

    def total(x: Any) -> Any:
        margin = beta * (((x - tensor(reference)) * counted).sum(axis=1) - z0)
        losses = mx.where(
            good, desirable_weight * (1 - mx.sigmoid(margin)), undesirable_weight * (1 - mx.sigmoid(-margin))
        )
        return losses.mean()

    return differentiated(total, policy)


def best_of_n(*, scores: Any, group_size: Any) -> Any:
    """Return the row of each group's highest score."""
    best = mx.argmax(mx.array(scores).reshape(-1, group_size), axis=1)
    return {"rows": np.array(best).astype(np.int64) + group_size * np.arange(len(scores) // group_size)}


def prefer(*, scores: Any) -> Any:
    """Return +1 for the higher of two scores, -1 for the other."""
    second = np.array(mx.argmax(mx.array(scores).reshape(-1, 2), axis=1)) == 1
    return {"signs": np.stack([1.0 - 2.0 * second, 2.0 * second - 1.0], axis=1).reshape(-1)}


def winner_loss(*, policy: Any, mask: Any, scores: Any, group_size: Any, parts: Any) -> Any:
    """Return the loss of the winners alone, and its gradient; `parts` are one."""
    del parts
    rows = mx.array(best_of_n(scores=scores, group_size=group_size)["rows"])
    counted = mx.array(mask)[rows].astype(mx.float32)

    def total(x: Any) -> Any:
        return -((x[rows] * counted).sum(axis=1) / counted.sum(axis=1)).mean()

    return differentiated(total, policy)


OPS: dict[str, Any] = {
    "preference_loss": preference_loss,
    "kto_loss": kto_loss,
    "prefer": prefer,
    "best_of_n": best_of_n,
    "winner_loss": winner_loss,
}
