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
from mlx.utils import tree_flatten, tree_unflatten

from reference import sums
from reference.trainer import logprobs, loop, lora, sampling
from reference.trainer import model as models
from reference.trainer import rollout as rollouts
from reference.trainer.algorithms import grpo
from reference.trainer.rollout import table

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
    "rollout": {"path": ("naive", "cached", "prefix", "batched", "compiled")},
    "token_logits": {"dtype": ("float32", "float64")},
}
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


def _prompts(loaded: models.Loaded, prompts: Spec | Sequence[Any], *, chat: bool) -> list[Array]:
    if isinstance(prompts, Mapping):
        if prompts.get("kind") != "sums":
            raise NotImplementedError(f"data of kind {prompts.get('kind')!r}; this trainer has 'sums'")
        style = prompts.get("style", "worded")
        prompts = [row["prompt"] for row in sums.sums(int(prompts["seed"]), int(prompts["count"]), style)]
    return [_encode(loaded.tokenizer, prompt, chat=chat) for prompt in prompts]


def _encode(tokenizer: Any, prompt: Any, *, chat: bool) -> Array:
    if not isinstance(prompt, str):
        return np.asarray(prompt, np.int32).reshape(-1)
    if chat:
        message = [{"role": "user", "content": prompt}]
        return np.asarray(
            tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=False), np.int32
        )
    return np.asarray(tokenizer.encode(prompt), np.int32)


def _adapter_weights(model: Any) -> dict[str, mx.array]:
    flat = dict(tree_flatten(model.parameters()))
    return {name: x for name, x in flat.items() if name.endswith(("lora_a", "lora_b"))}


def rollout(  # noqa: PLR0913  the op's keywords
    *,
    model: Spec,
    prompts: Spec | Sequence[Any],
    samples: int,
    max_tokens: int,
    temperature: float,
    top_p: float = 1.0,
    top_k: int = 0,
    min_p: float = 0.0,
    xtc_probability: float = 0.0,
    xtc_threshold: float = 0.1,
    repetition_penalty: float = 1.0,
    order: str = "hf",
    seed: int = 0,
    round: int = 0,  # noqa: A002  the op's name for it
    eos_ids: Array,
    path: str = "batched",
    rows: Array | None = None,
    adapter: Spec | None = None,
    before: Spec | None = None,
    kv_bits: int | None = None,
    chat: bool = False,
    record_logits: bool = False,
) -> dict[str, Any]:
    """Tokens of the asked rows, prompt-major if none are named; `logits` only with `record_logits`.

    With `before` the same rows are rolled out first with that adapter, whose weights are then updated in place to those
    of `adapter`, as an optimizer does.

    Raises:
        NotImplementedError: a path that this trainer does not have, or that this model or machine cannot take.
    """
    if path not in {"auto", *rollouts.PATHS}:
        raise NotImplementedError(f"rollout path {path!r}; this trainer has {sorted(rollouts.PATHS)}")
    loaded = models.load(model)
    encoded = _prompts(loaded, prompts, chat=chat)
    every = [[i, j] for i in range(len(encoded)) for j in range(samples)]
    request = table.Request(
        prompts=encoded,
        rows=np.array(every if rows is None else rows, np.int64).reshape(-1, 2),
        samples=samples,
        max_tokens=max_tokens,
        settings=sampling.Settings(
            float(temperature),
            float(top_p),
            int(top_k),
            float(min_p),
            float(xtc_probability),
            float(xtc_threshold),
            float(repetition_penalty),
            order,
        ),
        eos_ids=np.asarray(eos_ids, np.int64).reshape(-1),
        seed=int(seed),
        round=int(round),
        record_logits=record_logits,
        kv_bits=None if kv_bits is None else int(kv_bits),
    )
    with lora.attached(loaded.model, adapter):
        after = _adapter_weights(loaded.model)
    with lora.attached(loaded.model, adapter if before is None else before):
        if before is not None:
            rollouts.run(loaded.model, request, path)
            loaded.model.update(tree_unflatten(list(after.items())))
        result = rollouts.run(loaded.model, request, path)
    if path not in {"auto", result.path}:
        raise NotImplementedError(f"rollout path {path!r}: {result.reason}")
    recorded = {} if result.logits is None else {"logits": result.logits}
    return {
        "prompt_tokens": encoded,
        "rows": result.rows,
        "tokens": result.tokens,
        "lengths": result.lengths,
        "ended": result.ended,
        "uniforms": result.uniforms,
        "model_logprobs": result.model,
        "tempered_logprobs": result.tempered,
        "behaviour_logprobs": result.behaviour,
        "path": result.path,
        "reason": result.reason,
        **recorded,
    }


def _batch(prompt_tokens: Sequence[Array], tokens: Array, lengths: Array) -> logprobs.Batch:
    return logprobs.pack([np.asarray(p, np.int32) for p in prompt_tokens], np.asarray(tokens), np.asarray(lengths))


@contextmanager
def _gathered_matmul() -> Iterator[None]:
    """Let `mx.gather_mm` gather its matrices and multiply: MLX has it in float32 only, and experts need it."""
    original = mx.gather_mm

    def gather_mm(a: mx.array, b: mx.array, *, rhs_indices: mx.array, **unread: Any) -> mx.array:
        if a.dtype != mx.float64:
            return original(a, b, rhs_indices=rhs_indices, **unread)
        return a @ b[rhs_indices]

    mx.gather_mm = gather_mm  # type: ignore[assignment]  # only as experts call it
    try:
        yield
    finally:
        mx.gather_mm = original


def token_logits(
    *,
    model: Spec,
    prompt_tokens: Sequence[Array],
    tokens: Array,
    lengths: Array,
    dtype: str = "float32",
    adapter: Spec | None = None,
) -> dict[str, Any]:
    """The logits (R, T, V) that score given tokens, by one full forward; zeros past the end of a row.

    In float64 the weights, quantised ones and adapters included, are float64 and so is every operation but the
    angles of the rotary embedding, which MLX computes in float32.
    """
    if dtype not in CONVENTIONS["token_logits"]["dtype"]:
        raise NotImplementedError(f"dtype {dtype!r}; this trainer has 'float32' and 'float64'")
    batch = _batch(prompt_tokens, tokens, lengths)
    slots = logprobs.completion_slots(batch.prompt_lengths, batch.lengths, batch.width)
    if dtype == "float32":
        loaded = models.load(model)
        with lora.attached(loaded.model, adapter):
            return {"logits": np.array(logprobs.completion_logits(loaded.model(batch.ids), slots).astype(mx.float32))}
    with mx.stream(mx.cpu), _gathered_matmul():  # the only device with float64
        loaded = models.exact(model)
        with lora.attached(loaded.model, adapter):
            return {"logits": np.array(logprobs.completion_logits(loaded.model(batch.ids), slots))}


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
        values, _ = logprobs.of_model(policy, _batch(prompt_tokens, tokens, lengths), temperature)
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
        values, mask = logprobs.of_model(policy, _batch(prompt_tokens, tokens, lengths), temperature)
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
    batch = _batch(prompt_tokens, tokens, lengths)
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
