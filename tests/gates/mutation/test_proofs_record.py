"""The judge's own long proofs, as `make record` recorded them (tools/judge_proofs.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_counterexamples_table import MODELS, TABLE

RECORD = Path(__file__).resolve().parents[3] / "results" / "judge" / "proofs.jsonl"


def found(proof: str) -> dict[str, Any]:
    """What a proof found, or a skip with the reason where nothing is recorded."""
    lines = [json.loads(line) for line in RECORD.read_text(encoding="utf-8").splitlines()] if RECORD.exists() else []
    for line in lines:
        if line["proof"] == proof:
            assert len(line["commit"]) == 40
            assert line["command"]
            return dict(line["found"])
    pytest.skip(f"nobody has recorded the proof {proof} yet: tools/judge_proofs.py {proof}")


def test_a_hundred_kills_lost_nothing() -> None:
    """SIGKILL at 100 random moments of `gates check`; every run that was resumed is whole, each case once."""
    recorded = found("resume")
    assert recorded["kills"] == 100
    assert recorded["whole_runs"] >= 10  # with all kills in one run most of them hit its start


def test_every_mistake_of_the_table_was_made_small() -> None:
    """All rows of the counterexamples' table, the long ones with a model too."""
    assert found("small") == {"mistakes": len(TABLE) + len(MODELS), "skipped": 0}


def test_a_lost_node_lost_nothing() -> None:
    """Of several nodes one was killed in the middle: as many verdicts as cases, some of them sent again."""
    recorded = found("cluster")
    assert recorded["nodes"] >= 3
    assert recorded["nodes_killed"] == 1
    assert recorded["judged_once"] == recorded["cells"] > 1
    assert recorded["sent_again"] >= 1
