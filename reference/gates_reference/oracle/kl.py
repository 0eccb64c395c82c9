"""The divergence of the policy from its reference, estimated per sampled token or summed over the vocabulary."""

import numpy as np
import numpy.typing as npt

from gates_reference.oracle.definitions import exact
from gates_reference.oracle.definitions import kl as definition
from gates_reference.oracle.definitions.exact import Exact
from gates_reference.oracle.definitions.kl import ESTIMATORS
from gates_reference.oracle.definitions.kl import k3_of_rounded as k3
from gates_reference.oracle.errors import kl as errors
from gates_reference.oracle.inputs import Bools, Floats, choice, floats, integers, mask_of, positive

REDUCTIONS = ("none", "sum", "mean")
KL_RATIOS = ("none", "token", "sequence")

__all__ = ["ESTIMATORS", "KL_RATIOS", "REDUCTIONS", "full_kl", "full_kl_scale", "k3", "kl_scale", "token_kl"]


def token_kl(
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
) -> Floats:
    """With d = reference - policy on tokens sampled from the policy: k1 = -d, k2 = d**2/2, k3 = exp(d) - d - 1.

    Masked slots are selected away, whatever they hold. A NaN in an unmasked slot stays NaN. With `kl_ratio` each
    token's estimate is multiplied by exp(policy - old), of the token itself or averaged in the exponent over the
    tokens of its sequence, before any reduction.

    Args:
        policy: log-probs in nats, float32 or float64; (B, T), or (N,), the sequences one after the other.
        reference: log-probs of the same shape; the difference is taken in float64.
        estimator: "k1", "k2" or "k3".
        mask: of the same shape, 1 where a token counts; or
        lengths: (B,), the valid prefix of each row; for (N,) the lengths of the sequences, which sum to N.
            With neither, every slot counts.
        reduction: "none" (shape of `policy`, 0.0 in masked slots), "sum" or "mean" per sequence ((B,), 0.0 for an
            empty one).
        old: log-probs of the policy that sampled, of the same shape; None is on-policy, where every ratio is 1.
        kl_ratio: "none", "token" or "sequence".
        kl_clamp: c above 0: estimates are clamped to [-c, c] before they are weighted or reduced; None leaves them.

    Returns:
        float64, nats.

    Raises:
        ValueError: an unknown convention, shapes or lengths that do not fit, mask and lengths together,
            a reduction or a sequence ratio of (N,) without lengths.

    Source: Schulman (2020), "Approximating KL divergence", http://joschu.net/blog/kl-approx.html; the ratio makes
    the estimate one under the current policy for tokens of another: docs/definitions.md, "KL to the reference".
    """
    choice("reduction", reduction, REDUCTIONS)
    values, counts, sequences = _terms(policy, reference, estimator, mask, lengths, kl_clamp)
    moved = _log_ratios(policy, old, kl_ratio, counts, sequences)
    weighted = values if moved is None else values * exact.exp(moved)
    return _reduce(weighted, counts, sequences, reduction)


def kl_scale(
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
) -> Floats:
    """The error of an estimate is measured in units of the sum of its absolute terms over the denominator.

    A term times a sequence's ratio counts max(1, |log ratio|) times: the rounding of the mean moves its exponential.

    Args:
        policy: as in `token_kl`.
        reference: as in `token_kl`.
        estimator: as in `token_kl`.
        mask: as in `token_kl`.
        lengths: as in `token_kl`.
        reduction: as in `token_kl`.
        old: as in `token_kl`.
        kl_ratio: as in `token_kl`.
        kl_clamp: as in `token_kl`.

    Returns:
        float64 of the shape of `token_kl`: |value| ("none"), sum |terms| ("sum"), sum |terms| / n ("mean").

    Raises:
        ValueError: as `token_kl`.

    Source: docs/definitions.md, "Accuracy".
    """
    choice("reduction", reduction, REDUCTIONS)
    values, counts, sequences = _terms(policy, reference, estimator, mask, lengths, kl_clamp)
    moved = _log_ratios(policy, old, kl_ratio, counts, sequences)
    sizes = errors.weighted_scale(values, moved, averaged=kl_ratio == "sequence")
    return _reduce(sizes, counts, sequences, reduction)


def full_kl(policy_logprobs: npt.ArrayLike, reference_logprobs: npt.ArrayLike) -> Floats:
    """KL(policy || reference) = sum_v p_v (log p_v - log q_v) over the whole vocabulary.

    Args:
        policy_logprobs: (..., V) normalised log-probs in nats; -inf is a token that cannot be drawn and adds 0.
        reference_logprobs: (..., V); -inf under a token that the policy can draw gives +inf.

    Returns:
        (...) float64, nats.

    Raises:
        ValueError: shapes that differ, or no vocabulary axis.

    Source: Kullback and Leibler (1951), eq. 2.4.
    """
    terms, shape = _full_terms(policy_logprobs, reference_logprobs)
    return np.array(definition.vocabulary_sums(terms)).reshape(shape)


def full_kl_scale(policy_logprobs: npt.ArrayLike, reference_logprobs: npt.ArrayLike) -> Floats:
    """The error of a full divergence is measured in units of sum_v |p_v (log p_v - log q_v)|.

    Args:
        policy_logprobs: as in `full_kl`.
        reference_logprobs: as in `full_kl`.

    Returns:
        (...) float64, nats.

    Raises:
        ValueError: as `full_kl`.

    Source: docs/definitions.md, "Accuracy": sums are measured by the sum of their absolute terms.
    """
    terms, shape = _full_terms(policy_logprobs, reference_logprobs)
    return errors.vocabulary_scale(terms).reshape(shape)


def _full_terms(policy_logprobs: npt.ArrayLike, reference_logprobs: npt.ArrayLike) -> tuple[Floats, tuple[int, ...]]:
    """The terms p (log p - log q) as rows of a matrix, and the shape of the result."""
    policy = floats("policy_logprobs", policy_logprobs)
    reference = floats("reference_logprobs", reference_logprobs, shape=policy.shape)
    if not policy.ndim or not policy.shape[-1]:
        raise ValueError(
            f"`policy_logprobs` has shape {policy.shape}, must have a vocabulary axis with at least one token"
        )
    rows = (array.reshape(-1, policy.shape[-1]) for array in (policy, reference))
    return definition.vocabulary_terms(*rows), policy.shape[:-1]


def _log_ratios(
    policy: npt.ArrayLike,
    old: npt.ArrayLike | None,
    kl_ratio: str,
    counts: Bools,
    sequences: list[slice] | None,
) -> Exact | None:
    """Per slot the logarithm of the ratio that multiplies its estimate; None where all ratios are 1."""
    choice("kl_ratio", kl_ratio, KL_RATIOS)
    if kl_ratio == "sequence" and counts.ndim == 1 and sequences is None:
        raise ValueError("`lengths` is None, must say where the sequences of a 1-D array end (kl_ratio 'sequence')")
    if old is None or kl_ratio == "none":
        return None
    before = np.where(counts, floats("old", old, shape=counts.shape), 0.0)
    moved = exact.difference(np.where(counts, floats("policy", policy), 0.0), before)
    if kl_ratio == "token":
        return moved
    for rows in list(range(len(counts))) if sequences is None else sequences:
        row = Exact(moved.value[None, rows], moved.rest[None, rows])
        mean = exact.row_means(row, np.count_nonzero(counts[None, rows], axis=1))
        moved.value[rows], moved.rest[rows] = mean
    return moved


def _terms(
    policy: npt.ArrayLike,
    reference: npt.ArrayLike,
    estimator: str,
    mask: npt.ArrayLike | None,
    lengths: npt.ArrayLike | None,
    kl_clamp: float | None,
) -> tuple[Floats, Bools, list[slice] | None]:
    """Per slot the estimate and whether it counts; the sequences, as slices of a ragged (N,) array."""
    choice("estimator", estimator, ESTIMATORS)
    of_policy = floats("policy", policy)
    of_reference = floats("reference", reference, shape=of_policy.shape)
    if of_policy.ndim not in (1, 2):
        raise ValueError(f"`policy` has shape {of_policy.shape}, must be (B, T), or (N,) with lengths")
    counts, sequences = _selection(of_policy.shape, mask, lengths)
    d = exact.difference(np.where(counts, of_reference, 0.0), np.where(counts, of_policy, 0.0))
    with np.errstate(invalid="ignore", over="ignore"):
        values = definition.estimate(d, estimator)
    if kl_clamp is not None:
        values = definition.clamped(values, positive("kl_clamp", kl_clamp))
    return values, counts, sequences


def _selection(
    shape: tuple[int, ...], mask: npt.ArrayLike | None, lengths: npt.ArrayLike | None
) -> tuple[Bools, list[slice] | None]:
    if mask is not None and lengths is not None:
        raise ValueError("`mask` and `lengths` are both given, must be one of them")
    if lengths is None:
        return (np.ones(shape, np.bool_) if mask is None else mask_of(mask, shape)), None
    if len(shape) == 2:
        prefix = integers("lengths", lengths, least=0, below=shape[1] + 1)
        if prefix.shape != shape[:1]:
            raise ValueError(f"`lengths` has shape {prefix.shape}, must be {shape[:1]}")
        return np.arange(shape[1]) < prefix[:, None], None
    ragged = integers("lengths", lengths, least=0)
    if ragged.ndim != 1 or ragged.sum() != shape[0]:
        raise ValueError(f"`lengths` of shape {ragged.shape} sum to {ragged.sum()}, must be 1-D and sum to {shape[0]}")
    ends = np.cumsum(ragged).tolist()
    slices = [slice(end - length, end) for end, length in zip(ends, ragged.tolist(), strict=True)]
    return np.ones(shape, np.bool_), slices


def _reduce(values: Floats, counts: Bools, sequences: list[slice] | None, reduction: str) -> Floats:
    if reduction == "none":
        return np.where(counts, values, 0.0)
    if values.ndim == 1 and sequences is None:
        raise ValueError(
            f"`lengths` is None, must say where the sequences of a 1-D array end (reduction {reduction!r})"
        )
    if sequences is None:
        rows = [row[chosen] for row, chosen in zip(values, counts, strict=True)]
    else:
        rows = [values[sequence] for sequence in sequences]
    with np.errstate(invalid="ignore", over="ignore"):
        sums = np.array([np.sum(row) for row in rows], dtype=np.float64)
        sizes = np.array([max(row.size, 1) for row in rows], dtype=np.float64)
        return sums if reduction == "sum" else sums / sizes
