"""Ratios and off-policy weights of tokens and sequences with log-ratios clamped to ±20, and statistics by token.

gates check ratio weights statistics --subject tests/honest/torch_ratio_levels.py --python PYTHON_WITH_TORCH
"""

from __future__ import annotations

from typing import Any

import torch

VERSIONS = {"torch": torch.__version__}
torch.set_num_threads(1)
LIMIT = 20.0


def safe_exp(x: Any) -> Any:
    """Return e^x, held within e^±20."""
    return torch.exp(torch.clamp(x, min=-LIMIT, max=LIMIT))


def log_ratios(left: Any, right: Any, mask: Any) -> tuple[Any, Any]:
    """Return the masked log-ratios and the mask."""
    new, old = torch.tensor(left), torch.tensor(right)
    keep = torch.ones(new.shape, dtype=torch.bool) if mask is None else torch.tensor(mask)
    return torch.where(keep, new - old, torch.zeros((), dtype=new.dtype)), keep


def importance_ratio(*, policy: Any, old: Any, level: str, mask: Any = None) -> dict[str, Any]:
    """Return the ratio of each token, or of each row."""
    delta, keep = log_ratios(policy, old, mask)
    if level == "token":
        return {"ratio": (safe_exp(delta) * keep).numpy()}
    total = delta.sum(dim=-1)
    if level == "seq_mean":
        total = total / keep.sum(dim=-1).clamp(min=1)
    return {"ratio": safe_exp(total).numpy()}


def importance_weights(
    *, old: Any, sampling: Any, correction: str, level: str, c_max: float, c_min: Any = None, mask: Any = None
) -> dict[str, Any]:
    """Truncate, or mask by multiplying with the condition."""
    delta, keep = log_ratios(old, sampling, mask)
    weights = safe_exp(delta) if level == "token" else safe_exp(delta.sum(dim=-1))
    if correction == "tis":
        weights = weights.clamp(max=c_max) if c_min is None else weights.clamp(c_min, c_max)
    else:
        inside = weights <= c_max
        inside = inside if c_min is None else inside & (weights >= c_min)
        weights = weights * inside.to(weights.dtype)
    return {"weights": (weights * keep).numpy() if level == "token" else weights.numpy()}


def describe(delta: Any, low: float, high: float, signs: Any) -> dict[str, Any]:
    """Return the statistics of some log-ratios."""
    ratio = delta.exp()
    ordered = delta.abs().sort().values
    rank = 0.99 * (len(ordered) - 1)
    below = int(rank)
    above = min(below + 1, len(ordered) - 1)
    named = {
        "mean": ratio.sum() / len(ratio),
        "max_abs": ordered[-1],
        "p99_abs": torch.lerp(ordered[below], ordered[above], rank - below),
        "k3": (ratio - delta - 1).mean(),
        "chi2": (ratio.square() - 1).mean(),
        "ess_per_n": ratio.sum().square() / ratio.square().sum() / len(ratio),
        "mult_err": torch.maximum(ratio, 1 / ratio).mean(),
        "outside_low": (ratio < 1 - low).double().mean(),
        "outside_high": (ratio > 1 + high).double().mean(),
    }
    if signs is not None:
        named["clipped_low"] = ((ratio < 1 - low) & (signs < 0)).double().mean()
        named["clipped_high"] = ((ratio > 1 + high) & (signs > 0)).double().mean()
    return named


def ratio_statistics(
    *, policy: Any, behaviour: Any, epsilon_low: float, epsilon_high: float, advantages: Any, mask: Any = None
) -> dict[str, Any]:
    """Describe tokens, then the rows that have any."""
    delta, keep = log_ratios(policy, behaviour, mask)
    signs = None if advantages is None else torch.tensor(advantages).sign()
    of_tokens = None if signs is None else signs[:, None].expand(keep.shape)[keep]
    rows = keep.any(dim=1)
    sums = delta.sum(dim=1)[rows]
    named = describe(delta[keep], epsilon_low, epsilon_high, of_tokens)
    of_rows = describe(sums, epsilon_low, epsilon_high, None if signs is None else signs[rows])
    named |= {f"seq_sum_{name}": value for name, value in of_rows.items()}
    named |= {"min_sequence_ratio": sums.min().exp(), "max_sequence_ratio": sums.max().exp()}
    return {name: value.item() for name, value in named.items()}


OPS = {
    "importance_ratio": importance_ratio,
    "importance_weights": importance_weights,
    "ratio_statistics": ratio_statistics,
}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {}
