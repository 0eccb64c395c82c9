"""The NumPy baseline's policy losses, each with its gradient in the policy's log-probs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gates.subjects.numpy_baseline import arguments, terms
from gates.subjects.numpy_baseline import ratio as ratios

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Array = np.ndarray[Any, Any]

BY_ROW = frozenset(("gspo", "rloo", "gmpo", "luspo"))  # losses with one advantage and one weight a row


class Step(NamedTuple):
    """The tokens of a step, (B, T) each, 0 in masked slots; `tokens` is (B, 1)."""

    lp: Array
    old: Array
    advantage: Array
    valid: Array
    tokens: Array


def policy_loss(  # noqa: PLR0913  the op's keywords
    *,
    policy: Array,
    old: Array | None = None,
    reference: Array | None = None,
    advantages: Array,
    mask: Array | None = None,
    lengths: Array | None = None,
    row_mask: Array | None = None,
    algorithm: str,
    beta: float = 0.0,
    kl_estimator: str | None = "k3",
    kl_ratio: str | None = "none",
    kl_clamp: float | None = None,
    weights: Array | None = None,
    max_length: int | None = None,
    micro_batches: Sequence[int] | None = None,
    dapo_denominator: str | None = None,
    group_size: int | None = None,
    tokens_in_step: float | None = None,
    **bounds: Any,
) -> tuple[float, Array]:
    """Return the loss to minimise and its gradient with respect to the policy's log-probs."""
    arguments.one_of("algorithm", algorithm, tuple(SURROGATES))
    like = np.asarray(policy)
    if like.ndim == 2 and not like.size:
        raise ValueError(f"`policy` has shape {like.shape}, must have a row and a slot at least")
    where = terms.slots(like.shape, mask, lengths)
    if row_mask is not None:
        where = without_rows(where, np.asarray(row_mask))
    lp = terms.select(where.wide("policy", policy), where.valid)
    before = terms.select(old_or_policy(lp, None if old is None else where.wide("old", old)), where.valid)
    advantage = _row_or_token("advantages", advantages, where, by_row=algorithm in BY_ROW)
    step = Step(lp, before, advantage, where.valid, where.valid.sum(axis=1, keepdims=True))
    weight = ROW_WEIGHTS[algorithm](
        where.valid,
        max_length=max_length,
        micro_batches=micro_batches,
        dapo_denominator=dapo_denominator,
        group_size=group_size,
        tokens_in_step=tokens_in_step,
    )[:, None]
    trust = 1.0 if weights is None else _row_or_token("weights", weights, where, by_row=algorithm in BY_ROW)
    settings = {name: None if x is None or isinstance(x, str) else _rounded(x, like) for name, x in bounds.items()}
    settings["cispo_bound"] = bounds.get("cispo_bound")
    with np.errstate(over="ignore", invalid="ignore"):
        value, slope = SURROGATES[algorithm](step, settings)
        summands, gradient = weight * value * trust, weight * slope * trust
        if beta != 0.0:
            if algorithm == "rloo" or reference is None:
                raise ValueError(f"`beta` is {beta}, must be 0 without `reference`, and for rloo (KL is in its reward)")
            right = terms.select(where.wide("reference", reference), where.valid)
            kl, pull = kl_term(step, right, kl_estimator, kl_ratio, kl_clamp)
            scaled = _rounded(beta, like) * weight
            summands, gradient = summands + scaled * kl, gradient + scaled * pull
        loss = terms.total(terms.select(summands, where.valid))
    return loss, where.narrow(terms.select(gradient, where.valid), like)


def loss_of_completions(
    *,
    lengths: Array,
    ended: Array,
    mask_truncated: bool,
    group_size: int,
    max_length: int,
    micro_batch_rows: int,
    dapo_denominator: str | None,
    algorithm: str,
    **inputs: Any,
) -> tuple[float, Array]:
    """Return the loss of sampled completions and its gradient; a truncated row, if masked, has no tokens."""
    counts = np.where(ended, lengths, 0) if mask_truncated else lengths
    rows = len(counts)
    sizes = [min(micro_batch_rows, rows - start) for start in range(0, rows, micro_batch_rows)]
    return policy_loss(
        **inputs,
        algorithm=algorithm,
        mask=np.arange(np.shape(inputs["policy"])[1]) < np.asarray(counts)[:, None],
        max_length=max_length if algorithm == "dr_grpo" else None,
        micro_batches=sizes if algorithm == "bnpo-trl" else None,
        dapo_denominator=dapo_denominator,
        group_size=group_size if dapo_denominator == "group" else None,
        tokens_in_step=float(counts.sum()) if dapo_denominator == "trl" else None,
        **_DEFAULTS.get(algorithm, {}),
    )


_DEFAULTS: dict[str, dict[str, Any]] = {
    "cispo": {"cispo_bound": "relative"},
    "sapo": {"sapo_temperature_positive": 1.0, "sapo_temperature_negative": 1.05},
}


def without_rows(where: terms.Slots, row_mask: Array) -> terms.Slots:
    """Return the slots without tokens in the rows where the mask is false."""
    if where.flat or row_mask.shape != where.valid.shape[:1]:
        raise ValueError(f"`row_mask` has shape {row_mask.shape}, must be (B,) beside (B, T)")
    return where._replace(valid=where.valid & row_mask[:, None].astype(bool))


def old_or_policy(policy: Array, old: Array | None) -> Array:
    """Return the behaviour policy's log-probs; on-policy they are the policy's own as constants."""
    return policy if old is None else old


def _rounded(value: float, like: Array) -> float:
    return float(like.dtype.type(value))


def _row_or_token(name: str, value: Array, where: terms.Slots, *, by_row: bool) -> Array:
    array = np.asarray(value)
    if array.shape == where.valid.shape[:1]:
        return np.broadcast_to(arguments.wide(name, array)[:, None], where.valid.shape)
    shape = (int(where.valid.sum()),) if where.flat else where.valid.shape
    if by_row or array.shape != shape:
        allowed = f"{where.valid.shape[:1]}" if by_row else f"{where.valid.shape[:1]} or {shape}"
        raise ValueError(f"`{name}` has shape {array.shape}, must be {allowed}")
    return terms.select(where.wide(name, array), where.valid)


# The surrogates: each takes a step and returns l per token and ∂Σl/∂log-prob, both without the row's weight.


def _refuse(settings: dict[str, Any], *names: str) -> None:
    for name in names:
        if settings.get(name) is not None:
            raise ValueError(f"`{name}` is {settings[name]}, must be None for this algorithm")


def _need(settings: dict[str, Any], name: str, *, above: float | None = None) -> float:
    value = settings.get(name)
    if value is None or not 0.0 <= value < math.inf or (above is not None and not value > above):
        raise ValueError(
            f"`{name}` is {value}, must be a number that is {'not negative' if above is None else 'above 0'}"
        )
    return float(value)


def _bounds(settings: dict[str, Any]) -> tuple[float, float, float]:
    low, high = 1.0 - _need(settings, "epsilon_low"), 1.0 + _need(settings, "epsilon_high")
    delta = settings.get("delta")
    if delta is not None and not delta > high:
        raise ValueError(f"`delta` is {delta}, must be above 1 + epsilon_high = {high}, or None")
    return low, high, math.inf if delta is None else delta


def _token(step: Step, settings: dict[str, Any]) -> tuple[Array, Array]:
    return clipped(ratios.token_ratio(step.lp, step.old), step.advantage, *_bounds(settings))


def _sequence(step: Step, settings: dict[str, Any]) -> tuple[Array, Array]:
    """The row's mean ratio occurs n times and changes by r / n with each log-prob: the slope is that of one ratio."""
    ratio = ratios.sequence_ratio(step.lp, step.old, step.tokens) * np.ones(step.valid.shape)
    return clipped(ratio, step.advantage, *_bounds(settings))


def _product(step: Step, settings: dict[str, Any]) -> tuple[Array, Array]:
    ratio = ratios.sequence_ratio(step.lp, step.old, 1) * np.ones(step.valid.shape)
    if settings.get("epsilon_low") is not None:
        value, slope = clipped(ratio, step.advantage, *_bounds(settings))
        return value, slope * step.tokens  # each factor moves the whole product
    _refuse(settings, "epsilon_high", "delta")
    value = -_scaled(ratio, step.advantage)
    return value, value * step.tokens


def clipped(ratio: Array, advantage: Array, low: float, high: float, cap: float) -> tuple[Array, Array]:
    """Return l = -min(min(r, δ)·A, clip(r)·A) and its slope, 0 strictly outside the bound for A's sign."""
    positive = advantage > 0.0
    held = np.where(positive, np.minimum(ratio, high), np.minimum(np.maximum(ratio, low), cap))
    free = np.where(positive, ratio <= high, (ratio >= low) & (ratio <= cap))
    return -_scaled(held, advantage), -_scaled(ratio, np.where(free, advantage, 0.0))


def _scaled(ratio: Array, advantage: Array) -> Array:
    """Return r·A, which is 0 for A = 0 even if the ratio is infinite."""
    return terms.select(np.where(advantage != 0.0, ratio, 0.0) * advantage, advantage != 0.0)


def _cispo(step: Step, settings: dict[str, Any]) -> tuple[Array, Array]:
    _refuse(settings, "epsilon_low", "delta")
    arguments.one_of("cispo_bound", settings["cispo_bound"], ("relative", "absolute"))
    width = _need(settings, "epsilon_high", above=0.0)
    return truncated(step, 1.0 + width if settings["cispo_bound"] == "relative" else width)


def truncated(step: Step, cap: float) -> tuple[Array, Array]:
    """Return l = -stop(min(r, c))·A·lp: the ratio is a constant, so every token has a gradient."""
    slope = -_scaled(np.minimum(ratios.token_ratio(step.lp, step.old), cap), step.advantage)
    return slope * step.lp, slope


def _sapo(step: Step, settings: dict[str, Any]) -> tuple[Array, Array]:
    _refuse(settings, "epsilon_low", "epsilon_high", "delta")
    up, down = (_need(settings, f"sapo_temperature_{side}", above=0.0) for side in ("positive", "negative"))
    high, low = terms.difference(step.lp, step.old)
    ratio = terms.exponential(high, low)
    excess = np.expm1(high) + np.where(np.isfinite(ratio), ratio * low, 0.0)
    value, slope = gate(ratio, excess, np.where(step.advantage > 0.0, up, down))
    return -_scaled(value, step.advantage), -_scaled(slope, step.advantage)


def gate(ratio: Array, excess: Array, temperature: Array) -> tuple[Array, Array]:
    """Return (4/τ)·σ(τ(r - 1)) and its slope 4·σ·(1 - σ)·r, 0 where the gate saturates."""
    small = np.exp(-np.abs(temperature * excess))  # exp of the positive side is infinite before this is 0
    opened = np.where(excess < 0, small, 1.0) / (1.0 + small)
    shut = np.where(excess < 0, 1.0, small) / (1.0 + small)
    return 4.0 / temperature * opened, np.where(shut > 0.0, 4.0 * opened * shut * np.where(shut > 0.0, ratio, 0.0), 0.0)


def _gmpo(step: Step, settings: dict[str, Any]) -> tuple[Array, Array]:
    _refuse(settings, "delta")
    high, low = terms.difference(step.lp, step.old)
    kept, free = held(high, step.advantage, _need(settings, "epsilon_low"), _need(settings, "epsilon_high"))
    mean = terms.mean_of_rows(terms.select(kept, step.valid), np.where(free, low, 0.0), step.tokens)
    value = -_scaled(terms.exponential(*mean) * np.ones(step.valid.shape), step.advantage)
    return value, np.where(free, value, 0.0)


def held(moved: Array, advantage: Array, low: float, high: float) -> tuple[Array, Array]:
    """Return q = min(D, ε_high) where A > 0, else max(D, -ε_low), in log space, and where q is D."""
    q = np.where(advantage > 0.0, np.minimum(moved, high), np.maximum(moved, -low))
    return q, q == moved


def kl_term(
    step: Step, reference: Array, estimator: str | None, kl_ratio: str | None, limit: float | None = None
) -> tuple[Array, Array]:
    """Return the estimate per token times the ratio of `kl_ratio`, and its slope through both factors.

    An estimate beyond ±limit is clipped and has no slope.
    """
    arguments.one_of("kl_estimator", estimator, ("k1", "k2", "k3"))
    arguments.one_of("kl_ratio", kl_ratio, ("none", "token", "sequence"))
    kl, pull = estimate(*terms.difference(reference, step.lp), str(estimator))
    inside = np.abs(kl) <= (math.inf if limit is None else limit)
    if limit is not None:
        kl, pull = np.clip(kl, -limit, limit), np.where(inside, pull, 0.0)
    if kl_ratio == "none":
        return kl, pull
    if kl_ratio == "token":
        ratio = ratios.token_ratio(step.lp, step.old)
        both = np.where(inside, step.lp - reference, kl) if estimator == "k3" else pull + kl  # k3 + 1 - exp(d) is -d
        return ratio * kl, ratio * both
    ratio = ratios.sequence_ratio(step.lp, step.old, step.tokens)
    mean = terms.select(kl, step.valid).sum(axis=1, keepdims=True) / np.maximum(step.tokens, 1)
    return ratio * kl, ratio * (pull + mean)


def estimate(d: Array, lost: Array, estimator: str) -> tuple[Array, Array]:
    """Return k1, k2 or k3 of d + lost and its derivative by the policy's log-prob."""
    if estimator == "k1":
        return -d, np.ones(d.shape)
    if estimator == "k2":
        return 0.5 * d * d + d * lost, -d
    rise = np.expm1(d)
    kept = np.where(np.isfinite(rise), lost, 0.0)  # where exp overflows, inf · 0 would be NaN
    bounded = np.where(np.isfinite(rise), rise, 0.0)
    return terms.k3(d) + bounded * kept, -(rise + (bounded + 1.0) * kept)


SURROGATES: dict[str, Callable[[Step, dict[str, Any]], tuple[Array, Array]]] = {
    "grpo": _token,
    "dapo": _token,
    "bnpo-trl": _token,
    "dr_grpo": _token,
    "gspo": _sequence,
    "gspo-token": _sequence,  # stop(r_i)·exp(lp - stop(lp)) has the row's value and a token's slope
    "rloo": _product,
    "cispo": _cispo,
    "sapo": _sapo,
    "gmpo": _gmpo,
    "luspo": _sequence,
}


# The weight of each token of a row in the loss, (B,). A row without tokens counts in B and adds nothing.


def _inverse(tokens: Array) -> Array:
    return np.where(tokens > 0, 1.0 / np.maximum(tokens, 1), 0.0)


def _row_mean(mask: Array, **_: object) -> Array:
    return np.where(mask.any(axis=1), 1.0 / (len(mask) * np.maximum(mask.sum(axis=1), 1)), 0.0)


def _row_sum(mask: Array, **_: object) -> Array:
    return np.full(len(mask), 1.0 / len(mask))


def _block_mean(mask: Array, name: str, sizes: Sequence[int] | None) -> Array:
    if not sizes or min(sizes) < 1 or sum(sizes) != len(mask):
        raise ValueError(f"`{name}` gives blocks of {sizes} rows, must be positive and add up to {len(mask)} rows")
    tokens = np.add.reduceat(mask.sum(axis=1), np.cumsum([0, *sizes[:-1]]))
    return np.repeat(_inverse(tokens * len(sizes)), sizes)


def _dapo_weights(
    mask: Array,
    *,
    dapo_denominator: str | None = None,
    group_size: int | None = None,
    tokens_in_step: float | None = None,
    **_: object,
) -> Array:
    arguments.one_of("dapo_denominator", dapo_denominator, ("global", "group", "trl"))
    if dapo_denominator == "trl":
        if tokens_in_step is None or not 0.0 < tokens_in_step < math.inf:
            raise ValueError(f"`tokens_in_step` is {tokens_in_step}, must be above 0")
        return np.full(len(mask), 1.0 / tokens_in_step)
    size = len(mask) if dapo_denominator == "global" else group_size or len(mask) + 1
    return _block_mean(mask, "group_size", [size] * (len(mask) // size))


def _micro_batch_weights(mask: Array, *, micro_batches: Sequence[int] | None = None, **_: object) -> Array:
    return _block_mean(mask, "micro_batches", micro_batches)


def dr_grpo_denominator(mask: Array, max_length: int) -> float:
    """Return B times the configured L_max, which is not the batch's longest row."""
    return float(len(mask) * max_length)


def _dr_grpo_weights(mask: Array, *, max_length: int | None = None, **_: object) -> Array:
    if max_length is None or max_length < 1:
        raise ValueError(f"`max_length` is {max_length}, must be the configured L_max, at least 1")
    return np.full(len(mask), 1.0 / dr_grpo_denominator(mask, max_length))


# A row loss repeated over its tokens averages to itself, so losses by row have GRPO's weights.
ROW_WEIGHTS: dict[str, Callable[..., Array]] = {
    **dict.fromkeys(("grpo", "gspo", "gspo-token", "rloo", "sapo", "gmpo"), _row_mean),
    **dict.fromkeys(("dapo", "cispo"), _dapo_weights),
    "bnpo-trl": _micro_batch_weights,
    "dr_grpo": _dr_grpo_weights,
    "luspo": _row_sum,  # n_i times the row's mean
}
