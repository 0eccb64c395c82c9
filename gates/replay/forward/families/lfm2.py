"""LFM2: short convolutions with input and output gates beside attention."""

from typing import Final

import numpy as np

from gates.replay.forward.arrays import Array, Ids
from gates.replay.forward.config import Config
from gates.replay.forward.families.family import Family, stacked
from gates.replay.forward.modules import Modules
from gates.replay.forward.parts.attention import attend, project
from gates.replay.forward.parts.convolution import causal
from gates.replay.forward.parts.feed import gated
from gates.replay.forward.parts.functions import rms_norm
from gates.replay.forward.parts.rotary import rotary

FEED: Final = ("w1", "w3", "w2")


def _norm(config: Config, modules: Modules, path: str, x: Array) -> Array:
    return rms_norm(x, modules[f"{path}.weight"], float(config["norm_eps"]))


def _attention(config: Config, modules: Modules, x: Array) -> Array:
    rotate = rotary(config, config.head_dim, theta=1e6)
    queries, keys, values = project(modules, x, config.heads, config.kv_heads)
    queries = rotate(_norm(config, modules, "q_layernorm", queries))
    keys = rotate(_norm(config, modules, "k_layernorm", keys))
    return modules.linear("out_proj", attend(queries, keys, values, scale=config.head_dim**-0.5))


def _convolution(modules: Modules, x: Array) -> Array:
    before, after, y = np.split(modules.linear("in_proj", x), 3, axis=-1)
    return modules.linear("out_proj", after * causal(modules, "conv", before * y))


def hidden(config: Config, modules: Modules, ids: Ids) -> Array:
    """Return the last hidden states."""
    kinds = config.get("layer_types", [])
    full = config.get("full_attn_idxs", [n for n, kind in enumerate(kinds) if kind == "full_attention"])

    def block(number: int, modules: Modules, x: Array) -> Array:
        y = _norm(config, modules, "operator_norm", x)
        attention = number in full
        h = x + (_attention(config, modules.at("self_attn"), y) if attention else _convolution(modules.at("conv"), y))
        return h + gated(modules.at("feed_forward"), _norm(config, modules, "ffn_norm", h), names=FEED)

    return _norm(config, modules, "model.embedding_norm", stacked(modules, ids, config.layers, block))


FAMILY = Family(hidden)
