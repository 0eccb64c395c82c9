"""Qwen3 with a mixture of experts (Yang et al. 2025, arXiv 2505.09388)."""

from gates.replay.forward.arrays import Array, Ids
from gates.replay.forward.config import Config
from gates.replay.forward.families import qwen3
from gates.replay.forward.families.family import Family, final_norm, pre_norm, stacked
from gates.replay.forward.modules import Modules
from gates.replay.forward.parts.feed import gated, mixture


def sparse(config: Config, number: int) -> bool:
    """Return whether a block has experts."""
    step = int(config.get("decoder_sparse_step", 1))
    return number not in config.get("mlp_only_layers", []) and (number + 1) % step == 0


def experts(config: Config, modules: Modules, x: Array) -> Array:
    """Return the output of the experts that the router chooses."""
    count = int(config["num_experts_per_tok"])
    return mixture(modules, x, count, normalised=bool(config.get("norm_topk_prob")))


def hidden(config: Config, modules: Modules, ids: Ids) -> Array:
    """Return the last hidden states."""
    config.require("hidden_act", "silu")
    config.require("use_sliding_window", False)

    def feed(number: int, modules: Modules, x: Array) -> Array:
        return experts(config, modules, x) if sparse(config, number) else gated(modules, x)

    def block(number: int, modules: Modules, x: Array) -> Array:
        return pre_norm(
            config,
            modules,
            x,
            lambda m, y: qwen3.attention(config, m.at("self_attn"), y),
            lambda m, y: feed(number, m.at("mlp"), y),
        )

    return final_norm(config, modules, stacked(modules, ids, config.layers, block))


FAMILY = Family(hidden)
