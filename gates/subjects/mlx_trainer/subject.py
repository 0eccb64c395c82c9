"""The MLX trainer as a subject. Arrays come and go as NumPy; models and adapters come as specs.

Every call is independent: a model is cached by its spec, adapters are put on for one call and taken off again. With
`adapter=None` the layers are those of the base itself.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten

from gates.subjects.mlx_trainer import constants, loss, preference, run, steps, terms, text
from gates.subjects.mlx_trainer import rollout as reference_rollout
from gates_reference.trainer import double, logprobs, lora
from gates_reference.trainer import model as models
from gates_reference.trainer.algorithms import ratio
from gates_reference.trainer.config import algorithm, read
from gates_reference.trainer.engine import optimizer as optimizers
from gates_reference.trainer.engine.rollout import Source
from gates_reference.trainer.engine.step import Clock, Engine
from gates_reference.trainer.metrics import numbers
from gates_reference.trainer.rewards import combine

Array = np.ndarray[Any, Any]
Spec = Mapping[str, Any]

VERSIONS = {"mlx": version("mlx"), "mlx_lm": version("mlx-lm"), "device": str(mx.default_device())}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    **loss.CONVENTIONS,
    **preference.CONVENTIONS,
    **steps.CONVENTIONS,
    **terms.CONVENTIONS,
    **reference_rollout.CONVENTIONS,
}
rollout, token_logits = reference_rollout.rollout, reference_rollout.token_logits


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


def completion_entropies(
    *,
    model: Spec,
    prompt_tokens: Sequence[Array],
    tokens: Array,
    lengths: Array,
    temperature: float,
    adapter: Spec | None = None,
) -> dict[str, Any]:
    """The entropies (R, T) of the distributions that score the tokens, 0 in masked slots."""
    with _policy(model, adapter) as policy:
        scores = logprobs.scored(
            policy, reference_rollout.batch(prompt_tokens, tokens, lengths), temperature, entropy=True
        )
        return {"entropies": np.array(scores.entropy)}


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
        before = ratio.select(mask, mx.array(np.ascontiguousarray(old, np.float32)))
        return {"ratios": np.array(ratio.select(mask, double.exp(*ratio.token(values, before))))}


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
    checkpointing: bool = False,
) -> dict[str, Any]:
    """One step of the trainer's engine on these rows, by GRPO and Adam on a fresh adapter, and what it changed.

    The adapter is thrown away afterwards. With `checkpointing` the blocks' activations are computed again in the backward pass;
    `peak_bytes` is the step's peak of memory.
    """
    config = read.validate(
        {
            "model": {"checkpoint_layers": checkpointing},
            "rollout": {"samples_per_prompt": group_size, "max_tokens": int(lengths.max())},
            "algorithm": {
                "name": "grpo",
                "settings": {"epsilon_low": epsilon_low, "epsilon_high": epsilon_high, "beta": beta},
            },
            "optimizer": {"learning_rate": learning_rate, "max_gradient_norm": "off"},
            "rewards": {"functions": [{"name": "accuracy"}]},
        }
    )
    rows = steps.generation(prompt_tokens[::group_size], tokens, lengths, rewards, group_size)
    with _policy(model, adapter) as policy, tempfile.TemporaryDirectory() as folder:
        base_before = models.digest(models.base_parameters(policy))
        before = dict(tree_flatten(policy.parameters()))
        old_bits = {name: models.bits(x) for name, x in before.items()}
        lora.freeze(policy)
        chosen, optimizer = algorithm.create(config), optimizers.make(config.optimizer)
        source = Source(None, rows.prompts, config.rollout, (), partial(combine.score, ()))
        trainer = Engine(policy, chosen, optimizer, source, config, Path(folder), Clock(), temperature)
        mx.eval(policy.parameters())
        mx.reset_peak_memory()
        start = mx.get_active_memory()
        learned = trainer.learn(rows, 1, learning_rate)
        peak = mx.get_peak_memory() - start
        after = dict(tree_flatten(policy.parameters()))
        trainable = sorted(name for name, _ in tree_flatten(policy.trainable_parameters()))
        base_after = models.digest(models.base_parameters(policy))
    if base_after != base_before:
        models.forget()  # a step that moved the base must not reach the next call
    changes = [float(mx.abs(after[name] - before[name]).max()) for name in after if name.endswith(("lora_a", "lora_b"))]
    reported = numbers.of_step(rows, learned, ["case"], learning_rate, chosen)
    return {
        **{name: reported[name] for name in ("loss", "gradient_norm", "ratio_mean")},
        **({"kl_mean": reported["kl"]} if "kl" in reported else {}),
        "advantages": learned.advantages,
        "trainable": trainable,
        "changed": sorted(name for name, x in after.items() if models.bits(x) != old_bits[name]),
        "base_before": base_before,
        "base_after": base_after,
        "adapter_change": max(changes, default=0.0),
        "peak_bytes": float(peak),
    }


def model_hash(*, model: Spec) -> dict[str, Any]:
    """The sha256 over names and bits of a model's parameters: which bytes a verdict rests on."""
    return {"hash": models.digest(models.base_parameters(models.load(model).model))}


OPS: dict[str, Callable[..., dict[str, Any]]] = {
    "model_hash": model_hash,
    **loss.OPS,
    **constants.OPS,
    **preference.OPS,
    **terms.OPS,
    "rollout": rollout,
    "token_logits": token_logits,
    "completion_logprobs": completion_logprobs,
    "completion_entropies": completion_entropies,
    "importance_ratios": importance_ratios,
    "train_step": train_step,
    **text.OPS,
    **run.OPS,
    **steps.OPS,
}
