"""Mixtral (Jiang et al. 2024, arXiv 2401.04088): Llama with experts, whose weights are a softmax over the chosen ones."""

from gates.replay.forward.arrays import Array, Ids
from gates.replay.forward.config import Config
from gates.replay.forward.families import llama
from gates.replay.forward.families.family import Family, final_norm, pre_norm, stacked
from gates.replay.forward.modules import Modules
from gates.replay.forward.parts.feed import mixture


def hidden(config: Config, modules: Modules, ids: Ids) -> Array:
    """Return the last hidden states."""
    config.require("hidden_act", "silu")
    config.require("sliding_window", None)
    count = int(config.get("num_experts_per_tok", 2))

    def block(_number: int, modules: Modules, x: Array) -> Array:
        return pre_norm(
            config,
            modules,
            x,
            lambda m, y: llama.attention(config, m.at("self_attn"), y),
            lambda m, y: mixture(m.at("block_sparse_moe"), y, count, normalised=True),
        )

    return final_norm(config, modules, stacked(modules, ids, config.layers, block))


FAMILY = Family(hidden)
