"""Cohere's Command R: attention and feed-forward in parallel after one LayerNorm, and scaled logits of a tied head."""

from gates.replay.forward.arrays import Array, Ids
from gates.replay.forward.config import Config
from gates.replay.forward.families.family import TABLE, Family, stacked
from gates.replay.forward.modules import Modules
from gates.replay.forward.parts.attention import attend, project
from gates.replay.forward.parts.feed import gated
from gates.replay.forward.parts.functions import layer_norm
from gates.replay.forward.parts.rotary import rotary


def _norm(config: Config, modules: Modules, path: str, x: Array) -> Array:
    y = layer_norm(x, modules[f"{path}.weight"], float(config.get("layer_norm_eps", 1e-5)))
    return y + modules[f"{path}.bias"] if f"{path}.bias" in modules else y


def _attention(config: Config, modules: Modules, x: Array) -> Array:
    rotate = rotary(config, config.head_dim, theta=8e6, interleaved=True)
    queries, keys, values = project(modules, x, config.heads, config.kv_heads)
    if config.get("use_qk_norm"):
        queries, keys = _norm(config, modules, "q_norm", queries), _norm(config, modules, "k_norm", keys)
    mixed = attend(rotate(queries), rotate(keys), values, scale=config.head_dim**-0.5)
    return modules.linear("o_proj", mixed)


def hidden(config: Config, modules: Modules, ids: Ids) -> Array:
    """Return the last hidden states."""
    config.require("hidden_act", "silu")

    def block(_number: int, modules: Modules, x: Array) -> Array:
        y = _norm(config, modules, "input_layernorm", x)
        return x + _attention(config, modules.at("self_attn"), y) + gated(modules.at("mlp"), y)

    return _norm(config, modules, "model.norm", stacked(modules, ids, config.layers, block))


def head(config: Config, modules: Modules, x: Array) -> Array:
    """Return the logits times logit_scale."""
    return modules.unembed(TABLE, x) * float(config.get("logit_scale", 0.0625))


FAMILY = Family(hidden, head)
