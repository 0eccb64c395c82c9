"""What a node of a cluster must have for a cell: of its subject, of its gate, and of the model that the user brings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from gates.run.calibration import runs_a_model
from gates.run.runner import Options, PlannedCase

COPIES = 2.0  # of a model's weights: a worker holds them once, and a policy beside its reference is two


def needs(job: PlannedCase, options: Options) -> dict[str, float]:
    """Return what a node must have, beside a processor: `metal`, `cuda`, `memory` in bytes, or any name.

    Where subject, gate and model want the same, the most of them counts: it is one process that has it.
    """
    wanted = dict(job.subject.needs)
    _raise(wanted, job.gate.needs)
    if options.model is not None and runs_a_model(job.gate) and (size := weights(options.model)):
        _raise(wanted, {"memory": COPIES * size})
    return wanted


def unmet(wants: Mapping[str, float], nodes: Sequence[Mapping[str, float]]) -> str:
    """Return in words what no single node has, or nothing; Ray would wait for such a node for ever."""
    names = {"cuda": "GPU"}  # what Ray calls it; other names are its own or the cluster's
    wanted = {"CPU": 1.0} | {names.get(name, name): amount for name, amount in wants.items()}
    if any(all(found.get(name, 0.0) >= amount for name, amount in wanted.items()) for found in nodes):
        return ""
    return ", ".join(f"{name} {amount:g}" for name, amount in sorted(wants.items())) or "a processor"


@cache
def weights(model: str) -> int:
    """Return the bytes of a model's weights, 0 where its folder is not on this machine."""
    return sum(file.stat().st_size for file in Path(model).glob("*.safetensors"))


def _raise(wanted: dict[str, float], more: Mapping[str, float]) -> None:
    for name, amount in more.items():
        wanted[name] = max(wanted.get(name, 0.0), amount)
