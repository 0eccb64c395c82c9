"""Textbook programs of the KL to the reference: what a careful author writes in the data's dtype."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reference.textbook.forms import accurate
from reference.textbook.number import Bools, Floats, Number, clip, exp, expm1, number, widest


def token_kl(  # noqa: PLR0913  the op's keywords
    policy: npt.ArrayLike,
    reference: npt.ArrayLike,
    *,
    estimator: str,
    mask: npt.ArrayLike | None = None,
    lengths: npt.ArrayLike | None = None,
    reduction: str,
    old: npt.ArrayLike | None = None,
    kl_ratio: str = "none",
    kl_clamp: float | None = None,
) -> dict[str, Floats]:
    """Return the limits of `kl`, in both usual forms of k3.

    Args:
        policy: as in `reference.oracle.kl.token_kl`, and so are the others.
        reference: log-probs of the same shape.
        estimator: "k1", "k2" or "k3".
        mask: of the same shape, or None.
        lengths: of the rows or sequences, or None.
        reduction: "none", "sum" or "mean".
        old: log-probs of the same shape, or None.
        kl_ratio: "none", "token" or "sequence".
        kl_clamp: the largest |estimate|, or None.

    Returns:
        `kl`: float64 of the shape of the result; inf where the dtype may overflow on the way.

    Source: Schulman (2020), http://joschu.net/blog/kl-approx.html; TRL's `per_token_kl` and verl's `kl_penalty` use exp(d) - d - 1.
    """
    valid, place = _slots(np.shape(policy), mask, lengths)
    lp, ref = (_grid(x, valid, place) for x in (policy, reference))
    d = ref - lp
    forms = {"k1": [lp - ref], "k2": [0.5 * (d * d)], "k3": [exp(d) - d - 1.0, expm1(d) - d]}[estimator]
    if kl_clamp is not None:
        forms = [clip(kl, -kl_clamp, kl_clamp) for kl in forms]
    if old is not None and kl_ratio != "none":
        log_ratio = lp - _grid(old, valid, place)
        if kl_ratio == "sequence":
            log_ratio = _mean(log_ratio * valid, valid, keepdims=True)
        forms = [kl * exp(log_ratio) for kl in forms]
    forms = [kl * valid for kl in forms]
    if reduction != "none":
        forms = [kl.sum(axis=1) if reduction == "sum" else _mean(kl, valid) for kl in forms]
    found = widest(forms)
    return {"kl": found[place].reshape(np.shape(policy)) if reduction == "none" else found}


def full_kl(policy_logprobs: npt.ArrayLike, reference_logprobs: npt.ArrayLike) -> dict[str, Floats]:
    """Return the limits of `kl`, as one sum and as cross-entropy minus entropy.

    Tokens that the policy cannot draw are selected away.

    Args:
        policy_logprobs: (..., V) log-probs in nats.
        reference_logprobs: of the same shape.

    Returns:
        `kl`: (...) float64; inf where the divergence is infinite.

    Source: torch's `kl_div` with `log_target=True` sums exp(p) (p - q).
    """
    policy, reference = np.asarray(policy_logprobs), np.asarray(reference_logprobs)
    possible = policy > -np.inf
    lp, ref = (number(np.where(possible, x, 0.0).astype(policy.dtype)) for x in (policy, reference))
    p = exp(lp) * possible
    together = (p * (lp - ref)).sum(axis=-1)
    apart = (p * lp).sum(axis=-1) - (p * ref).sum(axis=-1)
    return {"kl": widest([together, accurate(apart)])}


def _slots(shape: tuple[int, ...], mask: npt.ArrayLike | None, lengths: npt.ArrayLike | None) -> tuple[Bools, Bools]:
    """Return which slots of a (B, T) grid hold a token, and which of its slots are those of `policy`, in order."""
    if len(shape) == 1:
        counts = np.asarray([shape[0]] if lengths is None else lengths)
        valid = np.arange(max(1, int(counts.max()))) < counts[:, None]
        return valid, valid
    if lengths is not None:
        mask = np.arange(shape[1]) < np.asarray(lengths)[:, None]
    return np.ones(shape, bool) if mask is None else np.asarray(mask, bool), np.ones(shape, bool)


def _grid(values: npt.ArrayLike, valid: Bools, place: Bools) -> Number:
    """Return (B, T) numbers, 0 where no token stands."""
    array = np.asarray(values)
    grid = np.zeros(valid.shape, array.dtype)
    grid[place] = array.reshape(-1)
    return number(np.where(valid, grid, 0.0).astype(array.dtype))


def _mean(values: Number, valid: Bools, *, keepdims: bool = False) -> Number:
    tokens = np.maximum(valid.sum(axis=1, keepdims=keepdims), 1)
    return values.sum(axis=1, keepdims=keepdims) / number(tokens, values.dtype)
