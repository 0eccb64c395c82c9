"""Results files are valid after a kill at any moment; errors name the line."""

import itertools
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import get_args

import jsonschema
import pytest

from gates.model import ConfigurationError, Evidence, Relation, Verdict
from gates.report.markdown import render
from gates.results.integrity import RELATIONS, holds
from gates.results.jsonl import Writer, as_line, file_name, read
from gates.results.record_types import Number, StrictRecord
from gates.results.records import HeaderRecord, Machine, ModelRecord, SummaryRecord, verdict_record

ROOT = Path(__file__).resolve().parents[3]
HEADER = HeaderRecord(
    verb="check",
    command=["check"],
    started="2026-11-21T00:00:00+00:00",
    tool="rl-gates 0",
    commit=None,
    dirty=None,
    machine=Machine(system="s", cpu="c", cores=2, features=[]),
    python="3",
    numpy="2",
    blas="b",
    jobs=1,
    threads=1,
    seed=0,
    quick=True,
    model=None,
    gates=["g"],
    subjects=["s"],
    planned=2,
)
ODD = Evidence("q", float("nan"), "<=", float("inf"), "because", 'a "quoted" | place\n')
VERDICT = Verdict("g", "s", "c", 1, "wrong", "bound", ODD.sentence(), (ODD,), 0.5)
COUNTS = {"correct": 0, "wrong": 2, "error": 0, "skipped": 0, "unsupported": 0, "waived": 0}


def recorded(path: Path) -> bytes:
    writer = Writer(path)
    for record in (HEADER, verdict_record(VERDICT), verdict_record(replace(VERDICT, case="d"))):
        writer.write(record)
    writer.write(SummaryRecord(counts=COUNTS, seconds=1.0, exit_code=1))  # type: ignore[arg-type]
    writer.close()
    return path.read_bytes()


class TestFile:
    """Writing and reading."""

    def test_every_line_is_json_of_the_published_schema(self, tmp_path: Path) -> None:
        """Each line is strict JSON, NaN and infinity as strings, and validates against the published schema."""
        validator = jsonschema.Draft202012Validator(json.loads((ROOT / "results" / "schema.json").read_text()))
        for line in recorded(tmp_path / "r.jsonl").splitlines():
            validator.validate(json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON")))
        evidence = json.loads((tmp_path / "r.jsonl").read_text().splitlines()[1])["evidence"][0]
        assert (evidence["observed"], evidence["limit"]) == ("nan", "inf")

    def test_a_truncated_file_keeps_its_complete_lines(self, tmp_path: Path) -> None:
        """The complete lines are read, and the state says how far the run came."""
        data = recorded(tmp_path / "whole.jsonl")
        ends = [i + 1 for i, byte in enumerate(data) if byte == ord("\n")]
        cut = tmp_path / "cut.jsonl"
        for size in range(len(data) + 1):
            cut.write_bytes(data[:size])
            if size < ends[0]:
                with pytest.raises(ConfigurationError, match="no complete line"):
                    read(cut)
                continue
            results = read(cut)
            verdicts = sum(end <= size for end in ends[1:3])
            assert len(results.verdicts) == verdicts
            assert results.state == ("complete" if size == len(data) else f"incomplete: {verdicts} of 2")
            assert f"| state | {results.state} |" in render([results])

    def test_names_are_unique_and_have_no_colon(self) -> None:
        names = {file_name("check") for _ in range(1000)}
        assert len(names) == 1000
        assert not any(":" in name for name in names)

    def test_a_file_is_never_overwritten(self, tmp_path: Path) -> None:
        recorded(tmp_path / "r.jsonl")
        with pytest.raises(ConfigurationError, match="cannot write"):
            Writer(tmp_path / "r.jsonl")


@pytest.mark.parametrize(
    ("stop", "code"),
    [(signal.SIGKILL, -9), (signal.SIGINT, 130), (signal.SIGTERM, 130)],
    ids=["killed", "interrupted", "terminated"],
)
def test_a_stopped_run_leaves_valid_lines(tmp_path: Path, stop: signal.Signals, code: int) -> None:
    """A run stopped in the middle leaves complete lines; its reader says `incomplete: n of N`.

    Like the background job of a script it starts with SIGINT ignored; Ctrl-C stops it nevertheless.
    """
    long = ["kl", "advantages", "loss", "logprobs"]  # takes seconds, since the machine may pause before the signal
    command = [sys.executable, "-m", "gates", "check", *long, "--subject", "numpy", "--jobs", "1"]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # inherited
    try:
        process = subprocess.Popen(
            [*command, "--out", str(tmp_path)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    deadline = time.monotonic() + 60.0
    while not any(path.read_bytes().count(b"\n") > 5 for path in tmp_path.glob("*.jsonl")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.002)
    os.kill(process.pid, stop)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == code, errors
    (file,) = tmp_path.glob("*.jsonl")
    results = read(file)
    assert results.state == f"incomplete: {len(results.verdicts)} of {results.header.planned}"
    if stop != signal.SIGKILL:
        assert results.state in errors


def test_ctrl_c_in_the_serializer_of_a_number_is_ctrl_c() -> None:
    """Else it would be an error of pydantic, and a run stopped in it a fault of Gates."""
    signals = [signal.SIGTERM]

    class Interrupted(float):
        def __repr__(self) -> str:
            if signals:
                raise KeyboardInterrupt(signals.pop())
            return super().__repr__()

    class Line(StrictRecord):
        number: Number

    with pytest.raises(KeyboardInterrupt):
        Line.model_construct(number=Interrupted("nan")).model_dump_json()


def test_evidence_is_checked_like_the_judge() -> None:
    """A reader's check agrees with `Evidence.holds`, NaN included."""
    numbers = [math.nan, -math.inf, -1.0, -0.0, 0.0, 5e-324, 1.0, math.inf]
    for relation, a, b in itertools.product(RELATIONS, numbers, numbers):
        assert holds(a, relation, b) == Evidence("error", a, relation, b, "chosen by hand").holds, (a, relation, b)
    assert set(RELATIONS) == set(get_args(Relation))


def test_nan_is_written_as_text() -> None:
    """A NaN in a subject's description of a model keeps the line valid."""
    line = as_line(ModelRecord(spec={"scale": math.nan, "sizes": [1, math.inf]}, hash="0"))
    assert json.loads(line)["spec"] == {"scale": "NaN", "sizes": [1, "Infinity"]}
