"""The judge's own long proofs, as `make record` recorded them (tools/long_proofs.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_counterexamples_table import MODELS, TABLE

RECORD = Path(__file__).resolve().parents[3] / "results" / "judge" / "proofs.jsonl"


def recorded_proof(proof: str) -> dict[str, Any]:
    """Return the recorded result of a proof; without one the test is skipped with the reason."""
    lines = [json.loads(line) for line in RECORD.read_text(encoding="utf-8").splitlines()] if RECORD.exists() else []
    for line in lines:
        if line["proof"] == proof:
            assert len(line["commit"]) == 40
            assert line["command"]
            return dict(line["found"])
    pytest.skip(f"nobody has recorded the proof {proof} yet: tools/long_proofs.py {proof}")


def test_a_hundred_kills_lost_no_verdict() -> None:
    """SIGKILL at 100 random moments of `gates check`; every resumed run has each case once."""
    recorded = recorded_proof("resume")
    assert recorded["kills"] == 100
    assert recorded["whole_runs"] >= 10  # with all kills in one run, most would hit its start


def test_every_mistake_of_the_table_was_shrunk() -> None:
    """All rows of the table of counterexamples, including those with a model."""
    assert recorded_proof("small") == {"mistakes": len(TABLE) + len(MODELS), "skipped": 0}


def test_a_killed_node_lost_no_verdict() -> None:
    """One of several nodes was killed: every case has one verdict, some after a retry."""
    recorded = recorded_proof("cluster")
    assert recorded["nodes"] >= 3
    assert recorded["nodes_killed"] == 1
    assert recorded["judged_once"] == recorded["cells"] > 1
    assert recorded["sent_again"] >= 1
