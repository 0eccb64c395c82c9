"""The NumPy baseline's preference losses of alternating chosen and rejected completions, with their gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gates.subjects.numpy_baseline import arguments, terms

if TYPE_CHECKING:
    from collections.abc import Callable

    Array = np.ndarray[Any, Any]


class Pairs(NamedTuple):
    """Pairs, chosen minus rejected: summed and averaged log-ratios, and the log-probs of both, (P, 2)."""

    ratio: Array
    mean_ratio: Array
    ratios: Array
    sums: Array
    means: Array
    tokens: Array


def preference_loss(  # noqa: PLR0913  the op's keywords
    *,
    policy: Array,
    reference: Array | None,
    mask: Array,
    loss: str,
    beta: float,
    label_smoothing: float | None = None,
    lengths: str | None = None,
    penalty: float | None = None,
    margin: float | None = None,
    nll: float | None = None,
    attention_mask: Array | None = None,
) -> tuple[float, Array]:
    """Return the mean loss over pairs and its gradient in the policy's log-probs."""
    arguments.one_of("loss", loss, tuple(LOSSES))
    like = np.asarray(policy)
    if like.ndim != 2 or len(like) % 2 or not len(like):
        raise ValueError(f"`policy` has shape {like.shape}, must be (2 P, T): chosen and rejected in turn")
    valid = counted(mask)
    lp = terms.select(arguments.wide("policy", policy, valid.shape), valid)
    base = against(lp, None if reference is None else arguments.wide("reference", reference, valid.shape), valid)
    settings = {"beta": beta, "s": label_smoothing, "penalty": penalty, "margin": margin, "nll": nll}
    constants = {name: 0.0 if x is None else float(like.dtype.type(x)) for name, x in settings.items()}
    high, low = terms.difference(lp, base)
    tokens = valid.sum(axis=1)
    chosen, rejected = sides(len(lp))
    ratios = added(high, low)
    averages = averaged(ratios, tokens)
    sums = added(lp)
    means = averaged(sums, tokens)
    pairs = Pairs(
        ratio=ratios[chosen] - ratios[rejected],
        mean_ratio=averages[chosen] - averages[rejected],
        ratios=np.stack([ratios[chosen], ratios[rejected]], axis=1),
        sums=np.stack([sums[chosen], sums[rejected]], axis=1),
        means=np.stack([means[chosen], means[rejected]], axis=1),
        tokens=np.stack([tokens[chosen], tokens[rejected]], axis=1),
    )
    if loss == "ipo":
        arguments.one_of("lengths", lengths, ("sum", "mean"))
    value, slopes = LOSSES[loss](pairs, constants, mean=lengths == "mean", likelihood=attention_mask is None)
    per_row = np.zeros(len(lp))
    per_row[chosen], per_row[rejected] = slopes[:, 0], slopes[:, 1]
    if lengths == "mean" or loss in {"simpo", "orpo"}:
        per_row /= np.maximum(tokens, 1)
    gradient = terms.select(per_row[:, None] / len(value) * np.ones(valid.shape), valid)
    mean = terms.total(value) / len(value)
    if attention_mask is not None:
        cost, pull = of_all_tokens(like, attention_mask)
        mean, gradient = mean + cost, gradient + pull
    return mean, arguments.narrow(gradient, like)


def of_all_tokens(policy: Array, attention_mask: Array) -> tuple[float, Array]:
    """Return the mean −log-prob over all tokens of the chosen rows, prompts included, and its gradient (2 P, T)."""
    chosen, _ = sides(len(policy))
    read = np.zeros(policy.shape, bool)
    read[chosen] = counted(attention_mask)[chosen]
    lp = terms.select(arguments.wide("policy", policy), read)
    return -terms.total(lp) / read.sum(), np.where(read, -1.0 / read.sum(), 0.0)


def counted(mask: Array) -> Array:
    """Return which slots hold a completion token."""
    return np.asarray(mask).astype(bool)


def sides(rows: int) -> tuple[Array, Array]:
    """Return the chosen and the rejected rows."""
    return np.arange(0, rows, 2), np.arange(1, rows, 2)


def against(policy: Array, reference: Array | None, valid: Array) -> Array:
    """Return the reference log-probs in the mask, or zeros without a reference."""
    return np.zeros(policy.shape) if reference is None else terms.select(reference, valid)


def added(high: Array, low: Array | None = None) -> Array:
    """Return each row's sum (2 P,)."""
    rest = np.zeros(high.shape) if low is None else low
    return terms.mean_of_rows(high, rest, 1)[0][:, 0]


def averaged(sums: Array, tokens: Array) -> Array:
    """Return each row's mean over its tokens (2 P,)."""
    return sums / np.maximum(tokens, 1)


def softplus(x: Array) -> Array:
    """Return log(1 + exp x)."""
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + exp(-x))."""
    return np.where(x < 0, np.exp(-np.abs(x)), 1.0) / (1.0 + np.exp(-np.abs(x)))


# Each takes the pairs and returns the loss (P,) and its slopes by the chosen and the rejected row's value, (P, 2).


def _opposite(slope: Array) -> Array:
    return np.stack([slope, -slope], axis=1)


def logistic(x: Array, beta: float, smoothing: float) -> tuple[Array, Array]:
    """Return -(1 - s) log σ(βx) - s log σ(-βx) and its slope by x."""
    z = beta * x
    value = (1.0 - smoothing) * softplus(-z) + smoothing * softplus(z)
    return value, beta * (smoothing * sigmoid(z) - (1.0 - smoothing) * sigmoid(-z))


def _dpo(pairs: Pairs, constants: dict[str, float], **_: object) -> tuple[Array, Array]:
    value, slope = logistic(pairs.ratio, constants["beta"], constants["s"])
    return value, _opposite(slope)


def _hinge(pairs: Pairs, constants: dict[str, float], **_: object) -> tuple[Array, Array]:
    z = constants["beta"] * pairs.ratio
    return np.maximum(1.0 - z, 0.0), _opposite(np.where(z < 1.0, -constants["beta"], 0.0))


def target(beta: float) -> float:
    """Return the target of IPO's regression of the margin."""
    return 0.5 / beta


def _ipo(pairs: Pairs, constants: dict[str, float], *, mean: bool, **_: object) -> tuple[Array, Array]:
    off = (pairs.mean_ratio if mean else pairs.ratio) - target(constants["beta"])
    return off * off, _opposite(2.0 * off)


def shortfall(ratios: Array) -> Array:
    """Return the drop of the chosen completion's log-ratio below 0, at least 0."""
    return np.maximum(0.0, -ratios)


def _dpop(pairs: Pairs, constants: dict[str, float], **_: object) -> tuple[Array, Array]:
    behind = shortfall(pairs.ratios[:, 0])
    value, slope = logistic(pairs.ratio - constants["penalty"] * behind, constants["beta"], 0.0)
    return value, np.stack([slope * (1.0 + constants["penalty"] * (behind > 0.0)), -slope], axis=1)


def _simpo(pairs: Pairs, constants: dict[str, float], **_: object) -> tuple[Array, Array]:
    z = with_margin(constants["beta"] * (pairs.means[:, 0] - pairs.means[:, 1]), constants)
    return softplus(-z), _opposite(-constants["beta"] * sigmoid(-z))


def with_margin(z: Array, constants: dict[str, float]) -> Array:
    """Return βx - γ."""
    return z - constants["margin"]


def log_odds(mean: Array) -> tuple[Array, Array]:
    """Return log(p / (1 - p)) of p = exp(mean), and its slope by the mean."""
    complement = -np.expm1(mean)
    return mean - np.log(complement), 1.0 / complement


def _orpo(pairs: Pairs, constants: dict[str, float], *, likelihood: bool, **_: object) -> tuple[Array, Array]:
    odds, pull = log_odds(pairs.means)
    value, slope = logistic(odds[:, 0] - odds[:, 1], 1.0, 0.0)
    own = float(likelihood)  # likelihood of the completion instead of all tokens
    slopes = constants["beta"] * _opposite(slope) * pull - np.array([own, 0.0])
    return constants["beta"] * value - own * pairs.means[:, 0], slopes


def likelihood(pairs: Pairs, weight: float) -> tuple[Array, Array | float]:
    """Return each pair's share of the mean over all chosen tokens, times the number of pairs, and its slope."""
    each = weight * len(pairs.tokens) / max(1, int(pairs.tokens[:, 0].sum()))
    return -each * pairs.sums[:, 0], -each


def _cpo(pairs: Pairs, constants: dict[str, float], **_: object) -> tuple[Array, Array]:
    value, slope = logistic(pairs.sums[:, 0] - pairs.sums[:, 1], constants["beta"], 0.0)
    cost, pull = likelihood(pairs, constants["nll"])
    return value + cost, np.stack([slope + pull, -slope], axis=1)


LOSSES: dict[str, Callable[..., tuple[Array, Array]]] = {
    "dpo": _dpo,
    "hinge": _hinge,
    "ipo": _ipo,
    "dpop": _dpop,
    "simpo": _simpo,
    "orpo": _orpo,
    "cpo": _cpo,
}


def kto_loss(
    *,
    policy: Array,
    reference: Array,
    mask: Array,
    desirable: Array,
    mismatched: Array,
    beta: float,
    desirable_weight: float,
    undesirable_weight: float,
) -> tuple[float, Array]:
    """Return the mean over rows of λ(1 - σ(±β(lr - z0))) and its gradient; z0 is a constant."""
    like, valid = np.asarray(policy), counted(mask)
    lp = terms.select(arguments.wide("policy", policy, valid.shape), valid)
    ratios = added(*terms.difference(lp, against(lp, arguments.wide("reference", reference, valid.shape), valid)))
    strength, up, down = (float(like.dtype.type(x)) for x in (beta, desirable_weight, undesirable_weight))
    good = np.asarray(desirable).astype(bool)
    sign, weight = np.where(good, 1.0, -1.0), np.where(good, up, down)
    z = sign * strength * (ratios - anchor(arguments.wide("mismatched", mismatched)))
    value = weight * sigmoid(-z)
    slope = -sign * weight * strength * sigmoid(z) * sigmoid(-z) / len(lp)
    gradient = terms.select(slope[:, None] * np.ones(valid.shape), valid)
    return terms.total(value) / len(lp), arguments.narrow(gradient, like)


def anchor(mismatched: Array) -> float:
    """Return z0, the mean log-ratio of mismatched pairs, at least 0."""
    return max(0.0, terms.total(mismatched) / mismatched.size)


def prefer(scores: Array) -> Array:
    """Return +1 for the higher score of each pair and -1 for the lower; a tie prefers the first, a NaN gives zeros."""
    first, second = arguments.wide("scores", scores).reshape(-1, 2).T
    sign = np.select([np.isnan(first + 0.0) | np.isnan(second), wins(first, second)], [0.0, 1.0], -1.0)
    return np.stack([sign, 0.0 - sign], axis=1).reshape(-1)


def wins(first: Array, second: Array) -> Array:
    """Return where the first of a pair is preferred."""
    return ~(second > first)


def best_of_n(scores: Array, group_size: int) -> Array:
    """Return the row of each group with the highest score; NaN never wins, and the first of equals does."""
    groups = arguments.wide("scores", scores).reshape(-1, group_size)
    if lost := np.flatnonzero(np.isnan(groups).all(axis=1)).tolist():
        raise ValueError(f"`scores` of group {lost[0]} are all NaN, must have one that is a number")
    return highest(groups) + group_size * np.arange(len(groups))


def highest(groups: Array) -> Array:
    """Return the index of each row's highest number (P,)."""
    best = np.fmax.reduce(groups, axis=1)
    return np.argmax(groups == best[:, None], axis=1)
