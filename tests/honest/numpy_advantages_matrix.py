"""GAE as a product with the matrix of (γλ)^(s − t), one row at a time.

gates check advantages.gae --subject tests/honest/numpy_advantages_matrix.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

VERSIONS = {"numpy": np.__version__}


def discounts(decay: float, ends: Any, dtype: Any) -> Any:
    """Return (γλ)^(s − t) for s ≥ t where no episode ends between t and s, else 0."""
    steps = np.arange(len(ends))
    apart = steps[None, :] - steps[:, None]
    episode = np.cumsum(ends) - ends
    together = (apart >= 0) & (episode[None, :] == episode[:, None])
    return np.where(together, float(decay) ** np.maximum(apart, 0), 0.0).astype(dtype)


def gae(
    *,
    rewards: Any,
    values: Any,
    gamma: float,
    lam: float,
    bootstrap: Any = None,
    terminal: Any = None,
    mask: Any = None,
) -> dict[str, Any]:
    """Multiply the errors of each row's tokens by the matrix."""
    kind = rewards.dtype.type
    out = np.zeros_like(rewards)
    for row in range(len(rewards)):
        at = np.arange(rewards.shape[1]) if mask is None else np.flatnonzero(mask[row])
        if not len(at):
            continue
        ends = np.zeros(len(at), int) if terminal is None else terminal[row, at].astype(int)
        after = kind(0) if bootstrap is None else bootstrap[row]
        v = values[row, at]
        errors = rewards[row, at] + kind(gamma) * np.append(v[1:], after) * (1 - ends).astype(kind) - v
        out[row, at] = discounts(gamma * lam, ends, kind) @ errors
    return {"advantages": out}


OPS = {"gae": gae}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {}
