"""The resources that a cluster's node must have to judge a case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from gates.run.plan import Options, PlannedCase, runs_a_model

COPIES = 2.0  # of a model's weights in one worker: a policy and its reference


def needs(planned: PlannedCase, options: Options) -> dict[str, float]:
    """Return what a node must have besides a processor: `metal`, `cuda`, `memory` in bytes, or any other name.

    The largest amount of each resource counts among those of subject, gate and model, because one process serves all.
    """
    wanted = dict(planned.subject.needs)
    _raise(wanted, planned.gate.needs)
    if options.model is not None and runs_a_model(planned.gate) and (size := weights(options.model)):
        _raise(wanted, {"memory": COPIES * size})
    return wanted


def unmet(wants: Mapping[str, float], nodes: Sequence[Mapping[str, float]]) -> str:
    """Return the resources that no single node has as text, or ""; Ray itself would wait forever for such a node."""
    names = {"cuda": "GPU"}  # Ray's name; all other names are passed on
    wanted = {"CPU": 1.0} | {names.get(name, name): amount for name, amount in wants.items()}
    if any(all(node.get(name, 0.0) >= amount for name, amount in wanted.items()) for node in nodes):
        return ""
    return ", ".join(f"{name} {amount:g}" for name, amount in sorted(wants.items())) or "a processor"


@cache
def weights(model: str) -> int:
    """Return the bytes of a model's weights, or 0 if its folder is not on this machine."""
    return sum(file.stat().st_size for file in Path(model).glob("*.safetensors"))


def _raise(wanted: dict[str, float], more: Mapping[str, float]) -> None:
    for name, amount in more.items():
        wanted[name] = max(wanted.get(name, 0.0), amount)
