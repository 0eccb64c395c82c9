"""Write `used.json`, a record of what a run used: model and adapter digests, versions, libraries, rollout paths."""

import importlib.metadata
import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

import mlx.core as mx
from mlx.utils import tree_flatten

from gates_reference.trainer import lora, storage
from gates_reference.trainer import model as models
from gates_reference.trainer.checkpoint import layout

PACKAGES: Final = ("rl-gates", "mlx", "mlx-lm", "numpy", "transformers", "tokenizers", "safetensors", "pydantic")
MAPS: Final = Path("/proc/self/maps")
FILE: Final = "used.json"


@dataclass(frozen=True, slots=True)
class Ran:
    """What has run in all processes of a run; every checkpoint holds it.

    `head_calls` is the largest number of pieces in which the head ran in one forward pass of an update, 0 without an update.
    `resumed_at_steps` are the steps after which a new process continued.
    """

    rollout_paths: tuple[str, ...] = ()
    head_calls: int = 0
    resumed_at_steps: tuple[int, ...] = ()

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> Self:
        """Read it from a checkpoint's JSON; fields that an older checkpoint lacks are empty."""
        return cls(
            tuple(saved.get("rollout_paths", ())),
            saved.get("head_calls", 0),
            tuple(saved.get("resumed_at_steps", ())),
        )

    def and_then(self, rollout_paths: set[str], head_calls: int) -> Self:
        """Return it with what has run since."""
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
    """Return the file names of the BLAS libraries that this process has loaded; empty without /proc."""
    if not MAPS.exists():
        return []
    files = {line.rpartition("/")[2] for line in MAPS.read_text().splitlines() if "/" in line}
    return sorted(name for name in files if "blas" in name.lower() or "mkl" in name.lower())


def used(model: Any, path: str, config: dict[str, Any]) -> dict[str, Any]:
    """Return the facts that are known at the start of a run."""
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
    """Write `used.json`: the facts from the start, and those that are known at the end."""
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
    """Return the digest of the adapters at the end from a folder's `used.json`, None if there is none."""
    return storage.text_at(folder / FILE, "end", "adapter_digest")
