"""What a family defines, and the parts that most of them have in common."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gates.replay.forward import names
from gates.replay.forward.arrays import Array, Ids
from gates.replay.forward.config import Config
from gates.replay.forward.modules import Modules
from gates.replay.forward.parts.functions import rms_norm

TABLE: Final = "model.embed_tokens"
HEAD: Final = "lm_head"


def head(_config: Config, modules: Modules, x: Array) -> Array:
    """Return the logits of x (…, width): with the head, or with the table of embeddings if that is all there is."""
    tied = f"{HEAD}.weight" not in modules
    return modules.unembed(TABLE, x) if tied else modules.linear(HEAD, x)


@dataclass(frozen=True, slots=True)
class Family:
    """A family: last hidden states (B, L, width) of ids (B, L), logits (…, V) of hidden states, and how its files are read.

    `config` makes the settings from the content of config.json, `named` gives weights the names that `hidden` reads.
    """

    hidden: Callable[[Config, Modules, Ids], Array]
    head: Callable[[Config, Modules, Array], Array] = head
    config: Callable[[Mapping[str, Any]], Config] = Config
    named: Callable[[Config, Mapping[str, Array]], dict[str, Array]] = names.plain


def stacked(modules: Modules, ids: Ids, layers: int, block: Callable[[int, Modules, Array], Array]) -> Array:
    """Return the residual stream after the blocks, `block(number, modules, x)`, on the embeddings of ids."""
    x = modules.embed(TABLE, ids)
    for number in range(layers):
        x = block(number, modules.at(f"model.layers.{number}"), x)
    return x


def pre_norm(
    config: Config,
    modules: Modules,
    x: Array,
    attend: Callable[[Modules, Array], Array],
    feed: Callable[[Modules, Array], Array],
) -> Array:
    """Return h + feed(norm(h)) with h = x + attend(norm(x)); both get the block's modules."""
    h = x + attend(modules, rms_norm(x, modules["input_layernorm.weight"], config.eps))
    return h + feed(modules, rms_norm(h, modules["post_attention_layernorm.weight"], config.eps))


def final_norm(config: Config, modules: Modules, x: Array) -> Array:
    """Return the norm after the last block."""
    return rms_norm(x, modules["model.norm.weight"], config.eps)
