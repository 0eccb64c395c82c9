"""Qwen2 and Qwen2.5 (Yang et al. 2024, arXiv 2407.10671): Llama with biases on queries, keys and values."""

from gates.replay.forward.arrays import Array, Ids
from gates.replay.forward.config import Config
from gates.replay.forward.families import llama
from gates.replay.forward.families.family import Family
from gates.replay.forward.modules import Modules


def hidden(config: Config, modules: Modules, ids: Ids) -> Array:
    """Return the last hidden states; a bias is added wherever the files hold one."""
    config.require("use_sliding_window", False)
    return llama.hidden(config, modules, ids)


FAMILY = Family(hidden)
