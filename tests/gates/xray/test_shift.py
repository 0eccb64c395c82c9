"""What is said where the log-probs of a loss are taken at other positions than a language model's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from recordings import events, generated, write
from scenarios import grpo, picture

from gates.xray.picture import read


@pytest.mark.parametrize(("shift", "words"), [(0, "the shift is missing"), (2, "the shift is made twice")])
def test_scores_of_another_position_need_attention(shift: int, words: str, tmp_path: Path) -> None:
    made = grpo()
    made.document = {"shift": shift, "tried": [[["log_prob"], 0.8], [["log_prob 0 before"], 3e-7]]}
    reading = picture(tmp_path, made).of("shift")
    assert reading is not None
    assert (reading.kind, words in reading.sentence, "80%" in reading.because) == ("attention", True, True)


def test_the_usual_shift_is_not_mentioned(tmp_path: Path) -> None:
    assert picture(tmp_path, grpo()).of("shift") is None


def test_no_loss_is_correct_on_scores_of_another_position(tmp_path: Path) -> None:
    """Its coefficients may be those of the definition; its log-probs are not."""
    made = grpo()
    made.document = {"shift": 0}
    write(tmp_path / "process-1", made)
    note = {"advantages": np.arange(8.0).tolist(), "settings": {"algorithm": "grpo"}}
    events(tmp_path / "process-1", generated(), {"event": "note", "update": 0, **note})
    verdict = read(tmp_path).updates[-1].verdicts[-1]
    assert (verdict.status, "the shift is missing" in verdict.computes) == ("wrong", True)
