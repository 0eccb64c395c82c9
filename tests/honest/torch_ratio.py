"""Importance ratios, weights and statistics in torch, in the dtype of the data, with TRL's masked operations."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

VERSIONS = {"torch": torch.__version__}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {}
torch.set_num_threads(1)


def _padded(mask: Any, lengths: Any, *arrays: Any) -> tuple[Any, Any, Any]:
    """Return the mask and the tensors as (B, T), and which slots the arrays had."""
    shape = arrays[0].shape
    tensors = [torch.from_numpy(np.ascontiguousarray(x)) for x in arrays]
    if len(shape) == 1:
        place = np.arange(max(lengths)) < np.asarray(lengths)[:, None]
        rows = [torch.split(x, [int(n) for n in lengths]) for x in tensors]
        wide = [torch.nn.utils.rnn.pad_sequence(row, batch_first=True) for row in rows]
        return torch.from_numpy(place), place, wide
    if lengths is not None:
        mask = np.arange(shape[1]) < np.asarray(lengths)[:, None]
    keep = np.ones(shape, bool) if mask is None else np.ascontiguousarray(mask)
    return torch.from_numpy(keep), np.ones(shape, bool), tensors


def importance_ratio(*, policy: Any, old: Any, level: Any, mask: Any = None, lengths: Any = None) -> dict[str, Any]:
    """TRL's `log_importance_weights`, by tokens or by sequences, and RLOO's sums."""
    mask, place, (left, right) = _padded(mask, lengths, policy, old)
    log_ratio = left - right
    if level == "token":
        return {"ratio": torch.where(mask, torch.exp(log_ratio), 0.0).numpy()[place].reshape(policy.shape)}
    if level == "seq_mean":
        log_ratio = (log_ratio * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)
        return {"ratio": torch.exp(log_ratio).numpy()}
    return {"ratio": torch.exp((left * mask).sum(1) - (right * mask).sum(1)).numpy()}


def importance_weights(
    *,
    old: Any,
    sampling: Any,
    correction: Any,
    level: Any,
    c_min: Any,
    c_max: Any,
    mask: Any = None,
    lengths: Any = None,
) -> dict[str, Any]:
    """TRL's truncated and masked importance sampling."""
    mask, place, (left, right) = _padded(mask, lengths, old, sampling)
    logps_diff = (left - right) * mask
    ratio = torch.exp(logps_diff if level == "token" else logps_diff.sum(dim=-1))
    if correction == "tis":
        ratio = torch.clamp(ratio, min=c_min, max=c_max)
    else:
        ratio = ratio.masked_fill(ratio > c_max, 0.0)
        ratio = ratio if c_min is None else ratio.masked_fill(ratio < c_min, 0.0)
    return {"weights": (ratio * mask).numpy()[place].reshape(old.shape) if level == "token" else ratio.numpy()}


def _statistics(d: Any, low: Any, high: Any, signs: Any) -> dict[str, Any]:
    r = d.exp()
    share = lambda found: found.to(d.dtype).mean()  # noqa: E731
    found = {
        "mean": r.mean(),
        "max_abs": d.abs().max(),
        "p99_abs": torch.quantile(d.abs(), 0.99),
        "k3": (torch.expm1(d) - d).mean(),
        "chi2": torch.expm1(2 * d).mean(),
        "ess_per_n": torch.exp(2 * torch.logsumexp(d, 0) - torch.logsumexp(2 * d, 0)) / len(d),
        "mult_err": d.abs().exp().mean(),
        "outside_low": share(r < low),
        "outside_high": share(r > high),
    }
    if signs is not None:
        found |= {"clipped_low": share((r < low) & (signs < 0)), "clipped_high": share((r > high) & (signs > 0))}
    return found


def ratio_statistics(
    *,
    policy: Any,
    behaviour: Any,
    epsilon_low: Any,
    epsilon_high: Any,
    advantages: Any,
    mask: Any = None,
    lengths: Any = None,
) -> dict[str, Any]:
    """Describe the ratios of tokens, and of rows by their summed log-ratios."""
    mask, _, (left, right) = _padded(mask, lengths, policy, behaviour)
    bounds = 1 - epsilon_low, 1 + epsilon_high
    gains = None if advantages is None else torch.from_numpy(np.ascontiguousarray(advantages))
    log_ratio = left - right
    by_token = None if gains is None else gains[:, None].expand(mask.shape)[mask]
    found = _statistics(log_ratio[mask], *bounds, by_token)
    rows = mask.any(dim=1)
    sums = torch.where(mask, log_ratio, 0.0).sum(dim=1)[rows]
    of_rows = _statistics(sums, *bounds, None if gains is None else gains[rows])
    found |= {f"seq_sum_{name}": x for name, x in of_rows.items()}
    found |= {"min_sequence_ratio": sums.exp().min(), "max_sequence_ratio": sums.exp().max()}
    return {name: x.item() for name, x in found.items()}


OPS = {
    "importance_ratio": importance_ratio,
    "importance_weights": importance_weights,
    "ratio_statistics": ratio_statistics,
}
