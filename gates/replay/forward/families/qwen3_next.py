"""Qwen3-Next: gated delta nets beside gated attention, experts with a shared one."""

import numpy as np

from gates.replay.forward import names
from gates.replay.forward.arrays import Array, Ids
from gates.replay.forward.config import Config
from gates.replay.forward.families.family import Family, final_norm, pre_norm, stacked
from gates.replay.forward.families.linear import delta_net, gated_attention, is_linear
from gates.replay.forward.families.qwen3_moe import experts, sparse
from gates.replay.forward.modules import Modules
from gates.replay.forward.parts.feed import gated
from gates.replay.forward.parts.functions import sigmoid


def _linear(config: Config, modules: Modules, x: Array) -> Array:
    """Return a delta net whose projections hold, for each key head, its query, key, values and gates; likewise b and a."""
    key_heads, value_heads = int(config["linear_num_key_heads"]), int(config["linear_num_value_heads"])
    key, value = int(config["linear_key_head_dim"]), int(config["linear_value_head_dim"])
    batch = x.shape[:2]
    group = value_heads // key_heads
    each = modules.linear("in_proj_qkvz", x).reshape(*batch, key_heads, -1)
    *mixed, gate = np.split(each, [key, 2 * key, 2 * key + group * value], axis=-1)
    b, a = np.split(modules.linear("in_proj_ba", x).reshape(*batch, key_heads, -1), [group], axis=-1)
    joined = np.concatenate([part.reshape(*batch, -1) for part in mixed], axis=-1)
    return delta_net(
        config,
        modules,
        (
            joined,
            gate.reshape(*batch, value_heads, value),
            b.reshape(*batch, value_heads),
            a.reshape(*batch, value_heads),
        ),
    )


def _experts(config: Config, modules: Modules, x: Array) -> Array:
    shared = sigmoid(modules.linear("shared_expert_gate", x)) * gated(modules.at("shared_expert"), x)
    return experts(config, modules, x) + shared


def hidden(config: Config, modules: Modules, ids: Ids) -> Array:
    """Return the last hidden states."""
    config.require("hidden_act", "silu")

    def mixer(number: int, modules: Modules, x: Array) -> Array:
        if is_linear(config, number):
            return _linear(config, modules.at("linear_attn"), x)
        return gated_attention(config, modules.at("self_attn"), x)

    def feed(number: int, modules: Modules, x: Array) -> Array:
        return _experts(config, modules, x) if sparse(config, number) else gated(modules, x)

    def block(number: int, modules: Modules, x: Array) -> Array:
        return pre_norm(config, modules, x, lambda m, y: mixer(number, m, y), lambda m, y: feed(number, m.at("mlp"), y))

    return final_norm(config, modules, stacked(modules, ids, config.layers, block))


FAMILY = Family(hidden, named=names.hybrid)
