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

from gates.subjects import reference_loss, reference_preference, reference_run, reference_text
from reference import sums
from reference.trainer import logprobs, loop, lora, precise, sampling
from reference.trainer import model as models
from reference.trainer import rollout as rollouts
from reference.trainer.algorithms import grpo, ratio
from reference.trainer.rollout import table

Array = np.ndarray[Any, Any]
Spec = Mapping[str, Any]

VERSIONS = {"mlx": version("mlx"), "mlx_lm": version("mlx-lm"), "device": str(mx.default_device())}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    **reference_loss.CONVENTIONS,
    **reference_preference.CONVENTIONS,
    "rollout": {"path": ("naive", "cached", "prefix", "batched", "compiled")},
    "token_logits": {"dtype": ("float32", "float64")},
}


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
        before = ratio.select(mask, mx.array(np.ascontiguousarray(old, np.float32)))
        return {"ratios": np.array(ratio.select(mask, precise.exp(*ratio.token(values, before))))}


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
    settings = grpo.Settings(epsilon_low=epsilon_low, epsilon_high=epsilon_high, beta=beta)
    algorithm = grpo.Grpo(settings)
    with _policy(model, adapter) as policy:
        base_before = models.digest(models.base_parameters(policy))
        before = dict(tree_flatten(policy.parameters()))
        old_bits = {name: models.bits(x) for name, x in before.items()}
        optimizer = optimizers.Adam(learning_rate=learning_rate, bias_correction=True)
        report = loop.step(policy, optimizer, batch, advantages, temperature, algorithm)
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
    **reference_loss.OPS,
    **reference_preference.OPS,
    "rollout": rollout,
    "token_logits": token_logits,
    "completion_logprobs": completion_logprobs,
    "importance_ratios": importance_ratios,
    "train_step": train_step,
    **reference_text.OPS,
    **reference_run.OPS,
}
