"""Rollouts of the MLX trainer, and the logits of tokens that were rolled out, as ops."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx.utils import tree_flatten, tree_unflatten

from gates_reference.trainer import logprobs, lora, sampling
from gates_reference.trainer import model as models
from gates_reference.trainer import rollout as rollouts
from gates_reference.trainer.adapters import layers
from gates_reference.trainer.rollout import table

Array = np.ndarray[Any, Any]
Spec = Mapping[str, Any]

CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "rollout": {"path": ("naive", "cached", "prefix", "batched", "compiled")},
    "token_logits": {"dtype": ("float32", "float64")},
}


def _adapter_weights(model: Any) -> dict[str, mx.array]:
    flat = dict(tree_flatten(model.parameters()))
    return {name: x for name, x in flat.items() if name.endswith(("lora_a", "lora_b", ".m"))}


def rollout(  # noqa: PLR0913  the op's keywords
    *,
    model: Spec,
    prompts: Sequence[Array],
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
    every = [[i, j] for i in range(len(prompts)) for j in range(samples)]
    request = table.Request(
        prompts=[np.asarray(prompt, np.int32).reshape(-1) for prompt in prompts],
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
        "rows": result.rows,
        "tokens": result.tokens,
        "lengths": result.lengths,
        "ended": result.ended,
        "uniforms": result.uniforms,
        "model_logprobs": result.model,
        "tempered_logprobs": result.temperature_scaled,
        "behaviour_logprobs": result.behaviour,
        "path": result.path,
        "reason": result.reason,
        **recorded,
    }


def batch(prompt_tokens: Sequence[Array], tokens: Array, lengths: Array) -> logprobs.Batch:
    """Pack given tokens behind their prompts, as the trainer's scoring takes them."""
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


class _Watched(nn.Module):
    """A router that notes, for every token (B, L), the gap in probability between its last choice and the next expert."""

    def __init__(self, router: Any, chosen: int, gaps: list[mx.array]) -> None:
        super().__init__()
        self.router, self._chosen, self._gaps = router, chosen, (gaps,)  # in a tuple: a list of arrays would be weights

    def __call__(self, x: mx.array) -> mx.array:
        gates = self.router(x)
        ranked = mx.sort(mx.softmax(gates, axis=-1, precise=True), axis=-1)
        self._gaps[0].append(ranked[..., -self._chosen] - ranked[..., -self._chosen - 1])
        return gates


@contextmanager
def _router_gaps(model: Any) -> Iterator[list[mx.array]]:
    """Watch every linear router of the model (mlx-lm's blocks have `gate` and `top_k`) that leaves an expert out.

    A router of another class, as in deepseek_v3, returns its choice and not its scores, so its gaps are not known.
    """
    gaps: list[mx.array] = []
    blocks = [m for m in model.modules() if "gate" in m and "switch_mlp" in m and hasattr(m, "top_k")]
    blocks = [m for m in blocks if isinstance(m.gate, layers.LINEAR) or layers.is_adapter(m.gate)]
    routers = [block.gate for block in blocks]
    for block in blocks:
        block.gate = _Watched(block.gate, block.top_k, gaps)
    try:
        yield gaps
    finally:
        for block, router in zip(blocks, routers, strict=True):
            block.gate = router


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

    A model that chooses experts, in float32, returns `router_gaps` (R, T) too: how far, in probability, the least of all
    choices that these logits rest on was from choosing another expert.

    In float64 the weights, quantised ones and adapters included, are float64 and so is every operation but the
    angles of the rotary embedding, which MLX computes in float32.
    """
    if dtype not in CONVENTIONS["token_logits"]["dtype"]:
        raise NotImplementedError(f"dtype {dtype!r}; this trainer has 'float32' and 'float64'")
    packed = batch(prompt_tokens, tokens, lengths)
    slots = logprobs.completion_slots(packed.prompt_lengths, packed.lengths, packed.width)
    if dtype == "float32":
        loaded = models.load(model)
        with lora.attached(loaded.model, adapter), _router_gaps(loaded.model) as gaps:
            logits = np.array(logprobs.completion_logits(loaded.model(packed.ids), slots).astype(mx.float32))
        if not gaps:
            return {"logits": logits}
        so_far = np.minimum.accumulate(np.min([np.array(gap) for gap in gaps], axis=0), axis=1)  # of any token before
        return {"logits": logits, "router_gaps": np.take_along_axis(so_far, np.array(slots.source), axis=1)}
    with mx.stream(mx.cpu), _gathered_matmul():  # the only device with float64
        loaded = models.exact(model)
        with lora.attached(loaded.model, adapter):
            return {"logits": np.array(logprobs.completion_logits(loaded.model(packed.ids), slots))}
