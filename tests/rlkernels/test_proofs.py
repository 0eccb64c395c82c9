"""The recorded long proofs of the kernels hold what the README and the issue of accuracy promise."""

import importlib
import json
from pathlib import Path

import pytest

RECORD = Path(__file__).parents[2] / "results" / "kernels" / "proofs.jsonl"


def found(proof: str) -> dict[str, float]:
    lines = [json.loads(line) for line in RECORD.read_text(encoding="utf-8").splitlines()]
    return next(line["found"] for line in lines if line["proof"] == proof)


def test_exp_and_log_are_within_an_ulp_for_every_float32() -> None:
    """All 2**32 inputs were tried, natively and in release."""
    assert found("exp and log")["exp float32 ulp"] <= 1.0
    assert found("exp and log")["log float32 ulp"] <= 1.0


def test_float64_exp_and_log_are_a_step_beside_the_platforms_at_most() -> None:
    """The platform's are right to less than an ulp, so one step is less than 2 ulp."""
    steps = [value for name, value in found("exp and log").items() if "float64" in name]
    assert len(steps) == 2
    assert max(steps) <= 1


def test_every_family_was_fuzzed() -> None:
    """Every target ran a hundred thousand times at least, and there are no others."""
    executions = found("fuzz")
    targets = Path(__file__).parents[2] / "rust" / "rlkernels" / "fuzz" / "fuzz_targets"
    assert set(executions) - {"total"} == {path.stem for path in targets.glob("*.rs")}
    assert min(executions.values()) >= 10**5


def test_ten_million_executions_in_all() -> None:
    """No input made a kernel panic, or two instruction sets differ."""
    executions = found("fuzz")
    total = executions.pop("total")
    assert total == sum(executions.values())
    assert total >= 10**7


def test_sanitizer_and_valgrind_had_nothing_to_report() -> None:
    """AddressSanitizer ends a run at its first report; valgrind's reports with a frame of rlkernels are counted."""
    assert found("AddressSanitizer")["tests passed"] >= 50
    assert found("valgrind")["tests passed"] >= 100
    assert found("valgrind")["reports"] == 0


def test_the_bits_of_arm64_are_those_of_x86_64() -> None:
    """The crate's tests, with the digests of its bits, passed on an emulated processor."""
    assert found("NEON")["tests passed"] >= 50


def test_a_proof_counts_for_its_own_sources_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """CI leaves NEON and fuzzing out where the record has them for these sources, and for no others."""
    monkeypatch.syspath_prepend(str(RECORD.parents[2] / "tools"))
    kernel_sources = importlib.import_module("kernel_sources")

    record = tmp_path / "proofs.jsonl"
    monkeypatch.setattr(kernel_sources, "RECORD", record)
    line = {"proof": "NEON", "date": "2026-11-24", "found": {"tests passed": 87}, "sources": "abc"}
    record.write_text(json.dumps(line) + "\n", encoding="utf-8")
    for now, expected in (("abc", True), ("abd", False), ("", False)):
        monkeypatch.setattr(kernel_sources, "sources", lambda now=now: now)
        assert kernel_sources.held(["neon"]) is expected
        assert not kernel_sources.held(["neon", "fuzz"])
