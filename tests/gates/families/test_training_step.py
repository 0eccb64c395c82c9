"""Updates of a user's own loop against their definition: what is right, and what each gate says of a mistake."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from broken import verdicts

from gates.model import Recipe, Subject
from gates.worker.process import Worker

IMPORT = "import mlx_lm\n"
LOAD = "policy = mlx_lm.load("
EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "xray" / "training_step_gates.py"
STEP = "trainer.step"


def judged(folder: Path, gate: str, old: str = "", new: str = "", case: str = "grpo-defaults") -> tuple[str, str]:
    """Return status and reason of the example, or of one with a change that imports mlx-lm in the recorded process alone."""
    code = EXAMPLE.read_text()
    assert min(map(code.count, (IMPORT, LOAD, old))) >= 1
    if new:
        code = code.replace(old, new).replace(IMPORT, "").replace(LOAD, f"{IMPORT}    {LOAD}")
    (verdict,) = verdicts(folder, code, gate, case, quick=False)
    return verdict.status, verdict.reason


@pytest.mark.parametrize("gate", ["matches-definition"])
def test_the_example_is_right(tmp_path: Path, gate: str) -> None:
    assert judged(tmp_path, f"{STEP}.{gate}") == ("correct", "")


@pytest.mark.parametrize(
    ("gate", "old", "new", "words"),
    [
        ("rows", "(at >= begins)", "(at >= begins - 1)", "prompt tokens that train"),
        ("rows", "at < mx.array([[len(row)]", "at < mx.array([[len(row) - 1]", "do not train"),
        ("matches-definition", "/ mask.sum(1)).mean()", ").sum() / mask.sum()", "update 1, row"),
        ("optimizer", "optim.Adam(rate)", "optim.Adam(2 * rate)", "learning rate of the first update"),
        ("matches-definition", '"ddof": 0', '"delta_of_freedom": 0', "no word 'delta_of_freedom'"),
        ("matches-definition", "for _ in range(updates):", "for _ in range(1):", "1 of 2 updates were recorded"),
    ],
)
def test_a_mistake_is_wrong(tmp_path: Path, gate: str, old: str, new: str, words: str) -> None:
    status, reason = judged(tmp_path, f"{STEP}.{gate}", old, new)
    assert status == "wrong"
    assert words in reason


def test_no_metrics_is_unsupported(tmp_path: Path) -> None:
    status, reason = judged(tmp_path, f"{STEP}.metrics")
    assert (status, reason[:20]) == ("unsupported", "it reports no metric")


def test_a_recorded_op_has_a_process_of_its_own(tmp_path: Path) -> None:
    """Its value has the files of the recorder, which the worker itself does not load."""
    code = """
import sys
def training_step(**inputs):
    return {"folder": inputs["folder"], "loaded": "gates_xray" in sys.modules}
def loaded(**_):
    return {"loaded": "gates_xray" in sys.modules}
OPS = {"training_step": training_step, "loaded": loaded}
"""
    (tmp_path / "mine.py").write_text(code)
    worker = Worker.start(Subject("mine", tmp_path / "mine.py", "subject_mine"), threads=1)
    try:
        inputs = {"model": Recipe("model", {"path": "x"}), "updates": 1, "rewards": np.zeros(2, np.float32)}
        step = worker.call("training_step", inputs, limit_s=30.0)
        assert step.value["loaded"] is True
        assert step.value["recording"] == {}
        assert not Path(step.value["folder"]).exists()
        assert worker.call("loaded", {}, limit_s=30.0).value == {"loaded": False}
    finally:
        worker.close()
