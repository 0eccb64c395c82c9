"""The gates on broken subjects: whatever a subject returns, it is its own failure and never an error of the judge."""

from __future__ import annotations

from pathlib import Path

import pytest
from broken import broken, verdicts

LAYOUTS = """
from gates.subjects.numpy_baseline import subject as whole

def group_advantages(rewards, **inputs):
    {}
    return {{"advantages": whole.advantages.group_advantages(rewards, **inputs)}}

OPS = {{"group_advantages": group_advantages}}
"""


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ("pass", "correct", ""),
        ("if rewards.dtype.byteorder == '>': raise TypeError('big-endian')", "correct", ""),
        ("if rewards.strides[0] != rewards.itemsize: import os; os._exit(1)", "hardening", "crashed"),
        ("if rewards.strides[0] != rewards.itemsize: rewards = rewards * rewards", "hardening", "strided input"),
    ],
    ids=["takes all", "refuses one", "crashes on one", "differs on one"],
)
def test_a_layout_may_be_refused_and_nothing_else(tmp_path: Path, body: str, status: str, words: str) -> None:
    """A clear error for a memory layout is allowed; a crash there, or other numbers, fail."""
    for verdict in verdicts(tmp_path, LAYOUTS.format(body), "advantages.matches-definition", "layouts"):
        assert verdict.status == status, verdict.reason
        assert words in verdict.reason


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ('found["logits"][0, 0, 3] = np.nan', "not finite at 1 draws"),
        ('found["tokens"][0, 0] = 10**6', "each token below V"),
        ('found["tokens"][0, 0] = -1', "negative token"),
        ('found["lengths"] = found["lengths"] * 0', "has lengths [0"),
        ('found["lengths"] = found["lengths"] + 1000', "has lengths ["),
        ('found["uniforms"] = found["uniforms"] * np.nan', "did not use their keyed uniform"),
        ('found["tokens"] = found["tokens"].astype(np.float32)', "has dtype float32"),
        ('found["logits"] = np.flip(found["logits"], axis=2)', "unexplained differences"),
    ],
)
def test_a_broken_rollout_fails(tmp_path: Path, damage: str, words: str) -> None:
    """NaN logits, impossible tokens and lengths, foreign draws and swapped logits fail, with the reason."""
    code = broken("rollout", f'if inputs["path"] == "batched": {damage}', "mlx_trainer")
    for verdict in verdicts(tmp_path, code, "rollout.row-alone.equals-batch"):
        assert verdict.status == "wrong", verdict.reason
        assert words in verdict.reason


@pytest.mark.parametrize(
    "gate", ["ratio.fresh-batch-is-one", "ratio.cached-decode.within-bound", "trainer.adapters-off-is-base"]
)
def test_nan_logprobs_fail(tmp_path: Path, gate: str) -> None:
    """Log-probs that are NaN are the subject's failure, not a missing signal; in float32 and of a model in 4 bits."""
    code = broken("completion_logprobs", 'found["logprobs"] = found["logprobs"] * np.float32("nan")', "mlx_trainer")
    for verdict in verdicts(tmp_path, code, gate, most=2):
        assert verdict.status == "wrong", verdict.reason
