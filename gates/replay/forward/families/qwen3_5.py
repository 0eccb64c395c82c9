"""Qwen3.5's text model: gated delta nets beside gated attention, dense feed-forward layers."""

from collections.abc import Mapping
from typing import Any, Final

from gates.replay.forward import names
from gates.replay.forward.arrays import Array, Ids
from gates.replay.forward.config import Config
from gates.replay.forward.families import family
from gates.replay.forward.families.family import Family, final_norm, pre_norm, stacked
from gates.replay.forward.families.linear import delta_net, gated_attention, is_linear
from gates.replay.forward.modules import Modules
from gates.replay.forward.parts.attention import heads
from gates.replay.forward.parts.feed import gated

PREFIX: Final = "language_model"


def config(content: Mapping[str, Any]) -> Config:
    """Return the settings of the text model, which published configurations nest."""
    return Config({**content, **content.get("text_config", {})})


def named(config: Config, weights: Mapping[str, Array]) -> dict[str, Array]:
    """Return the weights of a published or a converted model."""
    moved = {f"{PREFIX}.{name}" if name == names.HEAD else name: x for name, x in weights.items()}
    return names.hybrid(config, moved)


def _linear(config: Config, modules: Modules, x: Array) -> Array:
    gate = heads(modules.linear("in_proj_z", x), int(config["linear_num_value_heads"]))
    b, a = modules.linear("in_proj_b", x), modules.linear("in_proj_a", x)
    return delta_net(config, modules, (modules.linear("in_proj_qkv", x), gate, b, a))


def hidden(config: Config, modules: Modules, ids: Ids) -> Array:
    """Return the last hidden states."""
    config.require("hidden_act", "silu")
    config.require("num_experts", 0)

    def mixer(number: int, modules: Modules, x: Array) -> Array:
        if is_linear(config, number):
            return _linear(config, modules.at("linear_attn"), x)
        return gated_attention(config, modules.at("self_attn"), x)

    def block(number: int, modules: Modules, x: Array) -> Array:
        return pre_norm(config, modules, x, lambda m, y: mixer(number, m, y), lambda m, y: gated(m.at("mlp"), y))

    inner = modules.at(PREFIX)
    return final_norm(config, inner, stacked(inner, ids, config.layers, block))


def head(config: Config, modules: Modules, x: Array) -> Array:
    """Return the logits."""
    return family.head(config, modules.at(PREFIX), x)


FAMILY = Family(hidden, head, config, named)
