"""Load saved values into adapters that are already on the model."""

from pathlib import Path
from typing import Any, cast

import mlx.core as mx
from mlx.utils import tree_flatten, tree_unflatten

from gates_reference.trainer.adapters import files
from gates_reference.trainer.config.errors import TrainerError


class CheckpointError(TrainerError):
    """A checkpoint or an adapter folder cannot be used; the message says which and why."""


def parameters(model: Any) -> dict[str, mx.array]:
    """Return the trainable parameters by name."""
    return dict(tree_flatten(model.trainable_parameters()))


def arrays(path: Path) -> dict[str, mx.array]:
    """Read the arrays of a safetensors file by name.

    Raises:
        CheckpointError: the file is missing or damaged.
    """
    try:
        return cast("dict[str, mx.array]", mx.load(str(path)))
    except (RuntimeError, OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error})") from None


def load(folder: Path, model: Any) -> None:
    """Put saved values into the adapters on the model.

    Raises:
        CheckpointError: the file is missing or damaged, or its names or shapes are not those of the adapters.
    """
    saved = arrays(folder / files.WEIGHTS)
    wanted = parameters(model)
    wrong = sorted(
        n for n in set(saved) | set(wanted) if n not in saved or n not in wanted or saved[n].shape != wanted[n].shape
    )
    if wrong:
        raise CheckpointError(
            f"{folder / files.WEIGHTS}: does not fit the adapters of this model; first of {len(wrong)} that differ: {wrong[0]}. "
            "Are model and [adapter] those that the adapters were trained with?"
        )
    model.update(tree_unflatten([(name, value.astype(wanted[name].dtype)) for name, value in saved.items()]))
    mx.eval(model.trainable_parameters())
