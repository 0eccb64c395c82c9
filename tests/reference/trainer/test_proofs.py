"""The recorded long proof of resuming holds what the README and the issue promise."""

import json
from pathlib import Path

RECORD = Path(__file__).resolve().parents[3] / "results" / "trainer" / "proofs.jsonl"


def test_a_hundred_kills_of_a_hundred_left_no_trace() -> None:
    """Killed at 100 random moments and resumed, every end was byte for byte that of an uninterrupted run."""
    (line,) = [json.loads(text) for text in RECORD.read_text(encoding="utf-8").splitlines()]
    assert line["proof"] == "resume"
    assert line["found"]["kills"] == line["found"]["identical"] == 100
    assert line["found"]["ends"] >= 2
    assert len(line["commit"]) == 40
    assert line["versions"].keys() >= {"mlx", "mlx-lm", "numpy", "python"}
