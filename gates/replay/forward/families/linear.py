"""The blocks of Qwen's hybrids: gated delta nets (Yang et al. 2024, arXiv 2412.06464) and attention with an output gate."""

from typing import Final

import numpy as np

from gates.replay.forward.arrays import Array
from gates.replay.forward.config import Config
from gates.replay.forward.modules import Modules
from gates.replay.forward.parts.attention import attend, heads
from gates.replay.forward.parts.convolution import causal
from gates.replay.forward.parts.delta import gated_delta
from gates.replay.forward.parts.functions import l2_norm, rms_norm, sigmoid, silu, softplus
from gates.replay.forward.parts.rotary import parameters, rotary

EPS: Final = 1e-6
"""The ε in the length of queries and keys."""


def is_linear(config: Config, number: int) -> bool:
    """Return whether a block has linear attention: by layer_types, else all but the last of every full_attention_interval."""
    if kinds := config.get("layer_types"):
        return bool(kinds[number] == "linear_attention")
    return (number + 1) % int(config.get("full_attention_interval", 4)) != 0


def gated_attention(config: Config, modules: Modules, x: Array) -> Array:
    """Return attention whose output is multiplied by σ of a gate; a part of each head rotates."""
    part = config.get("partial_rotary_factor", parameters(config).get("partial_rotary_factor", 0.25))
    rotate = rotary(config, int(config.head_dim * part))
    queries, gate = np.split(heads(modules.linear("q_proj", x), config.heads), 2, axis=-1)
    keys, values = (heads(modules.linear(name, x), config.kv_heads) for name in ("k_proj", "v_proj"))
    mixed = attend(
        rotate(rms_norm(queries, modules["q_norm.weight"], config.eps)),
        rotate(rms_norm(keys, modules["k_norm.weight"], config.eps)),
        values,
        scale=config.head_dim**-0.5,
    )
    return modules.linear("o_proj", mixed * sigmoid(gate.reshape(mixed.shape)))


def delta_net(config: Config, modules: Modules, projected: tuple[Array, Array, Array, Array]) -> Array:
    """Return a gated delta net, from queries | keys | values (B, L, channels), gates z (B, L, heads, width), b and a.

    b and a are (B, L, heads): the rate is σ(b), the decay exp(−exp(A_log) softplus(a + dt_bias)).
    """
    mixed, gate, b, a = projected
    key_heads, value_heads = int(config["linear_num_key_heads"]), int(config["linear_num_value_heads"])
    width = int(config["linear_key_head_dim"])
    activated = silu(causal(modules, "conv1d", mixed))
    queries, keys, values = np.split(activated, [key_heads * width, 2 * key_heads * width], axis=-1)
    repeats = value_heads // key_heads
    queries, keys = (np.repeat(l2_norm(heads(y, key_heads), EPS), repeats, axis=2) for y in (queries, keys))
    decay = np.exp(-np.exp(modules["A_log"]) * softplus(a + modules["dt_bias"]))
    y = gated_delta(queries * width**-0.5, keys, heads(values, value_heads), decay, sigmoid(b))
    y = rms_norm(y, modules["norm.weight"], config.eps) * silu(gate)
    return modules.linear("out_proj", y.reshape(*y.shape[:2], -1))
