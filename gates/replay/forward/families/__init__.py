"""The model families, by the `model_type` of their config.json."""

from collections.abc import Mapping
from typing import Final

from gates.replay.forward.families import (
    cohere,
    gemma2,
    gemma3,
    lfm2,
    llama,
    mistral,
    mixtral,
    olmoe,
    qwen2,
    qwen3,
    qwen3_5,
    qwen3_moe,
    qwen3_next,
)
from gates.replay.forward.families.family import Family

FAMILIES: Final[Mapping[str, Family]] = {
    "cohere": cohere.FAMILY,
    "gemma2": gemma2.FAMILY,
    "gemma3_text": gemma3.FAMILY,
    "lfm2": lfm2.FAMILY,
    "llama": llama.FAMILY,
    "mistral": mistral.FAMILY,
    "mixtral": mixtral.FAMILY,
    "olmoe": olmoe.FAMILY,
    "qwen2": qwen2.FAMILY,
    "qwen3": qwen3.FAMILY,
    "qwen3_5": qwen3_5.FAMILY,
    "qwen3_moe": qwen3_moe.FAMILY,
    "qwen3_next": qwen3_next.FAMILY,
}
