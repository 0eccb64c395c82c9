"""Mistral (Jiang et al. 2023, arXiv 2310.06825): Llama with a window in every block, if the configuration has one."""

from collections.abc import Mapping
from typing import Any

from gates.replay.forward.config import Config
from gates.replay.forward.families import llama
from gates.replay.forward.families.family import Family


def config(content: Mapping[str, Any]) -> Config:
    """Return the settings, with the kind of each block."""
    read = Config(content)
    kind = "sliding_attention" if read.get("sliding_window") else "full_attention"
    return Config({"layer_types": [kind] * read.layers, **content})


FAMILY = Family(llama.hidden, config=config)
