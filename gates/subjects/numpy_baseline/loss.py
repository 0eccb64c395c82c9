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


class Choices(NamedTuple):
    """What an algorithm chooses: whose ratio, what bounds it, and what a token weighs."""

    level: str = "token"
    bound: str = "clip"
    aggregation: str = "row-mean"
    kl: bool = True

    @property
    def by_row(self) -> bool:
        """Whether a whole row has one advantage and one weight."""
        return self.level in {"seq_mean", "seq_sum"}


PRESETS = {
    "grpo": Choices(),
    "dapo": Choices(aggregation="token-mean"),
    "bnpo-trl": Choices(aggregation="micro-batch"),
    "dr_grpo": Choices(aggregation="constant"),
    "gspo": Choices("seq_mean"),
    "gspo-token": Choices("seq_mean_token"),
    "rloo": Choices("seq_sum", "none", kl=False),
    "cispo": Choices(bound="cap", aggregation="token-mean"),
    "sapo": Choices(bound="gate"),
    "gmpo": Choices("seq_mean", "log-clip"),
    "luspo": Choices("seq_mean", aggregation="row-sum"),
    "reinforce": Choices("none", "none"),
    "reinforce++": Choices(aggregation="token-mean", kl=False),
    "ppo": Choices(aggregation="token-mean"),
    "vespo": Choices("seq_sum", "taper", "token-mean"),
}


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
    ratio_level: str | None = None,
    bound: str | None = None,
    aggregation: str | None = None,
    kl_aggregation: str | None = None,
    count_eps: float | None = None,
    **bounds: Any,
) -> tuple[float, Array]:
    """Return the loss to minimise and its gradient with respect to the policy's log-probs."""
    chosen = _chosen(algorithm, ratio_level, bound, aggregation)
    like = np.asarray(policy)
    if like.ndim == 2 and not like.size:
        raise ValueError(f"`policy` has shape {like.shape}, must have a row and a slot at least")
    where = terms.slots(like.shape, mask, lengths)
    if row_mask is not None:
        where = without_rows(where, np.asarray(row_mask))
    lp = terms.select(where.wide("policy", policy), where.valid)
    before = terms.select(old_or_policy(lp, None if old is None else where.wide("old", old)), where.valid)
    advantage = _row_or_token("advantages", advantages, where, by_row=chosen.by_row)
    step = Step(lp, before, advantage, where.valid, where.valid.sum(axis=1, keepdims=True))
    weight = ROW_WEIGHTS[chosen.aggregation](
        where.valid,
        max_length=max_length,
        micro_batches=micro_batches,
        dapo_denominator=dapo_denominator,
        group_size=group_size,
        tokens_in_step=tokens_in_step,
        count_eps=count_eps or 0.0,
    )[:, None]
    trust = 1.0 if weights is None else _row_or_token("weights", weights, where, by_row=chosen.by_row)
    settings = {name: None if x is None or isinstance(x, str) else _rounded(x, like) for name, x in bounds.items()}
    settings["cispo_bound"] = bounds.get("cispo_bound")
    with np.errstate(over="ignore", invalid="ignore"):
        value, slope = BOUNDS[_bound_of(chosen, settings)](step, chosen.level, settings)
        summands, gradient = weight * value * trust, weight * slope * trust
        if beta != 0.0:
            if not chosen.kl or reference is None:
                raise ValueError(
                    f"`beta` is {beta}, must be 0 without `reference`, and for {algorithm!r} if its KL is in the reward"
                )
            right = terms.select(where.wide("reference", reference), where.valid)
            kl, pull = kl_term(step, right, kl_estimator, kl_ratio, kl_clamp)
            of_kl = weight if kl_aggregation is None else _weights_of_kl(kl_aggregation, where.valid, count_eps or 0.0)
            scaled = _rounded(beta, like) * of_kl
            summands, gradient = summands + scaled * kl, gradient + scaled * pull
        loss = terms.total(terms.select(summands, where.valid))
    return loss, where.narrow(terms.select(gradient, where.valid), like)


def _weights_of_kl(aggregation: str, valid: Array, eps: float) -> Array:
    unread = dict.fromkeys(("max_length", "micro_batches", "group_size", "tokens_in_step"))
    return ROW_WEIGHTS[aggregation](valid, dapo_denominator="global", count_eps=eps, **unread)[:, None]


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
        max_length=max_length if PRESETS[algorithm].aggregation == "constant" else None,
        micro_batches=sizes if PRESETS[algorithm].aggregation == "micro-batch" else None,
        dapo_denominator=dapo_denominator,
        group_size=group_size if dapo_denominator == "group" else None,
        tokens_in_step=float(counts.sum()) if dapo_denominator == "trl" else None,
        **_DEFAULTS.get(PRESETS[algorithm].bound, {}),
    )


_DEFAULTS: dict[str, dict[str, Any]] = {
    "cap": {"cispo_bound": "relative"},
    "gate": {"sapo_temperature_positive": 1.0, "sapo_temperature_negative": 1.05},
    "taper": {
        "vespo_k_positive": 2.0,
        "vespo_lambda_positive": 3.0,
        "vespo_k_negative": 3.0,
        "vespo_lambda_negative": 2.0,
    },
}


def _chosen(algorithm: str, ratio_level: str | None, bound: str | None, aggregation: str | None) -> Choices:
    """Return the algorithm's choices, with those that are named beside it."""
    arguments.one_of("algorithm", algorithm, tuple(PRESETS))
    other: dict[str, Any] = {"level": ratio_level, "bound": bound, "aggregation": aggregation}
    chosen = PRESETS[algorithm]._replace(**{name: word for name, word in other.items() if word is not None})
    arguments.one_of("ratio_level", chosen.level, ("token", "seq_mean", "seq_mean_token", "seq_sum", "none"))
    arguments.one_of("bound", chosen.bound, tuple(BOUNDS))
    arguments.one_of("aggregation", chosen.aggregation, tuple(ROW_WEIGHTS))
    if chosen.level == "none" and chosen.bound != "none":
        raise ValueError(f"`bound` is {chosen.bound!r}, must be 'none' without a ratio")
    if chosen.bound in {"cap", "taper"} and chosen.level == "seq_mean_token":
        raise ValueError(f"`ratio_level` is 'seq_mean_token', must be another one under {chosen.bound!r}")
    if chosen.bound == "log-clip" and chosen.level != "seq_mean":
        raise ValueError(f"`ratio_level` is {chosen.level!r}, must be 'seq_mean' under 'log-clip'")
    return chosen


def _bound_of(chosen: Choices, settings: dict[str, Any]) -> str:
    """Return the bound; widths clip a ratio that has none of its own, as in TRL's RLOO."""
    clips = chosen.bound == "none" and chosen.level != "none" and settings.get("epsilon_low") is not None
    return "clip" if clips else chosen.bound


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


# The bounds: each takes a step and whose ratio it bounds, and returns l per token and ∂Σl/∂log-prob, both before the row's weight.


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


def _ratio(step: Step, level: str) -> tuple[Array, Array | float]:
    """Return the ratio (B, T), and how many times it the row's sum moves by with one log-prob.

    A row's mean ratio stands n times and moves by r / n: the slope is that of one ratio, as of GSPO-token's. Its product
    moves whole with each factor.
    """
    if level == "token":
        return ratios.token_ratio(step.lp, step.old), 1.0
    tokens = 1 if level == "seq_sum" else step.tokens
    ratio = ratios.sequence_ratio(step.lp, step.old, tokens) * np.ones(step.valid.shape)
    return ratio, step.tokens if level == "seq_sum" else 1.0


def _logarithm(step: Step, level: str) -> tuple[Array, Array]:
    """Return the logarithm of the ratio (B, T) and what its rounding lost."""
    high, low = terms.difference(step.lp, step.old)
    if level == "token":
        return high, low
    mean = terms.mean_of_rows(high, low, 1 if level == "seq_sum" else step.tokens)
    return mean[0] * np.ones(step.valid.shape), mean[1] * np.ones(step.valid.shape)


def _unbounded(step: Step, level: str, settings: dict[str, Any]) -> tuple[Array, Array]:
    _refuse(settings, "epsilon_low", "epsilon_high", "delta")
    if level == "none":
        return -step.advantage * step.lp, -step.advantage
    ratio, moves = _ratio(step, level)
    value = -_scaled(ratio, step.advantage)
    return value, value * moves


def _clipped(step: Step, level: str, settings: dict[str, Any]) -> tuple[Array, Array]:
    ratio, moves = _ratio(step, level)
    value, slope = clipped(ratio, step.advantage, *_bounds(settings))
    return value, slope * moves


def clipped(ratio: Array, advantage: Array, low: float, high: float, cap: float) -> tuple[Array, Array]:
    """Return l = -min(min(r, δ)·A, clip(r)·A) and its slope, 0 strictly outside the bound for A's sign."""
    positive = advantage > 0.0
    held = np.where(positive, np.minimum(ratio, high), np.minimum(np.maximum(ratio, low), cap))
    free = np.where(positive, ratio <= high, (ratio >= low) & (ratio <= cap))
    return -_scaled(held, advantage), -_scaled(ratio, np.where(free, advantage, 0.0))


def _scaled(ratio: Array, advantage: Array) -> Array:
    """Return r·A, which is 0 for A = 0 even if the ratio is infinite."""
    return terms.select(np.where(advantage != 0.0, ratio, 0.0) * advantage, advantage != 0.0)


def _capped(step: Step, level: str, settings: dict[str, Any]) -> tuple[Array, Array]:
    _refuse(settings, "delta")
    arguments.one_of("cispo_bound", settings["cispo_bound"], ("relative", "absolute"))
    width = _need(settings, "epsilon_high", above=0.0)
    low = 0.0 if settings.get("epsilon_low") is None else 1.0 - _need(settings, "epsilon_low")
    return truncated(step, 1.0 + width if settings["cispo_bound"] == "relative" else width, level, low)


def truncated(step: Step, cap: float, level: str = "token", low: float = 0.0) -> tuple[Array, Array]:
    """Return l = -stop(min(max(r, low), c))·A·lp: the ratio is a constant, so every token keeps a gradient."""
    return _weighed(step, np.minimum(np.maximum(_ratio(step, level)[0], low), cap))


def _weighed(step: Step, weight: Array) -> tuple[Array, Array]:
    slope = -_scaled(weight, step.advantage)
    return slope * step.lp, slope


def _tapered(step: Step, level: str, settings: dict[str, Any]) -> tuple[Array, Array]:
    _refuse(settings, "epsilon_low", "epsilon_high", "delta")
    power, rate = (
        np.where(step.advantage >= 0.0, *(_need(settings, f"vespo_{name}_{sign}") for sign in ("positive", "negative")))
        for name in ("k", "lambda")
    )
    return _weighed(step, tapered(*_logarithm(step, level), power, rate))


def tapered(high: Array, low: Array, power: Array, rate: Array) -> Array:
    """Return e^λ·r^k·e^(-λr) = exp(k·log r - λ·(r - 1)) of log r = high + low."""
    excess = np.expm1(high) + np.where(np.isfinite(np.exp(high)), np.exp(high) * low, 0.0)
    return np.exp(power * high - rate * excess) * (1.0 + power * low)


def _gated(step: Step, level: str, settings: dict[str, Any]) -> tuple[Array, Array]:
    _refuse(settings, "epsilon_low", "epsilon_high", "delta")
    up, down = (_need(settings, f"sapo_temperature_{side}", above=0.0) for side in ("positive", "negative"))
    (high, low), moves = _logarithm(step, level), _ratio(step, level)[1]
    ratio = terms.exponential(high, low)
    excess = np.expm1(high) + np.where(np.isfinite(ratio), ratio * low, 0.0)
    value, slope = gate(ratio, excess, np.where(step.advantage > 0.0, up, down))
    return -_scaled(value, step.advantage), -_scaled(slope, step.advantage) * moves


def gate(ratio: Array, excess: Array, temperature: Array) -> tuple[Array, Array]:
    """Return (4/τ)·σ(τ(r - 1)) and its slope 4·σ·(1 - σ)·r, 0 where the gate saturates."""
    small = np.exp(-np.abs(temperature * excess))  # exp of the positive side is infinite before this is 0
    opened = np.where(excess < 0, small, 1.0) / (1.0 + small)
    shut = np.where(excess < 0, 1.0, small) / (1.0 + small)
    return 4.0 / temperature * opened, np.where(shut > 0.0, 4.0 * opened * shut * np.where(shut > 0.0, ratio, 0.0), 0.0)


def _clipped_in_nats(step: Step, _level: str, settings: dict[str, Any]) -> tuple[Array, Array]:
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


BOUNDS: dict[str, Callable[[Step, str, dict[str, Any]], tuple[Array, Array]]] = {
    "none": _unbounded,
    "clip": _clipped,
    "log-clip": _clipped_in_nats,
    "cap": _capped,
    "gate": _gated,
    "taper": _tapered,
}


# The weight of each token of a row in the loss, (B,). A row without tokens counts in B and adds nothing.


def _row_mean(mask: Array, *, count_eps: float = 0.0, **_: object) -> Array:
    return np.where(mask.any(axis=1), 1.0 / (len(mask) * (np.maximum(mask.sum(axis=1), 1) + count_eps)), 0.0)


def _row_sum(mask: Array, **_: object) -> Array:
    return np.full(len(mask), 1.0 / len(mask))


def _block_mean(mask: Array, name: str, sizes: Sequence[int] | None, eps: float) -> Array:
    if not sizes or min(sizes) < 1 or sum(sizes) != len(mask):
        raise ValueError(f"`{name}` gives blocks of {sizes} rows, must be positive and add up to {len(mask)} rows")
    tokens = np.add.reduceat(mask.sum(axis=1), np.cumsum([0, *sizes[:-1]]))
    return np.repeat(np.where(tokens > 0, 1.0 / (np.maximum(tokens, 1) + eps), 0.0) / len(sizes), sizes)


def _dapo_weights(
    mask: Array,
    *,
    dapo_denominator: str | None = None,
    group_size: int | None = None,
    tokens_in_step: float | None = None,
    count_eps: float = 0.0,
    **_: object,
) -> Array:
    arguments.one_of("dapo_denominator", dapo_denominator, ("global", "group", "trl"))
    if dapo_denominator == "trl":
        if tokens_in_step is None or not 0.0 < tokens_in_step < math.inf:
            raise ValueError(f"`tokens_in_step` is {tokens_in_step}, must be above 0")
        return np.full(len(mask), 1.0 / (tokens_in_step + count_eps))
    size = len(mask) if dapo_denominator == "global" else group_size or len(mask) + 1
    return _block_mean(mask, "group_size", [size] * (len(mask) // size), count_eps)


def _micro_batch_weights(
    mask: Array, *, micro_batches: Sequence[int] | None = None, count_eps: float = 0.0, **_: object
) -> Array:
    return _block_mean(mask, "micro_batches", micro_batches, count_eps)


def dr_grpo_denominator(mask: Array, max_length: int) -> float:
    """Return B times the configured L_max, which is not the batch's longest row."""
    return float(len(mask) * max_length)


def _dr_grpo_weights(mask: Array, *, max_length: int | None = None, **_: object) -> Array:
    if max_length is None or max_length < 1:
        raise ValueError(f"`max_length` is {max_length}, must be the configured L_max, at least 1")
    return np.full(len(mask), 1.0 / dr_grpo_denominator(mask, max_length))


def _over_width(mask: Array, **_: object) -> Array:
    return np.full(len(mask), 1.0 / mask.size)


# A row's own loss, repeated over its tokens and averaged over them, is itself: those of whole rows weigh as GRPO does.
ROW_WEIGHTS: dict[str, Callable[..., Array]] = {
    "row-mean": _row_mean,
    "row-sum": _row_sum,  # n_i times the row's mean
    "token-mean": _dapo_weights,
    "micro-batch": _micro_batch_weights,
    "constant": _dr_grpo_weights,
    "width": _over_width,
}
