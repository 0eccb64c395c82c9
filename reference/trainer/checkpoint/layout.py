"""Adapters in the layout of mlx_lm: `adapters.safetensors` and `adapter_config.json`, which `mlx_lm.load(adapter_path=…)` reads."""

import json
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
from mlx.utils import tree_flatten, tree_unflatten

from reference.trainer import lora
from reference.trainer.checkpoint import storage

WEIGHTS = "adapters.safetensors"
CONFIG = "adapter_config.json"


class CheckpointError(ValueError):
    """A checkpoint or an adapter folder cannot be used; the message says which and why."""


def parameters(model: Any) -> dict[str, mx.array]:
    """What trains, by name."""
    return dict(tree_flatten(model.trainable_parameters()))


def config(model: Any, adapter: dict[str, Any]) -> dict[str, Any]:
    """What mlx_lm must know to put the same adapters on: rank, scale, and the modules by their names inside a layer."""
    names = sorted({name.partition(".")[2] if name[:1].isdigit() else name for name in lora.adapters(model)})
    return {
        "fine_tune_type": adapter.get("kind", "lora"),
        "num_layers": len(model.layers),
        "lora_parameters": {"rank": adapter["rank"], "scale": adapter["scale"], "dropout": 0.0, "keys": names},
    }


def save(folder: Path, model: Any, adapter: dict[str, Any]) -> None:
    """Write both files into a folder that nobody reads yet."""
    mx.save_safetensors(str(folder / WEIGHTS), parameters(model), {"format": "mlx"})
    content = json.dumps(config(model, adapter), indent=2, sort_keys=True).encode() + b"\n"
    storage.write(folder / CONFIG, content)


def arrays(path: Path) -> dict[str, mx.array]:
    """The arrays of a safetensors file by name.

    Raises:
        CheckpointError: it is missing or torn.
    """
    try:
        return cast("dict[str, mx.array]", mx.load(str(path)))
    except (RuntimeError, OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error})") from None


def load(folder: Path, model: Any) -> None:
    """Put saved values into the adapters that are on the model.

    Raises:
        CheckpointError: the file is missing or torn, or its names or shapes are not those of the adapters.
    """
    saved = arrays(folder / WEIGHTS)
    wanted = parameters(model)
    wrong = sorted(
        n for n in set(saved) | set(wanted) if n not in saved or n not in wanted or saved[n].shape != wanted[n].shape
    )
    if wrong:
        raise CheckpointError(
            f"{folder / WEIGHTS}: does not fit the adapters of this model; first of {len(wrong)} that differ: {wrong[0]}. "
            "Are model and [adapter] those that the adapters were trained with?"
        )
    model.update(tree_unflatten([(name, value.astype(wanted[name].dtype)) for name, value in saved.items()]))
    mx.eval(model.trainable_parameters())
