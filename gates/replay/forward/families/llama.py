"""Llama (Touvron et al. 2023, arXiv 2302.13971; Dubey et al. 2024, arXiv 2407.21783)."""

from gates.replay.forward.arrays import Array, Ids
from gates.replay.forward.config import Config
from gates.replay.forward.families.family import Family, final_norm, pre_norm, stacked
from gates.replay.forward.modules import Modules
from gates.replay.forward.parts.attention import attend, project
from gates.replay.forward.parts.feed import gated
from gates.replay.forward.parts.rotary import rotary


def attention(config: Config, modules: Modules, x: Array, window: int | None = None) -> Array:
    """Return grouped-query attention with rotary embeddings."""
    rotate = rotary(config, config.head_dim, interleaved=bool(config.get("rope_traditional")))
    queries, keys, values = project(modules, x, config.heads, config.kv_heads)
    mixed = attend(rotate(queries), rotate(keys), values, scale=config.head_dim**-0.5, window=window)
    return modules.linear("o_proj", mixed)


def hidden(config: Config, modules: Modules, ids: Ids) -> Array:
    """Return the last hidden states."""
    config.require("hidden_act", "silu")
    kinds = config.get("layer_types", ["full_attention"] * config.layers)

    def block(number: int, modules: Modules, x: Array) -> Array:
        window = int(config["sliding_window"]) if kinds[number] == "sliding_attention" else None
        return pre_norm(
            config,
            modules,
            x,
            lambda m, y: attention(config, m.at("self_attn"), y, window),
            lambda m, y: gated(m.at("mlp"), y),
        )

    return final_norm(config, modules, stacked(modules, ids, config.layers, block))


FAMILY = Family(hidden)
