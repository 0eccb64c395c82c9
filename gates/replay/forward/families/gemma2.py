"""Gemma 2 (Riviere et al. 2024, arXiv 2408.00118): soft caps, windows in every second block, norms before and after."""

from collections.abc import Callable
from functools import partial
from math import sqrt

from gates.replay.forward.arrays import Array, Ids
from gates.replay.forward.config import Config
from gates.replay.forward.families.family import TABLE, Family
from gates.replay.forward.modules import Modules
from gates.replay.forward.parts.attention import attend, project
from gates.replay.forward.parts.feed import gated
from gates.replay.forward.parts.functions import gelu_tanh, rms_norm, soft_cap
from gates.replay.forward.parts.rotary import rotary


def norm(config: Config, modules: Modules, path: str, x: Array) -> Array:
    """Return RMSNorm with 1 + the stored weight."""
    return rms_norm(x, 1 + modules[f"{path}.weight"], config.eps)


def block(config: Config, modules: Modules, x: Array, attention: Callable[[Modules, Array], Array]) -> Array:
    """Return a block with a norm before and after attention, and before and after the feed-forward layer."""
    y = attention(modules.at("self_attn"), norm(config, modules, "input_layernorm", x))
    h = x + norm(config, modules, "post_attention_layernorm", y)
    y = gated(modules.at("mlp"), norm(config, modules, "pre_feedforward_layernorm", h), gelu_tanh)
    return h + norm(config, modules, "post_feedforward_layernorm", y)


def _attention(config: Config, modules: Modules, x: Array, *, window: int | None) -> Array:
    rotate = rotary(config, config.head_dim, interleaved=bool(config.get("rope_traditional")))
    queries, keys, values = project(modules, x, config.heads, config.kv_heads)
    mixed = attend(
        rotate(queries),
        rotate(keys),
        values,
        scale=float(config.get("query_pre_attn_scalar", 144.0)) ** -0.5,
        window=window,
        cap=float(config.get("attn_logit_softcapping", 50.0)),
    )
    return modules.linear("o_proj", mixed)


def hidden(config: Config, modules: Modules, ids: Ids) -> Array:
    """Return the last hidden states; the first block and every second after it have a window."""
    config.require("hidden_activation", "gelu_pytorch_tanh")
    window = int(config.get("sliding_window", 4096))
    x = modules.embed(TABLE, ids) * sqrt(config.hidden)
    for number in range(config.layers):
        attention = partial(_attention, config, window=None if number % 2 else window)
        x = block(config, modules.at(f"model.layers.{number}"), x, attention)
    return norm(config, modules, "model.norm", x)


def head(config: Config, modules: Modules, x: Array) -> Array:
    """Return the soft-capped logits of the tied head."""
    return soft_cap(modules.unembed(TABLE, x), float(config.get("final_logit_softcapping", 30.0)))


FAMILY = Family(hidden, head)
