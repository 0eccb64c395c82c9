"""How many files a reader of a training step visits, by a trace of a real one, and that docs/training.md lists them."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import runs

from gates_reference.trainer.config import algorithm as algorithms
from gates_reference.trainer.loop import run as loop_run

pytestmark = pytest.mark.fast

ROOT = Path(__file__).resolve().parents[3]
TRAINER = ROOT / "reference" / "gates_reference" / "trainer"
MOST = 12


def traced(call: Callable[[], Any]) -> tuple[Any, set[str]]:
    """The result of a call, and the files of reference/gates_reference/trainer of which it entered a function, a generator or a lambda."""
    entered: set[str] = set()

    def profile(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            entered.add(frame.f_code.co_filename)

    sys.setprofile(profile)
    try:
        result = call()
    finally:
        sys.setprofile(None)
    return result, {Path(name).relative_to(TRAINER).as_posix() for name in entered if name.startswith(f"{TRAINER}/")}


def test_training_md_lists_the_files_of_a_step(tmp_path: Path) -> None:
    """A step of GRPO enters at most twelve files of the trainer after its rollout, the numbered ones, and the rollout the others.

    Counted is every file of reference/gates_reference/trainer of which Python code runs in `Engine.learn`: from scored completions to the last
    update, with old and reference passes, several optimizer steps and micro-batches, and gradients that are clipped. The rollout is
    `Engine.generate` by the cached path, with a user's reward. Imports, metrics and checkpoints are outside both.
    """
    config = runs.config(
        tmp_path / "run",
        rollout={"path": "cached"},
        algorithm={"name": "grpo", "settings": {"beta": 0.04}},
        optimizer={"max_gradient_norm": 1e-6},
        loop={"steps": 1, "iterations": 2, "minibatches": 2, "micro_batch_rows": 3, "evaluate_every_steps": 0},
    )
    run = loop_run.Run(config, algorithms.create(config), resume=False)
    try:
        upcoming = run._upcoming()
        generation, rollout = traced(lambda: run.engine.generate(upcoming, 0))
        learned, step = traced(lambda: run.engine.learn(generation, 1, 1e-3))
    finally:
        run.close()
    assert len(learned.updates) == 4
    section = (ROOT / "docs" / "training.md").read_text().partition("## Read a training step")[2].partition("\n## ")[0]
    numbered = re.findall(r"^\d+\. `([\w/]+\.py)`", section, re.MULTILINE)
    assert step == set(numbered)
    assert len(numbered) <= MOST
    listed = {
        name for line in re.findall(r"^- (.*)", section, re.MULTILINE) for name in re.findall(r"`([\w/]+\.py)`", line)
    }
    assert rollout - step == listed
