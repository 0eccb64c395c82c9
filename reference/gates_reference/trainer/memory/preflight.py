"""The memory preflight of a configuration: its model's shape, its step's size, and the estimate in sentences."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from gates_reference import tiny
from gates_reference.trainer.config.errors import ConfigurationError
from gates_reference.trainer.config.read import Config
from gates_reference.trainer.memory import estimate

KNOWN: Final[Mapping[str, Mapping[str, Any]]] = {
    "mlx-community/Qwen3-0.6B-4bit": {
        "hidden_size": 1024,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 3072,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "quantization": {"bits": 4, "group_size": 64},
    },
    "mlx-community/Qwen3.5-9B-MLX-4bit": {
        "text_config": {
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 16,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "intermediate_size": 12288,
            "vocab_size": 248320,
            "tie_word_embeddings": False,
            "dtype": "bfloat16",
            "full_attention_interval": 4,
            "linear_num_key_heads": 16,
            "linear_num_value_heads": 32,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
        },
        "quantization": {"bits": 4, "group_size": 64},
    },
}
"""The shapes in config.json of the measured models, so that a run can be planned before they are downloaded.

Sources: the model cards of Qwen3-0.6B and Qwen3.5-9B. The latter has 32 layers of width 4096, three with a gated delta net (32 value
and 16 key heads of 128) for each one with gated attention (16 query and 4 key heads of 256), feed-forward width 12288 and vocabulary
248320. Its head is not tied: it has 8.95e9 parameters, and with a tied head it would have 7.9e9.
"""


def shape(config: Config) -> estimate.Shape:
    """Return the shape of a configuration's model; a tiny model is built, nothing is downloaded.

    Raises:
        ConfigurationError: the model is neither on this machine nor in `KNOWN`, or its recipe or config.json is wrong.
    """
    try:
        folder = _folder(config.model.path) if config.model.path is not None else tiny.build(config.model.tiny)
        return estimate.shape(KNOWN[str(config.model.path)]) if folder is None else estimate.read(folder)
    except ValueError as error:
        raise ConfigurationError(f"[model]: {error}") from None


def _folder(path: str) -> Path | None:
    """Return the folder of a model on this machine; None for a model in `KNOWN` that is not here."""
    if Path(path).expanduser().is_dir():
        return Path(path).expanduser()
    from huggingface_hub import try_to_load_from_cache  # noqa: PLC0415 - a second to import, needed for ids only

    file = try_to_load_from_cache(path, "config.json") if path.count("/") == 1 else None
    if isinstance(file, str):
        return Path(file).parent
    if path not in KNOWN:
        raise ValueError(f"{path!r} is neither a folder nor an id in the Hugging Face cache, so its shape is unknown")
    return None


def plan(config: Config, prompt_tokens: int) -> estimate.Plan:
    """Return the size of a step: rows at once, and lengths."""
    samples = config.rollout.samples_per_prompt
    prompts = config.loop.prompts_per_step
    whole = -(-prompts // config.loop.minibatches) * samples
    return estimate.Plan(
        rows=min(config.loop.micro_batch_rows or whole, whole),
        rollout_rows=prompts * samples,
        prompt=prompt_tokens,
        completion=config.rollout.max_tokens,
        checkpoint=config.model.checkpoint_layers,
        rank=config.adapter.rank,
        head_rows=config.loop.head_rows,
    )


def sentences(shape: estimate.Shape, step: estimate.Plan, available: float) -> list[str]:
    """Describe the estimate part by part, whether it fits, and what to change if it does not."""
    memory = estimate.estimate(shape, step)
    parts = {
        "weights": memory.weights,
        "adapters and optimizer": memory.adapters,
        "rollout (caches, logits)": memory.rollout,
        "update: activations": memory.activations,
        "update: logits": memory.logits,
    }
    lines = [f"{name:26} {value / estimate.GIGA:9.3f} GB" for name, value in parts.items()]
    size = f"{step.rows} rows of {step.prompt} + {step.completion} tokens"
    size += f", the head on {step.head_rows} tokens at a time" if step.head_rows else ""
    lines.append(f"{'peak':26} {memory.peak / estimate.GIGA:9.3f} GB  ({memory.trust}; {size})")
    better, changes = estimate.advice(shape, step, available)
    if not changes and better is not None:
        lines.append(f"It fits into {available / estimate.GIGA:.1f} GB.")
    elif better is None:
        lines.append(
            f"It does not fit into {available / estimate.GIGA:.1f} GB, and no smaller step does: a smaller model is needed."
        )
    else:
        peak = estimate.estimate(shape, better).peak / estimate.GIGA
        lines.append(
            f"It may not fit into {available / estimate.GIGA:.1f} GB. Change in this order ({peak:.1f} GB then):"
        )
        lines += [f"  {number}. {change}" for number, change in enumerate(changes, start=1)]
    return lines
