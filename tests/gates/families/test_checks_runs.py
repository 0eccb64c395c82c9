"""The gates of whole runs and of logits on broken subjects."""

from __future__ import annotations

from pathlib import Path

import pytest

from gates.model import Subject
from gates.registry import load
from gates.run.execute import run
from gates.run.plan import Options, plan

BROKEN = """
import numpy as np
from gates.subjects.mlx_trainer import subject as whole

def broken(**inputs):
    found = dict(whole.OPS["{op}"](**inputs))
    {damage}
    return found

OPS = {{**whole.OPS, "{op}": broken}}
"""


@pytest.mark.parametrize(
    ("gate", "op", "damage", "words"),
    [
        (
            "loss.prompt-does-not-matter",
            "loss_from_logits",
            'found["loss"] += inputs["logits"][0, 0, 0]',
            "that change",
        ),
        ("loss.prompt-does-not-matter", "loss_from_logits", 'found["gradient"] = found["gradient"] * 0', "last prompt"),
        (
            "ratio.sampler-and-scorer-agree",
            "rollout",
            'found["tempered_logprobs"] = found["model_logprobs"]',
            "Δ log-prob",
        ),
        (
            "rollout.early-ends-save-time",
            "rollout",
            "__import__('time').sleep(2 * (len(inputs['eos_ids']) > 0))",
            "as a share",
        ),
        (
            "scoring.half-logits.upcast",
            "completion_logprobs",
            'found["logprobs"] = found["logprobs"].astype(np.float64)',
            "not float32",
        ),
        ("rollout.settings-act", "rollout", 'found["tokens"] = found["tokens"] * 0', "as a share"),
        (
            "loss.constants-get-no-gradient",
            "loss_constants",
            'found["old_gradient"] = found["old_gradient"] * np.float32("nan")',
            "of old with a gradient",
        ),
        ("trainer.configuration-applies", "train_run", 'found["digest"] = "same"', "change nothing"),
        ("trainer.configuration-applies", "train_run", 'found["digest"] = inputs["folder"]', "a second run"),
    ],
)
def test_a_broken_answer_fails(tmp_path: Path, gate: str, op: str, damage: str, words: str) -> None:
    """What should move and stays, and what should stay and moves, fails with the reason."""
    (tmp_path / "broken.py").write_text(BROKEN.format(op=op, damage=damage))
    subject = Subject("broken", tmp_path / "broken.py", "subject_broken")
    chosen = load().gates[gate]
    first = plan([chosen], [subject], quick=True)[:1]
    found = [judged.verdict for judged in run(first, Options(quick=True))]
    assert {verdict.status for verdict in found} == {"fail"}
    assert all(words in verdict.reason for verdict in found), {verdict.reason for verdict in found}
