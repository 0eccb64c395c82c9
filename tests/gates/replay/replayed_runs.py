"""Traced runs for tests of replay: train one, and name the stages that fail."""

import json
from pathlib import Path
from typing import Any

from gates.families.trainer import replays
from gates.replay.run import Run, load_run
from gates.replay.stages import STAGES
from gates.report import replayed
from gates.subjects.mlx_trainer import run as subject
from gates_reference import tiny


def traced(folder: Path, changes: dict[str, Any], model: dict[str, Any] | None = None) -> Path:
    """Train a run of the gates' size with these changes, and return its folder."""
    subject.traced_run(
        model={"path": str(tiny.build(model or dict(replays.SMALL)))},
        tables=replays.tables(changes, 7),
        folder=str(folder),
        stops=[],
    )
    return folder


def model_of(folder: Path) -> Path:
    """Return the folder of the model that a run began with."""
    return Path(json.loads((folder / "trace" / "run.json").read_text())["model"])


def failing_of(run: Run) -> dict[str, list[str]]:
    """Return the quantities beyond their limit, by stage."""
    return {name: wrong for name, stage in STAGES.items() if (wrong := replayed.failing(stage(run)))}


def failing(folder: Path) -> dict[str, list[str]]:
    """Return the quantities of a run's folder that are beyond their limit, by stage."""
    return failing_of(load_run(folder, model_of(folder)))
