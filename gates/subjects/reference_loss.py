"""The reference trainer's losses as ops: log-probs or logits in, a loss and its gradient out, by MLX's value_and_grad.

A step is split where the op says so; the parts' losses and gradients are added, as the trainer's accumulation adds them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np

from reference.trainer import logprobs, precise
from reference.trainer.algorithms import advantages as rewards
from reference.trainer.algorithms import corrections, kl, options, pairs, protocol, ratio, registry
from reference.trainer.algorithms.objective import PolicyGradient

Array = np.ndarray[Any, Any]

ALGORITHMS = tuple(name for name, (kind, _) in registry.ALGORITHMS.items() if issubclass(kind, PolicyGradient))
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "policy_loss": {"dtype": ("float32",)},
    "policy_loss_in_parts": {"dtype": ("float32",)},
    "importance_ratio": {"dtype": ("float32",)},
    "importance_weights": {"dtype": ("float32",)},
    "token_kl": {"dtype": ("float32",)},
    "group_advantages": {"dtype": ("float32",)},
}
NAMES = {  # the op's words for what a Settings calls otherwise
    "dapo_denominator": "aggregation",
    "cispo_bound": "bound",
    "sapo_temperature_positive": "temperature_positive",
    "sapo_temperature_negative": "temperature_negative",
}
SETTINGS = (*NAMES, "epsilon_low", "epsilon_high", "delta", "beta", "kl_ratio", "kl_estimator")


def algorithm(name: str, constants: Mapping[str, Any]) -> protocol.Algorithm:
    """The trainer's algorithm with the op's constants; None means that it has no such constant.

    Raises:
        NotImplementedError: an algorithm that the trainer does not have.
        TypeError: a keyword that no policy loss has.
    """
    if name not in ALGORITHMS:
        raise NotImplementedError(f"algorithm {name!r}; this trainer has {', '.join(ALGORITHMS)}")
    if strangers := sorted(set(constants) - set(SETTINGS)):
        raise TypeError(f"unknown keywords {strangers}")
    given = {NAMES.get(key, key): value for key, value in constants.items() if value is not None}
    return registry.create(name, given)


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows of tokens as (B, T): they come so, or flat (N,), one row after the other."""

    mask: Array
    flat: bool

    def wide(self, name: str, values: Array) -> Array:
        """An array with a number for each token as (B, T) float32; 0 where flat rows have none."""
        array = np.asarray(values)
        expected = (int(self.mask.sum()),) if self.flat else self.mask.shape
        if array.shape != expected:
            raise ValueError(f"{name} has shape {array.shape}, must be {expected}")
        if array.dtype == np.float64:
            raise NotImplementedError(f"{name} in float64; the trainer's losses are float32")
        if not self.flat:
            return np.ascontiguousarray(array, np.float32)
        grid = np.zeros(self.mask.shape, np.float32)
        grid[self.mask] = array
        return grid

    def row_or_token(self, name: str, values: Array) -> Array:
        """(B,) as it is, or an array with a number for each token as (B, T)."""
        array = np.asarray(values)
        if array.shape != self.mask.shape[:1]:
            return self.wide(name, array)
        if array.dtype == np.float64:
            raise NotImplementedError(f"{name} in float64; the trainer's losses are float32")
        return np.ascontiguousarray(array, np.float32)

    def back(self, values: Array) -> Array:
        """A (B, T) array in the layout that came."""
        return values[self.mask] if self.flat else values


def grid_of(shape: tuple[int, ...], mask: Array | None, lengths: Array | None) -> Grid:
    """Where tokens stand in arrays of this shape: by a mask, by valid prefixes, or by the lengths of flat rows."""
    if lengths is None:
        if len(shape) != 2:
            raise ValueError(f"policy has shape {shape}, must be (B, T), or (N,) with lengths")
        marks = np.ones(shape, np.bool_) if mask is None else np.asarray(mask)
        if marks.shape != shape:
            raise ValueError(f"mask has shape {marks.shape}, must be {shape}")
        return Grid(np.ascontiguousarray(marks, np.bool_), flat=False)
    sizes = np.asarray(lengths, np.int64)
    width = shape[1] if len(shape) == 2 else int(sizes.max(initial=1))
    return Grid(np.arange(width) < sizes[:, None], flat=len(shape) == 1)


def policy_loss(**inputs: Any) -> dict[str, Any]:
    """The loss and its gradient with respect to the policy's log-probs, of a step in one part unless bnpo-trl says more."""
    return _split(sizes=inputs.pop("micro_batches", None), **inputs)


def policy_loss_in_parts(*, parts: Sequence[int], **inputs: Any) -> dict[str, Any]:
    """The sums of losses and gradients over parts of a step of these many rows."""
    inputs.pop("micro_batches", None)
    return _split(sizes=parts, **inputs)


def _split(  # noqa: PLR0913  the op's keywords
    *,
    policy: Array,
    old: Array | None,
    reference: Array | None,
    advantages: Array,
    mask: Array | None = None,
    lengths: Array | None = None,
    weights: Array | None = None,
    sizes: Sequence[int] | None,
    group_size: int | None = None,
    max_length: int | None = None,
    tokens_in_step: float | None = None,
    **constants: Any,
) -> dict[str, Any]:
    objective = algorithm(constants.pop("algorithm"), constants)
    grid = grid_of(np.shape(policy), mask, lengths)
    rows = len(grid.mask)
    by_token = {"policy": policy, "old": old, "reference": reference}
    by_either = {"advantages": advantages, "weights": weights}
    arrays = {
        **{name: grid.wide(name, x) for name, x in by_token.items() if x is not None},
        **{name: grid.row_or_token(name, x) for name, x in by_either.items() if x is not None},
    }
    groups = np.arange(rows) // (group_size or rows)
    whole = protocol.Whole(
        rows=rows,
        tokens=int(grid.mask.sum()),
        group_tokens=np.bincount(groups, weights=grid.mask.sum(axis=1)).astype(np.int64),
        parts=len(sizes or (rows,)),
        max_length=max_length or grid.mask.shape[1],
        window_tokens=tokens_in_step,
    )
    ends = np.cumsum(sizes or (rows,))
    if ends[-1] != rows:
        raise ValueError(f"parts have {sizes} rows, must add up to {rows}")
    loss, gradients = 0.0, []
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        chosen = {name: x[start:end] for name, x in arrays.items()}
        value, gradient = part_loss(objective, chosen, grid.mask[start:end], groups[start:end], whole)
        loss += value
        gradients.append(gradient)
    return {"loss": loss, "gradient": grid.back(np.concatenate(gradients))}


def part_loss(
    objective: protocol.Algorithm,
    arrays: Mapping[str, Array],
    mask: Array,
    groups: Array,
    whole: protocol.Whole,
) -> tuple[float, Array]:
    """One part's share of the loss, and its gradient (B, T)."""
    held = {name: mx.array(x) for name, x in arrays.items() if name != "policy"}

    def loss(x: mx.array) -> mx.array:
        return objective.loss(protocol.Scored(policy=x, mask=mx.array(mask), groups=groups, **held), whole).value

    value, gradient = mx.value_and_grad(loss)(mx.array(arrays["policy"]))
    return float(value), np.array(gradient)


def rewarded_loss(
    *, policy: Array, old: Array, reference: Array, mask: Array, rewards: Array, group_size: int, beta: float
) -> dict[str, Any]:
    """RLOO's step from rewards: the KL is taken from them, the advantages follow, then the loss of the whole step."""
    objective = registry.create("rloo", {"beta": beta})
    grid = grid_of(np.shape(policy), mask, None)
    arrays = {name: grid.wide(name, x) for name, x in (("policy", policy), ("old", old), ("reference", reference))}
    lengths, groups = grid.mask.sum(axis=1), np.arange(len(grid.mask)) // group_size
    scores = np.asarray(rewards, np.float64)[:, None]
    penalty = kl.in_reward(mx.array(arrays["old"]), mx.array(arrays["reference"]), mx.array(grid.mask))
    gains = objective.advantages(protocol.Rewards(scores, np.ones(1), group_size, lengths), old_kl=penalty)
    whole = protocol.whole_step(lengths, groups, parts=1, max_length=grid.mask.shape[1])
    value, gradient = part_loss(objective, {**arrays, "advantages": gains}, grid.mask, groups, whole)
    return {"loss": value, "gradient": gradient, "advantages": gains}


def loss_from_logits(  # noqa: PLR0913  the op's keywords
    *,
    logits: Array,
    ids: Array,
    prompt_lengths: Array,
    lengths: Array,
    old: Array | None,
    reference: Array | None,
    advantages: Array,
    temperature: float,
    max_length: int | None = None,
    micro_batches: Sequence[int] | None = None,
    **constants: Any,
) -> dict[str, Any]:
    """The trainer's own way from logits (B, L, V) to log-probs, loss and the gradient in the logits, in one part."""
    if micro_batches is not None:
        raise NotImplementedError("micro_batches from logits; policy_loss has them")
    objective = algorithm(constants.pop("algorithm"), constants)
    width = int(np.max(lengths)) if old is None else np.shape(old)[1]
    completions = np.asarray(lengths, np.int64)
    batch = logprobs.Batch(
        mx.array(np.ascontiguousarray(ids, dtype=np.int32)),
        np.asarray(prompt_lengths, np.int64),
        completions,
        width,
    )
    groups = np.zeros(len(completions), np.int64)
    whole = protocol.whole_step(completions, groups, parts=1, max_length=max_length or width)
    before, base = (None if x is None else mx.array(np.ascontiguousarray(x, np.float32)) for x in (old, reference))
    gain = mx.array(np.ascontiguousarray(advantages, np.float32))

    def loss(x: mx.array) -> tuple[mx.array, mx.array]:
        policy, mask = logprobs.from_logits(x, batch, temperature)
        part = protocol.Scored(policy, mask, gain, groups, before, base)
        return objective.loss(part, whole).value, policy

    variable = mx.array(np.ascontiguousarray(logits, np.float32))
    (value, policy), gradient = mx.value_and_grad(loss)(variable)
    return {"loss": float(value), "gradient": np.array(gradient), "logprobs": np.array(policy)}


def importance_ratio(
    *, policy: Array, old: Array, level: str, mask: Array | None = None, lengths: Array | None = None
) -> dict[str, Any]:
    """The ratio of each token (0 where none stands), or of each row by its mean or summed log-ratio."""
    grid = grid_of(np.shape(policy), mask, lengths)
    ours, theirs = (mx.array(grid.wide(name, x)) for name, x in (("policy", policy), ("old", old)))
    marks = mx.array(grid.mask)
    pair = ratio.token(ratio.select(marks, ours), ratio.select(marks, theirs))
    if level == "token":
        return {"ratio": grid.back(np.array(ratio.select(marks, precise.exp(*pair))))}
    counts = marks.sum(axis=1, keepdims=True).astype(mx.float32)
    row = ratio.sequence_mean(pair, counts) if level == "seq_mean" else ratio.sequence_sum(pair)
    return {"ratio": np.array(precise.exp(*row))[:, 0]}


def importance_weights(
    *,
    old: Array,
    sampling: Array,
    correction: str,
    level: str,
    c_min: float | None,
    c_max: float,
    mask: Array | None = None,
    lengths: Array | None = None,
) -> dict[str, Any]:
    """The weights of each token, or of each row."""
    grid = grid_of(np.shape(old), mask, lengths)
    ours, theirs = (mx.array(grid.wide(name, x)) for name, x in (("old", old), ("sampling", sampling)))
    found = corrections.weights(
        ours, theirs, mx.array(grid.mask), correction=correction, level=level, c_min=c_min, c_max=c_max
    )
    return {"weights": grid.back(np.array(found)) if level == "token" else np.array(found)[:, 0]}


def token_kl(
    *,
    policy: Array,
    reference: Array,
    estimator: str,
    mask: Array | None = None,
    lengths: Array | None = None,
    reduction: str,
    old: Array | None = None,
    kl_ratio: str = "none",
) -> dict[str, Any]:
    """The estimate of each token, or its sum or mean over each row."""
    if len(np.shape(policy)) == 1 and lengths is None:
        lengths = np.array(np.shape(policy))
    grid = grid_of(np.shape(policy), mask, lengths)
    marks = mx.array(grid.mask)
    ours, theirs = (
        ratio.select(marks, mx.array(grid.wide(name, x))) for name, x in (("policy", policy), ("reference", reference))
    )
    before = None if old is None else ratio.select(marks, mx.array(grid.wide("old", old)))
    counts = marks.sum(axis=1, keepdims=True).astype(mx.float32)
    values = kl.weighted(
        kl.token_kl(ours, theirs, estimator),
        ours,
        theirs,
        ratio.token(ours, before),
        counts,
        estimator=estimator,
        kl_ratio=kl_ratio,
    )
    values = ratio.select(marks, values)
    if reduction == "none":
        return {"kl": grid.back(np.array(values))}
    terms = pairs.Pair(values, mx.zeros_like(values))
    row = pairs.row_mean(terms, mx.maximum(counts, 1.0)) if reduction == "mean" else pairs.row_sum(terms)
    return {"kl": np.array(row.high + row.low)[:, 0]}


def group_advantages(
    *,
    rewards: Array,
    group_size: int,
    scale: Any,
    ddof: int | None,
    eps: float | None,
    eps_mode: str | None,
    baseline: Any,
) -> dict[str, Any]:
    """The advantages (B,) by the trainer's settings of the same names."""
    given: dict[str, Any] = {"advantage_ddof": ddof, "advantage_epsilon": eps, "advantage_epsilon_mode": eps_mode}
    settings = options.Settings(
        advantage_scale=scale,
        advantage_baseline=baseline,
        **{name: value for name, value in given.items() if value is not None},
    )
    return {"advantages": grouped(np.asarray(rewards), group_size, settings)}


def grouped(totals: Array, group_size: int, settings: options.Settings) -> Array:
    """The trainer's advantages (R,) of one reward, as float32."""
    return rewards.grouped(totals, group_size, settings)


OPS: dict[str, Callable[..., dict[str, Any]]] = {
    "policy_loss": policy_loss,
    "policy_loss_in_parts": policy_loss_in_parts,
    "rewarded_loss": rewarded_loss,
    "loss_from_logits": loss_from_logits,
    "importance_ratio": importance_ratio,
    "importance_weights": importance_weights,
    "token_kl": token_kl,
    "group_advantages": group_advantages,
}
