"""Preference losses in other forms: differences of sums, the logarithm of a sigmoid, 1 − σ in the gradient, pair by pair."""

from __future__ import annotations

from typing import Any

import numpy as np

VERSIONS = {"numpy": np.__version__}


def sigmoid(x: Any) -> Any:
    """Return σ(x)."""
    return 1 / (1 + np.exp(-x))


def odds(a: Any) -> Any:
    """Return the log-odds of exp(a)."""
    return a - np.log(1 - np.exp(a))


def one_pair(  # noqa: PLR0911  a choice of seven
    loss: Any, c: Any, r: Any, ref_c: Any, ref_r: Any, n_c: Any, n_r: Any, constants: Any
) -> Any:
    """Return the loss of a pair, and its slopes by the chosen and the rejected sum of log-probs."""
    beta, s = constants["beta"], constants["s"]
    if loss == "ipo" and constants["mean"]:
        off = (c / n_c - r / n_r) - (ref_c / n_c - ref_r / n_r) - 1 / (2 * beta)
        return off * off, 2 * off / n_c, -2 * off / n_r
    logits = (c - r) - (ref_c - ref_r)
    if loss == "dpo":
        p = sigmoid(beta * logits)
        slope = -beta * ((1 - s) * (1 - p) - s * p)
        return -np.log(p) * (1 - s) - np.log(sigmoid(-beta * logits)) * s, slope, -slope
    if loss == "hinge":
        slope = -beta if beta * logits < 1 else 0 * beta
        return np.maximum(1 - beta * logits, 0 * beta), slope, -slope
    if loss == "ipo":
        return (logits - 1 / (2 * beta)) ** 2, 2 * (logits - 1 / (2 * beta)), -2 * (logits - 1 / (2 * beta))
    if loss == "dpop":
        lost = np.maximum(ref_c - c, 0 * beta)
        p = sigmoid(beta * logits - beta * constants["penalty"] * lost)
        slope = -beta * (1 - p)
        return -np.log(p), slope * (1 + constants["penalty"]) if lost > 0 else slope, -slope
    if loss == "simpo":
        p = sigmoid(beta * ((c / n_c - r / n_r) - constants["margin"] / beta))
        return -np.log(p), -beta * (1 - p) / n_c, beta * (1 - p) / n_r
    if loss == "cpo":
        p = sigmoid(beta * c - beta * r)
        return -np.log(p), -beta * (1 - p), beta * (1 - p)
    a, b = c / n_c, r / n_r
    p = sigmoid(odds(a) - odds(b))
    own = constants["own"]
    return (
        -own * a - beta * np.log(p),
        (-own - beta * (1 - p) / (1 - np.exp(a))) / n_c,
        beta * (1 - p) / (1 - np.exp(b)) / n_r,
    )


def preference_loss(
    *,
    policy: Any,
    reference: Any,
    mask: Any,
    loss: Any,
    beta: Any,
    label_smoothing: Any,
    lengths: Any,
    penalty: Any,
    margin: Any,
    nll: Any,
    attention_mask: Any = None,
) -> Any:
    """Return the mean over pairs, and its gradient."""
    dtype = policy.dtype.type
    given = {"beta": beta, "s": label_smoothing, "penalty": penalty, "margin": margin}
    constants = {name: dtype(0 if value is None else value) for name, value in given.items()}
    constants |= {"mean": lengths == "mean", "own": dtype(attention_mask is None)}
    gradient, losses = np.zeros_like(policy), []
    for k in range(0, len(policy), 2):
        places = [mask[k], mask[k + 1]]
        sums = [policy[k + i][m].sum() for i, m in enumerate(places)]
        refs = [dtype(0) if reference is None else reference[k + i][m].sum() for i, m in enumerate(places)]
        value, *slopes = one_pair(loss, *sums, *refs, *(dtype(m.sum()) for m in places), constants)
        losses.append(value)
        for i, m in enumerate(places):
            gradient[k + i][m] = slopes[i] / (len(policy) // 2)
    total = np.mean(losses)
    if loss == "cpo" or attention_mask is not None:
        which = np.zeros(mask.shape, bool)
        which[0::2] = (mask if attention_mask is None else attention_mask)[0::2]
        weight = dtype(1 if nll is None else nll)
        total = total - weight * policy[which].mean()
        gradient[which] -= weight / dtype(which.sum())
    return {"loss": total, "gradient": gradient}


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
    dtype = policy.dtype.type
    z0 = max(dtype(0), np.sum(mismatched) / dtype(len(mismatched)))
    beta, losses, gradient = dtype(beta), [], np.zeros_like(policy)
    for k, m in enumerate(mask):
        lr = policy[k][m].sum() - reference[k][m].sum()
        if desirable[k]:
            p = sigmoid(beta * (lr - z0))
            losses.append(dtype(desirable_weight) * (1 - p))
            gradient[k][m] = -dtype(desirable_weight) * beta * p * (1 - p) / len(mask)
        else:
            p = sigmoid(beta * (z0 - lr))
            losses.append(dtype(undesirable_weight) * (1 - p))
            gradient[k][m] = dtype(undesirable_weight) * beta * p * (1 - p) / len(mask)
    return {"loss": np.mean(losses), "gradient": gradient}


def prefer(*, scores: Any) -> Any:
    """Return +1 for the higher of two scores, -1 for the other."""
    pairs = scores.reshape(-1, 2)
    order = np.argsort(-pairs, axis=1, kind="stable")
    return {"signs": np.where(order == 0, 1.0, -1.0).reshape(-1)}


def best_of_n(*, scores: Any, group_size: Any) -> Any:
    """Return the row of each group's highest score."""
    groups = [range(k, k + group_size) for k in range(0, len(scores), group_size)]
    return {"rows": np.array([max(group, key=lambda row: scores[row]) for group in groups])}


OPS: dict[str, Any] = {
    "preference_loss": preference_loss,
    "kto_loss": kto_loss,
    "prefer": prefer,
    "best_of_n": best_of_n,
}
