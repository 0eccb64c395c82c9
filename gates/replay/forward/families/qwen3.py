"""Qwen3 (Yang et al. 2025, arXiv 2505.09388): Llama with a norm of each head's queries and keys."""

from gates.replay.forward.arrays import Array, Ids
from gates.replay.forward.config import Config
from gates.replay.forward.families.family import Family, final_norm, pre_norm, stacked
from gates.replay.forward.modules import Modules
from gates.replay.forward.parts.attention import attend, project
from gates.replay.forward.parts.feed import gated
from gates.replay.forward.parts.functions import rms_norm
from gates.replay.forward.parts.rotary import rotary


def attention(config: Config, modules: Modules, x: Array) -> Array:
    """Return grouped-query attention whose queries and keys are normalised before they are rotated."""
    rotate = rotary(config, config.head_dim)
    queries, keys, values = project(modules, x, config.heads, config.kv_heads)
    queries = rotate(rms_norm(queries, modules["q_norm.weight"], config.eps))
    keys = rotate(rms_norm(keys, modules["k_norm.weight"], config.eps))
    return modules.linear("o_proj", attend(queries, keys, values, scale=config.head_dim**-0.5))


def hidden(config: Config, modules: Modules, ids: Ids) -> Array:
    """Return the last hidden states."""
    config.require("hidden_act", "silu")
    config.require("use_sliding_window", False)

    def block(_number: int, modules: Modules, x: Array) -> Array:
        return pre_norm(
            config,
            modules,
            x,
            lambda m, y: attention(config, m.at("self_attn"), y),
            lambda m, y: gated(m.at("mlp"), y),
        )

    return final_norm(config, modules, stacked(modules, ids, config.layers, block))


FAMILY = Family(hidden)
