"""Compare the adapters of a folder, from which a run starts, with the adapters that the run's configuration describes.

A run has one kind, rank and scale: those of [adapter]. Saved values mean another policy under another scale, so a folder with other
settings is refused. Dropout is no part of the policy and may differ.
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from gates_reference.trainer.adapters.files import CONFIG, WEIGHTS
from gates_reference.trainer.config.errors import ConfigurationError
from gates_reference.trainer.config.sections import Adapter

BLOCK: Final = re.compile(r"(?:^|\.)layers\.(\d+)\.")


def require_equal(folder: Path, settings: Adapter) -> None:
    """Check that a folder has adapters of the configured kind, rank and scale.

    Raises:
        ConfigurationError: a file is missing or damaged, or a setting differs.
    """
    for name in (WEIGHTS, CONFIG):
        if not (folder / name).is_file():
            raise ConfigurationError(f"model.adapter_path: {folder} has no {name}, so it holds no adapters")
    stored = _stored(folder / CONFIG)
    for name, value in (("kind", settings.kind), ("rank", settings.rank), ("scale", settings.scale)):
        if stored[name] is None:
            raise ConfigurationError(
                f"model.adapter_path: {folder / CONFIG} names no {name}; save the adapters in mlx-lm's layout"
            )
        if stored[name] != value:
            raise ConfigurationError(
                f"model.adapter_path: {folder} has adapters of {name} {stored[name]!r}, and adapter.{name} is {value!r}; "
                f"set adapter.{name} = {json.dumps(stored[name])}, or train adapters of {name} {value!r} anew"
            )


def require_blocks(folder: Path, saved: Iterable[str], wanted: Iterable[str], layers: int) -> None:
    """Check by the names of parameters that saved and configured adapters are in the same blocks.

    Raises:
        ConfigurationError: they are not.
    """
    theirs, ours = _blocks(saved), _blocks(wanted)
    if theirs != ours:
        raise ConfigurationError(
            f"model.adapter_path: {folder} has adapters in blocks {theirs}, and adapter.layers = {layers} puts them into {ours}; "
            "set adapter.layers to the number of blocks that the saved adapters have, counted from the last block (0: all)"
        )


def _blocks(names: Iterable[str]) -> list[int]:
    return sorted({int(match[1]) for name in names if (match := BLOCK.search(name))})


def _stored(path: Path) -> dict[str, Any]:
    """Return kind, rank and scale of mlx-lm's adapter_config.json, None for what it does not name."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"model.adapter_path: {path} cannot be read ({error})") from None
    parameters = content.get("lora_parameters") if isinstance(content, Mapping) else None
    if not isinstance(parameters, Mapping):
        raise ConfigurationError(f"model.adapter_path: {path} has no lora_parameters, as mlx-lm's layout has them")
    return {
        "kind": content.get("fine_tune_type", "lora"),  # older files of mlx-lm lack it
        "rank": parameters.get("rank"),
        "scale": parameters.get("scale"),
    }
