"""The gates of whole runs and of logits on broken subjects."""

from __future__ import annotations

from pathlib import Path

import pytest
from broken import broken, verdicts


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
            "len(inputs['eos_ids']) and whole.OPS['rollout'](**{**inputs, 'eos_ids': inputs['eos_ids'][:0]})",
            "as a share",
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
    found = verdicts(tmp_path, broken(op, damage, "mlx_trainer"), gate, most=1)
    assert {verdict.status for verdict in found} == {"wrong"}
    assert all(words in verdict.reason for verdict in found), {verdict.reason for verdict in found}


def test_log_probs_in_half_precision_are_imprecise(tmp_path: Path) -> None:
    """The definition admits two roundings to the half type; full precision asks for float32, and float64 is as good."""
    gate, damage = "scoring.half-logits.upcast", 'found["logprobs"] = found["logprobs"].astype(np.{})'
    for dtype, status, words in (("float16", "imprecise", "narrower than float32 is 1"), ("float64", "correct", "")):
        subject = broken("completion_logprobs", damage.format(dtype), "mlx_trainer")
        (verdict,) = verdicts(tmp_path, subject, gate, most=1)
        assert verdict.status == status
        assert words in verdict.reason
