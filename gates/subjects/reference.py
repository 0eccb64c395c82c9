"""The reference trainer as a subject. Arrays come and go as NumPy; models and adapters come as specs.

Every call is independent: a model is cached by its spec, adapters are put on for one call and taken off again. With
`adapter=None` the layers are those of the base itself.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import optimizers
from mlx.utils import tree_flatten

from gates.subjects import reference_rollout
from reference.trainer import logprobs, loop, lora
from reference.trainer import model as models
from reference.trainer.algorithms import grpo

Array = np.ndarray[Any, Any]
Spec = Mapping[str, Any]

VERSIONS = {"mlx": version("mlx"), "mlx_lm": version("mlx-lm"), "device": str(mx.default_device())}
LOSS_CONVENTIONS = {"algorithm": ("grpo",), "kl_ratio": ("none",)}
POLICY_LOSS_CONVENTIONS = {
    **LOSS_CONVENTIONS,
    "kl_estimator": ("k3",),
    "rows": ("mask",),
    "weights": (False,),
    "dtype": ("float32",),
}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "policy_loss": POLICY_LOSS_CONVENTIONS,
    "loss_from_logits": LOSS_CONVENTIONS,
    **reference_rollout.CONVENTIONS,
}
rollout, token_logits = reference_rollout.rollout, reference_rollout.token_logits
OTHER_LOSSES = frozenset(  # what only losses read that this trainer does not have
    (
        "max_length",
        "micro_batches",
        "dapo_denominator",
        "group_size",
        "tokens_in_step",
        "cispo_bound",
        "sapo_temperature_positive",
        "sapo_temperature_negative",
    )
)


def _settings(
    *,
    algorithm: str = "grpo",
    epsilon_low: float = 0.2,
    epsilon_high: float = 0.2,
    delta: float | None = None,
    beta: float = 0.0,
    kl_ratio: str | None = "none",
    kl_estimator: str | None = "k3",
    **unread: Any,
) -> grpo.Settings:
    """The loss's constants; what GRPO's mean over rows of means does not read may be given and is ignored.

    Raises:
        NotImplementedError: another algorithm or estimator, a KL weighted by the ratio, or off-policy weights.
        TypeError: a keyword that no policy loss has.
    """
    if algorithm != "grpo":
        raise NotImplementedError(f"algorithm {algorithm!r}; this trainer has 'grpo'")
    if beta and kl_ratio not in {None, "none"}:
        raise NotImplementedError(f"kl_ratio {kl_ratio!r}; this trainer has 'none'")
    if beta and kl_estimator != "k3":
        raise NotImplementedError(f"kl_estimator {kl_estimator!r}; this trainer has 'k3'")
    if unread.pop("weights", None) is not None:
        raise NotImplementedError("off-policy weights")
    other = set(unread) - OTHER_LOSSES
    if other:
        raise TypeError(f"unknown keywords {sorted(other)}")
    return grpo.Settings(epsilon_low, epsilon_high, delta, beta)


def _float(values: Array) -> mx.array:
    return mx.array(np.ascontiguousarray(values, dtype=np.float32))


def _shaped(name: str, values: Array, shapes: Sequence[tuple[int, ...]]) -> mx.array:
    if np.shape(values) not in shapes:
        raise ValueError(f"{name} has shape {np.shape(values)}, must be {' or '.join(map(str, shapes))}")
    if np.asarray(values).dtype == np.float64:
        raise NotImplementedError(f"{name} in float64; the trainer's losses are float32")
    return _float(values)


def policy_loss(
    *,
    policy: Array,
    old: Array | None,
    reference: Array | None,
    advantages: Array,
    mask: Array | None = None,
    lengths: Array | None = None,
    **constants: Any,
) -> dict[str, Any]:
    """The loss and its gradient with respect to the policy's log-probs (B, T), by MLX's value_and_grad."""
    settings = _settings(**constants)
    if mask is None or lengths is not None:
        raise NotImplementedError("rows by lengths; this trainer's losses take a mask")
    shape = np.shape(policy)
    variable = _shaped("policy", policy, [shape])
    before = None if old is None else _shaped("old", old, [shape])
    base = None if reference is None else _shaped("reference", reference, [shape])
    gain = _shaped("advantages", advantages, [shape[:1], shape])
    if np.shape(mask) != shape:
        raise ValueError(f"mask has shape {np.shape(mask)}, must be {shape}")
    valid = mx.array(np.ascontiguousarray(mask, dtype=np.bool_))

    def loss(x: mx.array) -> mx.array:
        return grpo.loss(x, before, base, gain, valid, settings)

    value, gradient = mx.value_and_grad(loss)(variable)
    return {"loss": float(value), "gradient": np.array(gradient)}


def loss_from_logits(
    *,
    logits: Array,
    ids: Array,
    prompt_lengths: Array,
    lengths: Array,
    old: Array | None,
    reference: Array | None,
    advantages: Array,
    temperature: float,
    **constants: Any,
) -> dict[str, Any]:
    """The trainer's own way from logits (B, L, V) to log-probs, loss and the gradient in the logits."""
    settings = _settings(**constants)
    width = int(np.max(lengths)) if old is None else np.shape(old)[1]
    batch = logprobs.Batch(
        mx.array(np.ascontiguousarray(ids, dtype=np.int32)),
        np.asarray(prompt_lengths, np.int64),
        np.asarray(lengths, np.int64),
        width,
    )
    before = None if old is None else _float(old)
    base = None if reference is None else _float(reference)
    gain = _float(advantages)

    def loss(x: mx.array) -> tuple[mx.array, mx.array]:
        policy, mask = logprobs.from_logits(x, batch, temperature)
        return grpo.loss(policy, before, base, gain, mask, settings), policy

    (value, policy), gradient = mx.value_and_grad(loss)(_float(logits))
    return {"loss": float(value), "gradient": np.array(gradient), "logprobs": np.array(policy)}


@contextmanager
def _policy(model: Spec, adapter: Spec | None, *, adapters_on: bool = True) -> Iterator[Any]:
    loaded = models.load(model).model
    with lora.attached(loaded, adapter):
        if adapters_on:
            yield loaded
        else:
            with lora.adapters_off(loaded):
                yield loaded


def completion_logprobs(
    *,
    model: Spec,
    prompt_tokens: Sequence[Array],
    tokens: Array,
    lengths: Array,
    temperature: float,
    adapter: Spec | None = None,
    adapters_on: bool = True,
) -> dict[str, Any]:
    """The tokens' log-probs (R, T) by a full forward, 0 in masked slots; `adapters_on=False` is the reference pass."""
    with _policy(model, adapter, adapters_on=adapters_on) as policy:
        values, _ = logprobs.of_model(policy, reference_rollout.batch(prompt_tokens, tokens, lengths), temperature)
        return {"logprobs": np.array(values)}


def importance_ratios(
    *,
    model: Spec,
    prompt_tokens: Sequence[Array],
    tokens: Array,
    lengths: Array,
    temperature: float,
    adapter: Spec | None = None,
    old: Array,
) -> dict[str, Any]:
    """exp(policy - old) (R, T) with the policy recomputed by a full forward; 0 in masked slots."""
    with _policy(model, adapter) as policy:
        values, mask = logprobs.of_model(policy, reference_rollout.batch(prompt_tokens, tokens, lengths), temperature)
        before = grpo.select(mask, _float(old))
        return {"ratios": np.array(grpo.select(mask, grpo.token_ratio(values, before)))}


def train_step(  # noqa: PLR0913  the op's keywords
    *,
    model: Spec,
    adapter: Spec,
    prompt_tokens: Sequence[Array],
    tokens: Array,
    lengths: Array,
    rewards: Array,
    group_size: int,
    learning_rate: float,
    epsilon_low: float = 0.2,
    epsilon_high: float = 0.2,
    beta: float = 0.0,
    temperature: float = 1.0,
) -> dict[str, Any]:
    """One Adam step of GRPO on a fresh adapter, which is thrown away afterwards, and what it changed."""
    batch = reference_rollout.batch(prompt_tokens, tokens, lengths)
    advantages = loop.group_advantages(rewards, group_size)
    settings = _settings(epsilon_low=epsilon_low, epsilon_high=epsilon_high, beta=beta)
    with _policy(model, adapter) as policy:
        base_before = models.digest(models.base_parameters(policy))
        before = dict(tree_flatten(policy.parameters()))
        old_bits = {name: models.bits(x) for name, x in before.items()}
        optimizer = optimizers.Adam(learning_rate=learning_rate, bias_correction=True)
        report = loop.step(policy, optimizer, batch, advantages, temperature, settings)
        after = dict(tree_flatten(policy.parameters()))
        trainable = sorted(name for name, _ in tree_flatten(policy.trainable_parameters()))
        base_after = models.digest(models.base_parameters(policy))
    if base_after != base_before:
        models.forget()  # a step that moved the base must not reach the next call
    changes = [float(mx.abs(after[name] - before[name]).max()) for name in after if name.endswith(("lora_a", "lora_b"))]
    return {
        "loss": report.loss,
        "advantages": advantages,
        "trainable": trainable,
        "changed": sorted(name for name, x in after.items() if models.bits(x) != old_bits[name]),
        "base_before": base_before,
        "base_after": base_after,
        "adapter_change": max(changes, default=0.0),
        "gradient_norm": report.gradient_norm,
        "ratio_mean": report.ratio_mean,
        "kl_mean": report.kl_mean,
    }


def model_hash(*, model: Spec) -> dict[str, Any]:
    """The sha256 over names and bits of a model's parameters: which bytes a verdict rests on."""
    return {"hash": models.digest(models.base_parameters(models.load(model).model))}


OPS: dict[str, Callable[..., dict[str, Any]]] = {
    "model_hash": model_hash,
    "policy_loss": policy_loss,
    "loss_from_logits": loss_from_logits,
    "rollout": rollout,
    "token_logits": token_logits,
    "completion_logprobs": completion_logprobs,
    "importance_ratios": importance_ratios,
    "train_step": train_step,
}
