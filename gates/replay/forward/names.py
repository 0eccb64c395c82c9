"""Give the weights of published files the names and shapes that the forward passes read, which are mlx-lm's."""

import re
from collections.abc import Mapping
from typing import Final

import numpy as np

from gates.replay.forward.arrays import Array
from gates.replay.forward.config import Config

HEAD: Final = "lm_head.weight"
EXPERT: Final = re.compile(r"(?P<block>.+)\.experts\.(?P<number>\d+)\.(?P<leaf>\w+)\.(?P<kind>weight|bias)")
LEAVES: Final = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
"""Mixtral's names of an expert's matrices."""
CONVOLUTIONS: Final = (".conv1d.weight", ".conv.weight")
UNUSED: Final = re.compile(r"rotary_emb\.inv_freq$|^mtp\.|^model\.visual\.|^vision_tower\.")
"""Tables that are computed, heads that predict further tokens, and vision."""
CENTRED: Final = ("input_layernorm", "post_attention_layernorm", "model.norm", "q_norm", "k_norm")
"""The norms that Qwen's hybrids publish as differences from 1."""


def plain(config: Config, weights: Mapping[str, Array]) -> dict[str, Array]:
    """Return weights without a tied head, with experts stacked and convolutions as (channels, width, 1)."""
    used = {name: x for name, x in weights.items() if not UNUSED.search(name)}
    if config.get("tie_word_embeddings"):
        used = {name: x for name, x in used.items() if not name.endswith(HEAD)}
    return {name: _channels_first(name, x) for name, x in _stacked(used).items()}


def hybrid(config: Config, weights: Mapping[str, Array]) -> dict[str, Array]:
    """Return the weights of one of Qwen's hybrids; published files, whose convolutions show them, hold norms less 1."""
    renamed = {_text(name): x for name, x in weights.items()}
    published = any(name.endswith(CONVOLUTIONS) and x.shape[-1] != 1 for name, x in renamed.items())
    ends = tuple(f"{name}.weight" for name in CENTRED)
    return {name: x + 1.0 if published and name.endswith(ends) else x for name, x in plain(config, renamed).items()}


def _text(name: str) -> str:
    """Return the name of a text model's weight without the place of the text model in a model with vision."""
    return re.sub(r"^model\.language_model\.", "language_model.model.", name)


def _stacked(weights: Mapping[str, Array]) -> dict[str, Array]:
    """Return weights with the matrices of experts stacked: `experts.3.up_proj` is `switch_mlp.up_proj`[3]."""
    single: dict[str, Array] = {}
    stacks: dict[str, dict[int, Array]] = {}
    for name, x in weights.items():
        parts = EXPERT.fullmatch(name)
        if parts is None:
            single[name] = x
            continue
        leaf = LEAVES.get(parts["leaf"], parts["leaf"])
        stacks.setdefault(f"{parts['block']}.switch_mlp.{leaf}.{parts['kind']}", {})[int(parts["number"])] = x
    return single | {name: np.stack([rows[number] for number in sorted(rows)]) for name, rows in stacks.items()}


def _channels_first(name: str, x: Array) -> Array:
    return np.moveaxis(x, 2, 1) if name.endswith(CONVOLUTIONS) and x.shape[-1] != 1 else x
