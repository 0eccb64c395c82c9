"""The trainer learns: one algorithm, one seed; `make record` has all of them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / ".ci" / "learning.py"


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`.ci/learning.py` as a module."""
    spec = importlib.util.spec_from_file_location("learning_program", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "learning_program", module)
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_grpo_gains_three_tenths(program: Any) -> None:
    """From the warmed-up model, by fresh samples of every problem."""
    curve = program.curve("grpo", 0, 60)
    assert curve["end"] - curve["start"] >= 0.3, curve


def test_the_control_keeps_the_rewards_and_loses_whose_they_are(program: Any) -> None:
    """Shuffled rewards have the same sum."""
    found = program.shuffled(prompts=["1+2="] * 40, completions=["3"] * 20 + ["4"] * 20, answer=[3] * 40)
    assert sum(found) == 20
    assert found != [1.0] * 20 + [0.0] * 20
