"""What a run really used, as a file beside its results: the bytes of the model, what trained, versions, libraries, paths."""

import importlib.metadata
import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

import mlx.core as mx
from mlx.utils import tree_flatten

from reference.trainer import lora, storage
from reference.trainer import model as models
from reference.trainer.checkpoint import layout

PACKAGES: Final = ("rl-gates", "mlx", "mlx-lm", "numpy", "transformers", "tokenizers", "safetensors", "pydantic")
MAPS: Final = Path("/proc/self/maps")
FILE: Final = "used.json"


@dataclass(frozen=True, slots=True)
class Ran:
    """What ran in all the processes that made a run's steps; every checkpoint holds it.

    `head_calls` says in how many pieces the head ran in one forward pass of an update, at most; 0 if none was made.
    `resumed_at_steps` are the steps after which another process made the next ones.
    """

    rollout_paths: tuple[str, ...] = ()
    head_calls: int = 0
    resumed_at_steps: tuple[int, ...] = ()

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> Self:
        """As a checkpoint's JSON holds it; what an older one does not hold is not known."""
        return cls(
            tuple(saved.get("rollout_paths", ())),
            saved.get("head_calls", 0),
            tuple(saved.get("resumed_at_steps", ())),
        )

    def and_then(self, rollout_paths: set[str], head_calls: int) -> Self:
        """With what has run since."""
        return type(self)(
            tuple(sorted({*self.rollout_paths, *rollout_paths})),
            max(self.head_calls, head_calls),
            self.resumed_at_steps,
        )


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def blas() -> list[str]:
    """The BLAS libraries that this process has loaded, by file name; empty where the system does not tell."""
    if not MAPS.exists():
        return []
    files = {line.rpartition("/")[2] for line in MAPS.read_text().splitlines() if "/" in line}
    return sorted(name for name in files if "blas" in name.lower() or "mkl" in name.lower())


def used(model: Any, path: str, config: dict[str, Any]) -> dict[str, Any]:
    """The facts at the start of a run, before anything has trained."""
    trainable = layout.parameters(model)
    return {
        "config": config,
        "model": {
            "path": path,
            "base_digest": models.digest(models.base_parameters(model)),
            "parameters": sum(x.size for _, x in tree_flatten(model.parameters())),
            "layers": len(model.layers),
        },
        "adapter": {
            "targets": sorted(lora.adapters(model)),
            "trainable_parameters": sum(x.size for x in trainable.values()),
            "start_digest": models.digest(trainable),
        },
        "versions": {package: _version(package) for package in PACKAGES} | {"python": platform.python_version()},
        "machine": {
            "system": platform.system(),
            "processor": platform.machine(),
            "device": str(mx.default_device()),
            "blas": blas(),
        },
    }


def write(folder: Path, facts: Mapping[str, Any], ran: Ran, model: Any) -> None:
    """Write `used.json`: the facts, and what is known at the end only."""
    content = {
        **facts,
        **asdict(ran),
        "end": {
            "base_digest": models.digest(models.base_parameters(model)),
            "adapter_digest": models.digest(layout.parameters(model)),
        },
    }
    storage.write(folder / FILE, json.dumps(content, indent=2, sort_keys=True).encode() + b"\n")


def ended_with(folder: Path) -> str | None:
    """The digest of the adapters at the end that a folder's `used.json` tells of; None if there is none."""
    try:
        found = json.loads((folder / FILE).read_bytes())["end"]["adapter_digest"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(found)
