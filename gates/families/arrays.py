"""Draw seeded inputs that several families use, with NumPy alone.

Recorded verdicts name case and seed, so a case whose numbers change needs a new name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from gates.model import Array

Rng = np.random.Generator


def rewards(rng: Rng, groups: int, size: int, dtype: str) -> Array:
    """Return prompt-major rewards (groups · size,) of the kinds that trainers see; no group is constant.

    In turn: 0/1 scores, uniform scores, scores around 1000 that differ by hundredths, and scores that differ by 1e-3.
    """
    kinds = (
        lambda: rng.integers(0, 2, size).astype(np.float64),
        lambda: rng.uniform(-1.0, 1.0, size),
        lambda: 1000.0 + rng.normal(0.0, 0.01, size),
        lambda: 0.35 + 1e-3 * rng.integers(0, 3, size),
    )
    rows = []
    for index in range(groups):
        row = kinds[index % len(kinds)]()
        row[0] += 0.5 if row.max() == row.min() else 0.0
        rows.append(row)
    return np.concatenate(rows).astype(dtype)


def logprobs(rng: Rng, shape: tuple[int, ...]) -> Array:
    """Return log-probs of tokens as training samples them: about −1.2 nats, some far below."""
    return -np.asarray(rng.gamma(1.5, 0.8, shape))


def logprob_pairs(rng: Rng, shape: tuple[int, ...], dtype: str, low: float, high: float) -> tuple[Array, Array]:
    """Return (policy, reference) log-probs whose difference d = reference − policy has |d| log-uniform in [low, high].

    Both are at most 0 and of the magnitude of d, so that d survives rounding to the dtype.
    """
    size = 10.0 ** rng.uniform(np.log10(low), np.log10(high), shape)
    size.flat[:2] = low, high  # always include both ends of the range
    nearer = -size * rng.uniform(0.05, 0.5, shape)
    farther = nearer - size
    rising = rng.random(shape) < 0.5  # half the pairs have d > 0
    policy, reference = np.where(rising, farther, nearer), np.where(rising, nearer, farther)
    return policy.astype(dtype), reference.astype(dtype)


FARTHEST = 19.0  # nats between two policies: at 20 libraries clamp, and no run goes on


def ragged_mask(rng: Rng, rows: int, width: int, *, empty_row: bool = False) -> Array:
    """Return a (rows, width) mask of valid prefixes; only the last row has full width."""
    lengths = rng.integers(max(1, width // 4), width, rows)
    lengths[-1] = width  # a truncated completion, the only row that reveals a lost last column
    if empty_row:
        lengths[rows // 2] = 0
    return np.arange(width) < lengths[:, None]


def rounded(inputs: Mapping[str, Any], scalars: Collection[str]) -> dict[str, Any]:
    """Return the inputs with these scalars rounded to the policy's dtype, as a kernel rounds them."""
    dtype = inputs["policy"].dtype.type
    return {k: float(dtype(v)) if k in scalars and v is not None else v for k, v in inputs.items()}


def loss_inputs(  # noqa: PLR0913  one keyword for each property of a batch
    rng: Rng,
    *,
    rows: int = 8,
    width: int = 16,
    group_size: int = 4,
    spread: float = 0.3,
    empty_row: bool = False,
    equal_lengths: bool = False,
    by_token: bool = False,
    holes: bool = False,
    dtype: str = "float32",
) -> dict[str, Any]:
    """Return policy, old and reference log-probs (rows, width), advantages and a mask.

    `spread` is the deviation of log-ratios policy − old, which are no farther than `FARTHEST`: at 0.3 a fifth of the tokens leave a clip range of 0.2.
    Advantages are (rows,), or with `by_token` (rows, width) and of both signs in a row. With `holes` the mask has some; they
    take every token of no row, which is what `empty_row` asks.
    """
    policy = logprobs(rng, (rows, width))
    drift = np.clip(rng.normal(0.0, spread, policy.shape), -FARTHEST, FARTHEST)
    old = np.minimum(policy + drift, 0.0)
    reference = np.minimum(policy + rng.normal(0.0, 0.4, policy.shape), 0.0)
    scores = rng.normal(0.0, 1.0, (rows // group_size, group_size))
    centred = scores - scores.mean(axis=1, keepdims=True)
    advantages = centred / (scores.std(axis=1, keepdims=True) + 1e-4)
    advantages = advantages.reshape(-1)
    mask = np.ones((rows, width), bool) if equal_lengths else ragged_mask(rng, rows, width, empty_row=empty_row)
    if by_token:
        advantages = advantages[:, None] + rng.normal(0.0, 0.7, mask.shape)
    if holes:
        left = mask & (rng.random(mask.shape) < 0.7)
        mask = np.where(left.any(axis=1, keepdims=True), left, mask)
    return {
        "policy": policy.astype(dtype),
        "old": old.astype(dtype),
        "reference": reference.astype(dtype),
        "advantages": advantages.astype(dtype),
        "mask": mask,
    }


def in_dtype(values: Array, dtype: str) -> Array:
    """Return the values in a dtype; for bfloat16, float32 numbers rounded to its nearest even value."""
    if dtype != "bfloat16":
        return values.astype(dtype)
    bits = np.atleast_1d(values.astype(np.float32)).view(np.uint32)
    nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return np.where(np.isfinite(values), nearest.view(np.float32).reshape(values.shape), values).astype(np.float32)
