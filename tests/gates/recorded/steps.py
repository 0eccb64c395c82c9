"""Recorded steps for tests: the step of examples/recorded_steps/make_step.py with changes."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from gates.recorded import naming
from gates.recorded.finding import Finding
from gates.recorded.judge import judged

MAKE = Path(__file__).parents[3] / "examples" / "recorded_steps" / "make_step.py"


def _example() -> Any:
    spec = importlib.util.spec_from_file_location("make_step", MAKE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


EXAMPLE = _example()
SETTINGS: dict[str, str] = EXAMPLE.SETTINGS

OF_LOSS = ("loss", "gradient", "metric.kl")  # without these no loss is judged, whose mistakes take seconds to name


def write(
    path: Path,
    tensors: dict[str, Any] | None = None,
    settings: dict[str, str] | None = None,
    *,
    mistake: str = "none",
    without: tuple[str, ...] = (),
) -> Path:
    """Write the example's step with changed tensors and settings, and without some of either."""
    arrays = {**EXAMPLE.recorded(mistake), **(tensors or {})}
    metadata = {**SETTINGS, **(settings or {})}
    save_file(
        {name: np.ascontiguousarray(x).reshape(np.shape(x)) for name, x in arrays.items() if name not in without},
        path,
        {name: value for name, value in metadata.items() if name not in without},
    )
    return path


def verdicts(path: Path, *, strength: bool = False) -> dict[str, Finding]:
    """Return the findings by quantity, without the variant of an op; `strength` counts the mistakes that it would reveal."""
    with pytest.MonkeyPatch.context() as patch:
        if not strength:  # it takes most of the time of a correct step
            patch.setattr(naming, "shown", lambda *_: "")
        return {finding.quantity.partition("[")[0]: finding for finding in judged(path)[1]}
