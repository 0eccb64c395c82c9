"""Gemma 3's text model (Kamath et al. 2025, arXiv 2503.19786): blocks with a window have frequencies of their own."""

from functools import partial
from math import sqrt
from typing import Final

import numpy as np

from gates.replay.forward.arrays import Array, Ids
from gates.replay.forward.config import Config
from gates.replay.forward.families.family import TABLE, Family
from gates.replay.forward.families.gemma2 import block, norm
from gates.replay.forward.modules import Modules
from gates.replay.forward.parts.attention import attend, project
from gates.replay.forward.parts.rotary import Rotary, parameters, plain, rotary

PATTERN: Final = 6
"""The default of sliding_window_pattern: the last of so many blocks sees the whole context."""


def in_bfloat16(value: float) -> float:
    """Return a value rounded to bfloat16, to nearest and ties to even."""
    bits = int(np.array(value, np.float32).view(np.uint32))
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16
    return float(np.array(rounded, np.uint32).view(np.float32))


def _local(config: Config, width: int) -> Rotary:
    """Return the rotation of blocks with a window."""
    nested = parameters(config, "sliding_attention") if "rope_local_base_freq" not in config.content else {}
    return Rotary(plain(width, float(config.get("rope_local_base_freq", nested.get("rope_theta", 1e4)))))


def _sliding(config: Config, number: int) -> bool:
    """Return whether a block has a window."""
    pattern = int(config.get("sliding_window_pattern", PATTERN))
    kinds = config.get("layer_types")
    return bool(kinds[number] == "sliding_attention") if kinds else (number + 1) % pattern != 0


def _attention(config: Config, modules: Modules, x: Array, *, sliding: bool) -> Array:
    width = config.head_dim
    rotate = _local(config, width) if sliding else rotary(config, width, theta=1e6)
    queries, keys, values = project(modules, x, config.heads, config.kv_heads)
    mixed = attend(
        rotate(norm(config, modules, "q_norm", queries)),
        rotate(norm(config, modules, "k_norm", keys)),
        values,
        scale=float(config.get("query_pre_attn_scalar", 256)) ** -0.5,
        window=int(config.get("sliding_window", 512)) if sliding else None,
    )
    return modules.linear("o_proj", mixed)


def hidden(config: Config, modules: Modules, ids: Ids) -> Array:
    """Return the last hidden states; the embeddings' factor √width is rounded to bfloat16, in which Gemma 3 was trained."""
    config.require("hidden_activation", "gelu_pytorch_tanh")
    for name in ("final_logit_softcapping", "attn_logit_softcapping"):
        config.require(name, None)
    x = modules.embed(TABLE, ids) * in_bfloat16(sqrt(config.hidden))
    for number in range(config.layers):
        attention = partial(_attention, config, sliding=_sliding(config, number))
        x = block(config, modules.at(f"model.layers.{number}"), x, attention)
    return norm(config, modules, "model.norm", x)


FAMILY = Family(hidden)
