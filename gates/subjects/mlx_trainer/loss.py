"""The MLX trainer's losses as ops: log-probs or logits in, a loss and its gradient out, by MLX's value_and_grad.

A step is split where the op says so; the parts' losses and gradients are added, as the trainer's accumulation adds them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np

from gates.subjects.mlx_trainer.rows import grid_of
from gates_reference.trainer import logprobs
from gates_reference.trainer.algorithms import entropy as entropies
from gates_reference.trainer.algorithms import protocol, ratio, registry
from gates_reference.trainer.algorithms.objective import PolicyGradient
from gates_reference.trainer.data.prompts import Prompt
from gates_reference.trainer.engine import micro_batches
from gates_reference.trainer.engine.rollout import Generation

Array = np.ndarray[Any, Any]

ALGORITHMS = tuple(name for name, (kind, _) in registry.ALGORITHMS.items() if issubclass(kind, PolicyGradient))
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "policy_loss": {
        "dtype": ("float32",),
        "algorithm": ALGORITHMS,
        "rows": ("mask", "holes", "all", "lengths", "flat"),
        "ratio_level": (None,),
        "bound": (None,),
        "aggregation": (None, "row-mean", "row-sum", "token-mean", "micro-batch", "constant", "width"),
        "lower_bound": (False, True),
    },
    "policy_loss_in_parts": {"dtype": ("float32",), "algorithm": ALGORITHMS},
    **{op: {"algorithm": ALGORITHMS} for op in ("loss_of_completions", "loss_constants")},
    "loss_from_logits": {"algorithm": tuple(name for name in ALGORITHMS if name != "bnpo-trl")},
    "loss_with_options": {"algorithm": ALGORITHMS, "nan_sampling": ("unrecorded",)},
}
NAMES = {  # the op's words for what a Settings calls otherwise
    "dapo_denominator": "aggregation",
    "cispo_bound": "bound",
    "sapo_temperature_positive": "temperature_positive",
    "sapo_temperature_negative": "temperature_negative",
    **{f"vespo_{name}": name for name in ("k_positive", "lambda_positive", "k_negative", "lambda_negative")},
}
SETTINGS = (*NAMES, "epsilon_low", "epsilon_high", "delta", "beta", "kl_ratio", "kl_estimator")


def algorithm(name: str, constants: Mapping[str, Any], aggregation: str | None = None) -> protocol.Algorithm:
    """The trainer's algorithm with the op's constants; None means that it has no such constant.

    Raises:
        NotImplementedError: an algorithm that the trainer does not have.
        TypeError: a keyword that no policy loss has.
    """
    if name not in ALGORITHMS:
        raise NotImplementedError(f"algorithm {name!r}; this trainer has {', '.join(ALGORITHMS)}")
    if strangers := sorted(set(constants) - set(SETTINGS)):
        raise TypeError(f"unknown keywords {strangers}")
    if constants.get("beta") and registry.settings_of(name)().kl_in_reward:
        raise ValueError(f"beta is {constants['beta']}, must be 0: the KL of {name!r} is in its reward")
    unread = {"kl_ratio", "kl_estimator"} if not constants.get("beta") else set()
    given = {NAMES.get(key, key): x for key, x in constants.items() if x is not None and key not in unread}
    if "delta" in constants and hasattr(registry.settings_of(name), "delta"):  # PPO's default is a bound
        given["delta"] = constants["delta"]
    if aggregation not in {None, "token-mean"}:  # a mean over tokens is named by its denominator
        given["aggregation"] = aggregation
    return registry.create(name, given)


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
    objective = algorithm(constants.pop("algorithm"), constants, constants.pop("aggregation", None))
    grid = grid_of(np.shape(policy), mask, lengths)
    rows = len(grid.mask)
    by_token = {"policy": policy, "old": old, "reference": reference}
    by_either = {"advantages": advantages, "weights": weights}
    arrays = {
        **{name: grid.wide(name, x) for name, x in by_token.items() if x is not None},
        **{name: grid.row_or_token(name, x) for name, x in by_either.items() if x is not None},
    }
    groups = np.arange(rows) // (group_size or rows)
    whole = protocol.StepTotals(
        rows=rows,
        tokens=int(grid.mask.sum()),
        group_tokens=np.bincount(groups, weights=grid.mask.sum(axis=1)).astype(np.int64),
        micro_batches=len(sizes or (rows,)),
        max_length=max_length or grid.mask.shape[1],
        window_tokens=tokens_in_step,
        width=grid.mask.shape[1],
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
    whole: protocol.StepTotals,
) -> tuple[float, Array]:
    """One part's share of the loss, and its gradient (B, T)."""
    held = {name: mx.array(x) for name, x in arrays.items() if name != "policy"}

    def loss(x: mx.array) -> mx.array:
        return objective.loss(protocol.MicroBatch(policy=x, mask=mx.array(mask), groups=groups, **held), whole).value

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
    penalty = ratio.kl_in_reward(arrays["old"], arrays["reference"], grid.mask)
    advantages = objective.advantages(protocol.Rewards(scores, np.ones(1), group_size, lengths), old_kl=penalty)
    whole = protocol.step_totals(lengths, groups, micro_batches=1, max_length=grid.mask.shape[1])
    value, gradient = part_loss(objective, {**arrays, "advantages": advantages}, grid.mask, groups, whole)
    return {"loss": value, "gradient": gradient, "advantages": advantages}


def loss_with_options(
    *, policy: Array, entropy: Array, mask: Array, parts: Sequence[int], algorithm: str, **rest: Any
) -> dict[str, Any]:
    """A step's loss in parts with everything on, and its gradients in log-probs and in entropies."""
    constants = {name: rest.pop(name) for name in tuple(rest) if np.ndim(rest[name]) == 0}
    objective = registry.create(algorithm, {name: value for name, value in constants.items() if value is not None})
    marks = np.ascontiguousarray(mask, np.bool_)
    found = entropies.threshold(entropy, marks, constants["entropy_share"])
    groups = np.zeros(len(marks), np.int64)
    counts = protocol.step_totals(marks.sum(axis=1), groups, micro_batches=len(parts), max_length=marks.shape[1])
    whole = replace(counts, entropy_threshold=found.least, entropy_tokens=found.tokens)
    loss, slopes, ends = 0.0, [], np.cumsum(parts)
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        held = {name: mx.array(np.ascontiguousarray(x[start:end], np.float32)) for name, x in rest.items()}
        place = {"mask": mx.array(marks[start:end]), "groups": groups[start:end]}
        differentiate = mx.value_and_grad(partial(_of_both, objective, whole, held, place), argnums=(0, 1))
        value, slope = differentiate(
            *(mx.array(np.ascontiguousarray(x[start:end], np.float32)) for x in (policy, entropy))
        )
        loss += float(value)
        slopes.append([np.array(x) for x in slope])
    gradient, entropy_gradient = (np.concatenate(x) for x in zip(*slopes, strict=True))
    return {"loss": loss, "gradient": gradient, "entropy_gradient": entropy_gradient}


def _of_both(
    objective: protocol.Algorithm,
    whole: protocol.StepTotals,
    held: Mapping[str, Any],
    place: Mapping[str, Any],
    policy: mx.array,
    entropy: mx.array,
) -> mx.array:
    return objective.loss(protocol.MicroBatch(policy=policy, entropy=entropy, **held, **place), whole).value


def loss_of_completions(  # noqa: PLR0913  the op's keywords
    *,
    policy: Array,
    old: Array,
    reference: Array | None,
    advantages: Array,
    lengths: Array,
    ended: Array,
    mask_truncated: bool,
    group_size: int,
    max_length: int,
    micro_batch_rows: int,
    **constants: Any,
) -> dict[str, Any]:
    """A step's loss of sampled completions and its gradient, in the micro-batches into which the trainer cuts them."""
    objective = algorithm(constants.pop("algorithm"), constants)
    prompts = [Prompt(n, "", np.ones(1, np.int32), None, {}) for n in range(len(lengths) // group_size)]
    made = Generation(
        prompts=prompts,
        samples=[],
        rewards=protocol.Rewards(np.zeros((len(lengths), 1)), np.ones(1), group_size, lengths),
        tokens=np.zeros(np.shape(policy), np.int32),
        lengths=lengths,
        ended=ended,
        model=policy,
        temperature_scaled=policy,
        behaviour=policy,
        taken=len(prompts),
    )
    made = micro_batches.without_truncated(made) if mask_truncated else made
    (step,) = micro_batches.cut(made, 1, micro_batch_rows, max_length)
    arrays = {"policy": policy, "old": old, "reference": reference}
    loss, gradient = 0.0, np.zeros(np.shape(policy), np.float32)
    for part in step.micro_batches:
        width = part.batch.width
        own = {name: x[part.rows, :width] for name, x in arrays.items() if x is not None}
        mask = logprobs.completion_slots(part.batch.prompt_lengths, part.batch.lengths, width).mask
        gains = {"advantages": np.asarray(advantages)[part.rows]}
        value, slope = part_loss(objective, {**own, **gains}, np.array(mask), part.groups, step.totals)
        loss += value
        gradient[part.rows, :width] = slope
    return {"loss": loss, "gradient": gradient}


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
    whole = protocol.step_totals(completions, groups, micro_batches=1, max_length=max_length or width)
    before, base = (None if x is None else mx.array(np.ascontiguousarray(x, np.float32)) for x in (old, reference))
    constant = mx.array(np.ascontiguousarray(advantages, np.float32))

    def loss(x: mx.array) -> tuple[mx.array, mx.array]:
        policy, mask = logprobs.from_logits(x, batch, temperature)
        part = protocol.MicroBatch(policy, mask, constant, groups, before, base)
        return objective.loss(part, whole).value, policy

    variable = mx.array(np.ascontiguousarray(logits, np.float32))
    (value, policy), gradient = mx.value_and_grad(loss)(variable)
    return {"loss": float(value), "gradient": np.array(gradient), "logprobs": np.array(policy)}


OPS: dict[str, Callable[..., dict[str, Any]]] = {
    "policy_loss": policy_loss,
    "policy_loss_in_parts": policy_loss_in_parts,
    "rewarded_loss": rewarded_loss,
    "loss_with_options": loss_with_options,
    "loss_of_completions": loss_of_completions,
    "loss_from_logits": loss_from_logits,
}
