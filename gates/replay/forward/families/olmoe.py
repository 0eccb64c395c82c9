"""OLMoE (Muennighoff et al. 2024, arXiv 2409.02060): experts, and norms of all heads' queries and keys together."""

from gates.replay.forward.arrays import Array, Ids
from gates.replay.forward.config import Config
from gates.replay.forward.families.family import Family, final_norm, pre_norm, stacked
from gates.replay.forward.families.qwen3_moe import experts
from gates.replay.forward.modules import Modules
from gates.replay.forward.parts.attention import attend, heads
from gates.replay.forward.parts.functions import rms_norm
from gates.replay.forward.parts.rotary import rotary


def _attention(config: Config, modules: Modules, x: Array) -> Array:
    rotate = rotary(config, config.head_dim, interleaved=bool(config.get("rope_traditional")))
    queries = rms_norm(modules.linear("q_proj", x), modules["q_norm.weight"], config.eps)
    keys = rms_norm(modules.linear("k_proj", x), modules["k_norm.weight"], config.eps)
    mixed = attend(
        rotate(heads(queries, config.heads)),
        rotate(heads(keys, config.kv_heads)),
        heads(modules.linear("v_proj", x), config.kv_heads),
        scale=config.head_dim**-0.5,
    )
    return modules.linear("o_proj", mixed)


def hidden(config: Config, modules: Modules, ids: Ids) -> Array:
    """Return the last hidden states."""
    config.require("hidden_act", "silu")
    config.require("clip_qkv", None)

    def block(_number: int, modules: Modules, x: Array) -> Array:
        return pre_norm(
            config,
            modules,
            x,
            lambda m, y: _attention(config, m.at("self_attn"), y),
            lambda m, y: experts(config, m.at("mlp"), y),
        )

    return final_norm(config, modules, stacked(modules, ids, config.layers, block))


FAMILY = Family(hidden)
