"""Save and restore everything that a run needs to resume with the same bits: adapters, optimizer, position, files."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import mlx.core as mx
from mlx.utils import tree_flatten, tree_unflatten

from gates_reference.trainer.adapters import files
from gates_reference.trainer.checkpoint import folders, layout
from gates_reference.trainer.config import read
from gates_reference.trainer.config.errors import ConfigurationError

OPTIMIZER: Final = "optimizer.safetensors"


@dataclass(frozen=True, slots=True)
class Position:
    """The progress of a run: steps done, prompts taken from the order of the data, and rollouts made (the draws' `round`).

    This is the whole random state: every draw is a function of a seed and these numbers.
    """

    step: int = 0
    taken: int = 0
    round: int = 0


def config_digest(config: Mapping[str, Any]) -> str:
    """Return the sha256 of what a run's numbers depend on: the configuration without [output] and the number of steps."""
    kept = {name: table for name, table in config.items() if name != "output"}
    if config["optimizer"]["schedule"] == "constant":  # then the planned number of steps changes no number of a step
        kept["loop"] = {key: value for key, value in config["loop"].items() if key != "steps"}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def save(  # noqa: PLR0913  one parameter for each part of a checkpoint
    folder: Path,
    position: Position,
    *,
    model: Any,
    optimizer: Any,
    config: dict[str, Any],
    data: str,
    lengths: Mapping[str, int],
    metrics: Mapping[str, Any],
    ran: Mapping[str, Any],
) -> Path:
    """Write a checkpoint.

    `data` is the digest of the data's rows, `lengths` are the sizes in bytes of the append-only files, `metrics` are the last step's
    numbers, and `ran` is the audit's record of the steps so far.
    """

    def write(part: Path) -> None:
        files.save(model, part)
        mx.save_safetensors(str(part / OPTIMIZER), dict(sorted(tree_flatten(optimizer.state))))

    state = {
        "position": asdict(position),
        "config": config,
        "config_digest": config_digest(config),
        "data_digest": data,
        "lengths": dict(lengths),
        "metrics": dict(metrics),
        "ran": dict(ran),
    }
    return folders.save(folder, position.step, state, write)


def load(
    path: Path, state: Mapping[str, Any], *, model: Any, optimizer: Any, config: Mapping[str, Any], data: str
) -> Position:
    """Restore a verified checkpoint into a model with the same adapters and an optimizer of the same type.

    Raises:
        CheckpointError: it was written with another configuration (the message names the first key that differs) or other data.
    """
    before = _completed(state["config"])
    if config_digest(config) not in {state["config_digest"], config_digest(before)}:
        raise layout.CheckpointError(
            f"{path}: was written with another configuration ({_difference(before, config)}); "
            "resume with the same one, or start in another output.folder"
        )
    if state.get("data_digest", data) != data:
        raise layout.CheckpointError(
            f"{path}: was written with other rows of data than {config['data']['path']} holds now; resume with the same ones, "
            "or start in another output.folder"
        )
    layout.load(path, model)
    saved = layout.arrays(path / OPTIMIZER)
    optimizer.state = tree_unflatten(list(saved.items()))
    optimizer.init(model.trainable_parameters())  # marks it as initialised; the restored state stays
    mx.eval(optimizer.state)
    return Position(**state["position"])


def _completed(saved: dict[str, Any]) -> dict[str, Any]:
    """Add the defaults of newer keys to a saved configuration; return it unchanged if it is no longer valid."""
    try:
        return read.validate(saved).model_dump(mode="json")
    except ConfigurationError:
        return saved


def _difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    for section in sorted((set(before) | set(now)) - {"output"}):
        old, new = before.get(section, {}), now.get(section, {})
        for key in sorted(set(old) | set(new)):
            if old.get(key) != new.get(key):
                return f"{section}.{key} was {old.get(key)!r} and is {new.get(key)!r}"
    return "the sections differ"
