"""Speed files: valid, readable wherever a run stopped, and rendered by a pure function."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

from gates.cli.verbs import app
from gates.model import ConfigurationError
from gates.report.speed import render_speed
from gates.report.speed_summary import speed_summary
from gates.results.jsonl import Writer
from gates.results.records import EvidenceRecord, Machine
from gates.results.speed_file import bound, is_speed_file, read_speed
from gates.results.speed_records import (
    Bandwidth,
    Interval,
    Peak,
    RooflineRecord,
    SpeedHeader,
    SpeedRecord,
    SpeedSummary,
    Times,
    speed_schema,
)

ROOT = Path(__file__).resolve().parents[3]
HEADER = SpeedHeader(
    command=["python", "-m", "benches.versus"],
    started="2026-11-21T00:00:00+00:00",
    commit="0" * 40,
    dirty=False,
    machine=Machine(system="s", cpu="c", cores=2, features=["avx512f"]),
    python="3",
    build={"profile": "release", "features": ["avx512f", "fma"]},
    isa="",
    versions={"torch": "2"},
    threads={"torch": "2"},
    quick=False,
    busy_percent=0.0,
    planned=3,
)
ROOFLINE = RooflineRecord(
    when="before",
    bandwidth=[
        Bandwidth(threads=threads, level=level, bytes=1, reading=1e11 * threads, copying=5e10 * threads)
        for threads in (1, 2)
        for level in ("l1", "l2", "l3", "memory")
    ],
    peak=[Peak(threads=threads, float32=2e11 * threads, float64=1e11 * threads) for threads in (1, 2)],
)
RIGHT = EvidenceRecord(
    quantity="error", observed=0.5, relation="<=", limit=1.0, because="derived", where="", role="claim", holds=True
)
WRONG = replace(RIGHT, quantity="k3 | inverted", observed=float("inf"), holds=False)


def timed(**changes: Any) -> SpeedRecord:
    facts: dict[str, Any] = {
        "op": "op",
        "shape": "4x4",
        "baseline": "peer",
        "outcome": "timed",
        "evidence": [RIGHT],
        "rounds": 30,
        "ours": Times(statement="f(x)", calls=10, median_us=10.0, least_us=9.0, quartile_range_us=1.0),
        "theirs": Times(statement="g(x)", calls=1, median_us=50.0, least_us=49.0, quartile_range_us=1.0),
        "ratio": Interval(value=5.0, low=4.5, high=5.5),
        "control": Interval(value=1.0, low=0.99, high=1.01),
        "goal": 4.0,
        "goal_met": "met",
    }
    return SpeedRecord(**facts | changes)


REFUSED = timed(
    outcome="baseline wrong",
    reason="it is inverted",
    evidence=[WRONG],
    ours=None,
    theirs=None,
    rounds=0,
    ratio=None,
    control=None,
    goal_met=None,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A whole run of two rows."""
    writer = Writer(tmp_path / "speed.jsonl")
    for record in (HEADER, ROOFLINE, timed(), REFUSED):
        writer.write(record)
    writer.write(SpeedSummary(counts={"timed": 1, "baseline wrong": 1}, goals={"met": 1}, seconds=2.0))
    writer.close()
    return writer.path


class TestFile:
    """What is written and read back."""

    def test_every_line_is_of_the_published_schema(self, file: Path) -> None:
        """Strict JSON that validates, infinity as a string; the published schema is that of the models."""
        published = json.loads((ROOT / "results" / "speed-schema.json").read_text())
        assert published == speed_schema()
        for line in file.read_text().splitlines():
            jsonschema.validate(
                json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON")), published
            )

    def test_a_cut_run_says_how_far_it_came(self, file: Path) -> None:
        """A torn last line is ignored."""
        lines = file.read_bytes().splitlines(keepends=True)
        file.write_bytes(b"".join(lines[:3]) + lines[3][:20])
        assert read_speed(file).state == "incomplete: 1 of 3"

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("", "no complete line"),
            ("{}\n", "no speed record"),
            (timed().model_dump_json() + "\n", "must be a speed-header"),
        ],
        ids=["empty", "no record", "no header"],
    )
    def test_something_else_is_refused(self, tmp_path: Path, text: str, words: str) -> None:
        """One sentence with the line."""
        (tmp_path / "x.jsonl").write_text(text)
        with pytest.raises(ConfigurationError, match=words):
            read_speed(tmp_path / "x.jsonl")

    def test_two_headers_are_two_runs(self, file: Path) -> None:
        """One file holds one run."""
        lines = file.read_bytes().splitlines(keepends=True)
        file.write_bytes(lines[0] + lines[0])
        with pytest.raises(ConfigurationError, match=r"speed\.jsonl:2 is a second header"):
            read_speed(file)


class TestBound:
    """The roofline of a row, by hand."""

    def test_small_data_belongs_to_one_thread(self) -> None:
        """20 kB read, none written: 20e3 / 1e11 s at the first level."""
        found = bound(timed(reads=20_000), [ROOFLINE])
        assert found is not None
        assert (found.threads, found.limited_by) == (1, "l1")
        assert found.microseconds == pytest.approx(0.2)

    def test_what_is_written_is_copied(self) -> None:
        """100 MB read and 40 MB written: 80 MB at 1e11 (copying), 60 MB at 2e11 (reading), two threads."""
        found = bound(timed(reads=100_000_000, writes=40_000_000), [ROOFLINE])
        assert found is not None
        assert (found.threads, found.limited_by) == (2, "memory")
        assert found.microseconds == pytest.approx(1100.0)

    def test_arithmetic_may_be_what_limits(self) -> None:
        """1e6 float64 operations on one thread of 1e11 a second."""
        found = bound(timed(reads=8, flops=1e6, precision="float64"), [ROOFLINE])
        assert found is not None
        assert (found.limited_by, found.microseconds) == ("arithmetic", pytest.approx(10.0))

    def test_the_better_of_two_measurements_counts(self) -> None:
        """A busy moment before the rows does not flatter us."""
        faster = ROOFLINE.model_copy(
            update={"bandwidth": [b.model_copy(update={"reading": 10 * b.reading}) for b in ROOFLINE.bandwidth]}
        )
        found = bound(timed(reads=20_000), [ROOFLINE, faster])
        assert found is not None
        assert found.microseconds == pytest.approx(0.02)

    def test_nothing_measured_is_no_bound(self) -> None:
        """Without rates, or without bytes, there is no fraction to show."""
        assert bound(timed(reads=1), []) is None
        assert bound(timed(), [ROOFLINE]) is None


class TestReport:
    """The markdown."""

    def test_rendering_twice_gives_the_same_bytes(self, file: Path, tmp_path: Path) -> None:
        """The report is a pure function of the file, through the command line too."""
        once, again = (render_speed([read_speed(file)]) for _ in range(2))
        assert once == again
        done = CliRunner().invoke(app, ["report", str(file), "--out", str(tmp_path / "SPEED.md")])
        assert done.exit_code == 0
        assert (tmp_path / "SPEED.md").read_text() == once

    def test_a_refused_baseline_shows_its_verdict_and_no_speed(self, file: Path) -> None:
        """No time, no ratio, the number that refuses it, and its reason."""
        text = render_speed([read_speed(file)])
        (row,) = [line for line in text.splitlines() if line.startswith("| 4x4") and "baseline wrong" in line]
        assert row == "| 4x4 | peer |  |  | **baseline wrong** | ≥ 4 |  |  |  |"
        assert "k3 \\| inverted is inf, must be <= 1 (derived)" in text
        assert "baseline wrong: it is inverted" in text

    def test_ratio_goal_and_control_stand_beside_each_other(self, file: Path) -> None:
        """The row holds both medians, the ratio with its interval, the goal and the control."""
        wanted = "| 4x4 | peer | 10 | 50 | 5 (4.5–5.5) | ≥ 4 met | 1 (0.99–1.01) | 30 |  |"
        assert wanted in render_speed([read_speed(file)])

    @pytest.mark.parametrize(
        ("changes", "words"),
        [({"quick": True}, "a smoke test"), ({"busy_percent": 40.0}, "the machine was busy"), ({}, "")],
        ids=["quick", "busy", "neither"],
    )
    def test_a_run_that_proves_nothing_says_so(self, file: Path, changes: dict[str, Any], words: str) -> None:
        """In its first line."""
        run = read_speed(file)
        run.header = run.header.model_copy(update=changes)
        (state,) = [line for line in render_speed([run]).splitlines() if line.startswith("| state")]
        assert words in state
        assert ("conclude nothing" in state) == bool(words)

    def test_speeds_and_verdicts_are_rendered_apart(self, file: Path, tmp_path: Path) -> None:
        """One call renders one kind of file."""
        (tmp_path / "other.jsonl").write_text('{"record": "header"}\n')
        assert is_speed_file(file)
        assert not is_speed_file(tmp_path / "other.jsonl")
        done = CliRunner().invoke(app, ["report", str(file), str(tmp_path / "other.jsonl")])
        assert isinstance(done.exception, ConfigurationError)

    def test_the_recorded_report_is_rendered_from_what_was_recorded(self) -> None:
        """Rendering results/bench again gives results/SPEED.md, byte for byte."""
        recorded = sorted((ROOT / "results" / "bench").glob("*.jsonl"))
        report = ROOT / "results" / "SPEED.md"
        assert bool(recorded) == report.exists()
        if recorded:
            assert render_speed(map(read_speed, recorded)) == report.read_text()


class TestSummary:
    """The few lines that README holds."""

    def test_shapes_are_one_line_with_the_least_and_the_greatest_ratio(self, file: Path) -> None:
        """A shape that misses its goal is named with the goal."""
        run = read_speed(file)
        run.rows = [
            timed(),
            timed(shape="8x8", ratio=Interval(value=2.0, low=1.9, high=2.1), goal_met="missed"),
            timed(shape="9x9", goal=None, goal_met=None, ratio=Interval(value=70.0, low=69, high=71)),
        ]
        assert speed_summary([run]).splitlines()[2:] == [
            "| op | peer | 3 | 2 – 70 | 1 met, 1 missed (8x8 wants 4) |",
        ]

    def test_a_refused_baseline_has_no_ratio(self, file: Path) -> None:
        """Its outcome stands in the place of one."""
        run = read_speed(file)
        run.rows = [REFUSED]
        assert speed_summary([run]).splitlines()[2:] == ["| op | peer | 1 | **baseline wrong** at 4x4 |  |"]

    def test_of_a_row_the_newest_run_counts(self, file: Path) -> None:
        """Whatever the order in which runs are read; and a run on a slower instruction set never does."""
        ratios = {"2026-11-20T10:00:00+00:00": 5.0, "2026-11-21T10:00:00+00:00": 7.0, "2026-11-22T10:00:00+00:00": 3.0}
        runs = []
        for started, value in reversed(ratios.items()):
            run = read_speed(file)
            isa = "avx2" if value == 3.0 else ""
            run.header = run.header.model_copy(update={"started": started, "isa": isa})
            run.rows = [timed(ratio=Interval(value=value, low=value, high=value))]
            runs.append(run)
        assert speed_summary(runs).splitlines()[2:] == ["| op | peer | 1 | 7 | 1 met |"]
