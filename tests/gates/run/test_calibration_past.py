"""A calibration that grows over several files: what need not be judged again, and what all of them say together."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gates import calibration_limits, calibration_past, calibration_session, cli
from gates.calibration import key
from gates.calibration_limits import Entry, Limits
from gates.calibration_past import Past, codes, past
from gates.model import ConfigurationError, Gate, Subject
from gates.registry import load
from gates.report.calibration import lines as calibration_lines
from gates.report.calibration import points, rates
from gates.report.calibration_sum import Row, dtype, sums
from gates.report.markdown import render
from gates.results.jsonl import Results, read
from gates.results.records import AlarmRecord, BlockRecord, HeaderRecord, ShareRecord, SubjectRecord
from gates.run import session
from gates.run.plan import Options, plan

GATE = load().gates["philox.known-answers"]
SUBJECTS = [Subject("numpy", Path("n.py"), "n"), Subject("rlkernels", Path("r.py"), "r")]
CELLS = plan([GATE], SUBJECTS, quick=True)
CODES = {GATE.id: "a" * 16}


def head(**changes: Any) -> HeaderRecord:
    made = session.header(session.RunInfo("calibrate", ["calibrate"], [GATE], SUBJECTS, Options(), 0, seeds=10))
    return made.model_copy(update={"codes": CODES, "commit": "c" * 40, "dirty": False, **changes})


def block(first: int, seeds: int, subject: str = "numpy", case: str = "x-float32", **changes: Any) -> BlockRecord:
    values: dict[str, Any] = {
        "gate": GATE.id,
        "subject": subject,
        "case": case,
        "first_seed": first,
        "seeds": seeds,
        "counts": {"pass": seeds},
        "alarms": [],
        "retried": 0,
        "shares": [],
        "seconds": 0.0,
    }
    return BlockRecord(**(values | changes))


def results(name: str, header: HeaderRecord, *blocks: BlockRecord) -> Results:
    said = [SubjectRecord(subject=n, provides=[], versions={"numpy": "2"}) for n in ("numpy", "rlkernels")]
    return Results(Path(name), header, subjects=said, blocks=list(blocks))


def write(folder: Path, name: str, header: HeaderRecord, *blocks: BlockRecord) -> None:
    planned = sum(found.seeds for found in blocks)
    lines = [header.model_copy(update={"planned": planned}), *blocks]
    (folder / name).write_text("".join(line.model_dump_json() + "\n" for line in lines))


class TestPast:
    """Seeds that other files hold."""

    def test_seeds_of_the_same_code_need_not_be_judged_again(self, tmp_path: Path) -> None:
        """Of two files the seeds are joined, cell by cell; what no file has is left."""
        write(tmp_path, "calibrate-1.jsonl", head(), block(0, 4), block(0, 4, "rlkernels"))
        write(tmp_path, "calibrate-2.jsonl", head(), block(4, 2), block(10, 5))
        found = past(tmp_path, head())
        assert found.files == ("calibrate-1.jsonl", "calibrate-2.jsonl")
        numpy, kernels = (GATE.id, "numpy", "x-float32"), (GATE.id, "rlkernels", "x-float32")
        assert found.seeds == {numpy: {*range(6), *range(10, 15)}, kernels: set(range(4))}
        assert found.lacking([numpy, kernels], range(12)) == (12 - 8) + (12 - 4)
        assert found.lacking([(GATE.id, "numpy", "another")], range(12)) == 12

    @pytest.mark.parametrize(
        "changes",
        [
            {"codes": {GATE.id: "b" * 16}},
            {"codes": {}},
            {"full": True},
            {"machine": head().machine.model_copy(update={"cpu": "another"})},
        ],
        ids=["other code", "no code", "other draws", "other processor"],
    )
    def test_what_another_judge_said_is_judged_again(self, tmp_path: Path, changes: dict[str, Any]) -> None:
        """Other code, draws or machine are no substitute."""
        write(tmp_path, "calibrate-1.jsonl", head(**changes), block(0, 4))
        assert past(tmp_path, head()) == Past()

    def test_what_a_missing_subject_was_not_asked_is_left(self, tmp_path: Path) -> None:
        """A library that was not installed then may be here now; what a subject does not support it never will."""
        absent, unable = block(0, 4, counts={"skipped": 4}), block(0, 4, "rlkernels", counts={"unsupported": 4})
        write(tmp_path, "calibrate-1.jsonl", head(), absent, unable)
        assert past(tmp_path, head()).seeds == {(GATE.id, "rlkernels", "x-float32"): {0, 1, 2, 3}}

    def test_a_resumed_run_looks_at_the_files_that_it_began_with(self, tmp_path: Path) -> None:
        """A file that came later, or the run's own, changes nothing; one that is gone is said."""
        write(tmp_path, "calibrate-1.jsonl", head(), block(0, 4))
        write(tmp_path, "calibrate-2.jsonl", head(), block(4, 2))
        assert past(tmp_path, head(), ["calibrate-1.jsonl"]).files == ("calibrate-1.jsonl",)
        with pytest.raises(ConfigurationError, match=r"calibrate-3\.jsonl is gone"):
            past(tmp_path, head(), ["calibrate-3.jsonl"])


class TestCode:
    """What decides a gate's verdicts."""

    def test_it_is_the_checks_own_and_what_it_imports(self) -> None:
        """The definition, the runner and the comparison are in it; other families, subjects and mutants are not."""
        found = calibration_past._closure(("gates.families.kl.gates", *calibration_past.JUDGE))
        assert {
            "gates.families.kl.gates",
            "reference.oracle.kl",
            "gates.run.trial",
            "gates.run.plan",
            "gates.run.judge",
            "gates.run.compare",
        } <= found
        assert not {"gates.families.packing.gates", "gates.families.rollout.gates.rows"} & found
        assert not any(name.startswith(("gates.subjects", "gates.mutants", "gates.cli")) for name in found)

    def test_gates_of_other_checks_have_other_codes(self) -> None:
        """Every shipped gate has one; two families differ."""
        gates = load().gates
        found = codes([gates["kl.k3.matches-definition"], gates["philox.known-answers"]])
        assert len(set(found.values())) == 2
        assert found == codes([gates["kl.k3.matches-definition"], gates["philox.known-answers"]])

    def test_a_changed_line_or_limit_is_other_code(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The text of a module that the check imports, and a recorded limit of the gate, change it."""
        before = codes([GATE])
        source = calibration_past._source

        def edited(module: str) -> bytes:
            return source(module) + (b"\n# edited" if module == "reference.oracle.philox" else b"")

        monkeypatch.setattr(calibration_past, "_source", edited)
        assert codes([GATE]) != before
        monkeypatch.setattr(calibration_past, "_source", source)
        values = {"limit": 1.0, "noise_floor": 1.0, "noise_seed": 0, "smallest_effect": 2.0, "mutant": "m", "seeds": 1}
        said = {"commit": None, "date": "", "source": "", "history": [], "quantity": "q", "case": "c"}
        entry = Entry(gate=GATE.id, backend="numpy", blas="own", **values, **said)
        more = Limits(limits=[*calibration_limits.load().limits, entry])
        monkeypatch.setattr(calibration_limits, "FILE", tmp_path / "limits.json")
        calibration_limits.write(more)
        assert codes([GATE]) != before


class TestOneFile:
    """What the tables of one calibration say of its blocks."""

    def test_seeds_that_no_cell_shares_are_no_seeds_of_the_rate(self) -> None:
        """Cells that other files had at other seeds: a rate is over the seeds that every cell was judged at, and there is none."""
        apart = [block(0, 10), block(10, 10, "rlkernels")]
        (rate,) = rates(apart)
        assert (rate.seeds, rate.verdicts, rate.bound) == (0, 20, None)
        assert rate.told == "no seed was judged in every cell"
        (rate,) = rates([*apart, block(5, 10, "rlkernels")])
        assert (rate.seeds, rate.bound) == (5, pytest.approx(1 - 0.05 ** (1 / 5)))
        (rate,) = rates([block(0, 4, counts={"pass": 3, "skipped": 1}), block(4, 2)])
        assert (rate.seeds, rate.verdicts) == (2, 5)

    @pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)], ids=str)
    def test_what_is_no_number_is_the_largest_share(self, order: tuple[int, ...]) -> None:
        """Whatever comes after it: neither a number nor a claim without a limit takes its place."""
        numbers = [(0.5, 1.0), (float("nan"), 1.0), (None, float("nan"))]
        found = [
            block(
                n, 1, shares=[ShareRecord(quantity="q", share=numbers[n][0], observed=0.5, limit=numbers[n][1], seed=n)]
            )
            for n in order
        ]
        (point,) = points(found)
        assert (point.share, point.seed) == (float("inf"), 1)
        told = "\n".join(calibration_lines(results("r.jsonl", head(), *found)))
        assert "| not finite | q: numpy, x-float32, seed 1 |" in told


class TestSum:
    """All files together."""

    ROW = Row(GATE.id, "numpy", "own", "float32", full=False)

    def test_disjoint_and_overlapping_seeds_count_once(self) -> None:
        """0–9 and 5–14 are 15 seeds; the bound is that of 15, and both commits are named with theirs."""
        one = results("1", head(), block(0, 10))
        two = results("2", head(commit="d" * 40, started="9999"), block(5, 10))
        (found,) = sums([two, one]).values()
        assert (found.seeds, found.seeds_of_newest, found.alarms) == (15, 15, set())
        assert found.bound == pytest.approx(1 - 0.05 ** (1 / 15))
        assert {name: len(seeds) for name, seeds in found.commits.items()} == {"cccccccc": 10, "dddddddd": 10}
        text = render([one, two])
        assert f"| `{GATE.id}` | numpy | own | float32 | 15 | 15 | 0 | 0.18 | cccccccc: 10, dddddddd: 10 |" in text

    def test_other_code_counts_and_is_told_apart(self) -> None:
        """Seeds of an earlier gate are summed, and those of the newest one said beside them."""
        old = results("1", head(codes={}, dirty=True), block(0, 10))
        new = results("2", head(started="9999"), block(10, 4))
        (found,) = sums([old, new]).values()
        assert (found.seeds, found.seeds_of_newest) == (14, 4)
        assert "cccccccc (dirty)" in found.commits

    def test_an_alarm_of_any_file_counts_once(self) -> None:
        """The same seed refused in two files, and in two cells, is one seed with an alarm."""
        alarm = AlarmRecord(seed=3, status="fail", cause="bound", reason="r")
        wrong = {"counts": {"pass": 9, "fail": 1}, "alarms": [alarm]}
        one = results("1", head(), block(0, 10, **wrong), block(0, 10, "numpy", "y-float32", **wrong))
        two = results("2", head(), block(0, 10, **wrong))
        found = sums([one, two])[self.ROW]
        assert (found.seeds, found.alarms) == (10, {3})
        assert found.bound == pytest.approx(0.394163, rel=1e-5)  # the published limit of 1 in 10
        assert "| **1** |" in render([one, two])

    @pytest.mark.parametrize(("new", "words"), [({}, "(none of the newest code)"), (None, "(1 of the newest code)")])
    def test_an_alarm_of_earlier_code_stays_and_is_told_apart(self, new: dict[str, Any] | None, words: str) -> None:
        """The gate was mended since: its alarm is counted, and said to be none of the newest."""
        alarms = [AlarmRecord(seed=seed, status="error", cause="no signal", reason="r") for seed in (3, 12)]
        old = results("1", head(codes={}), block(0, 10, counts={"pass": 9, "error": 1}, alarms=alarms[:1]))
        after = {"counts": {"pass": 3, "error": 1}, "alarms": alarms[1:]} if new is None else new
        text = render([old, results("2", head(started="9999"), block(10, 4, **after))])
        assert f"| **{1 if new is not None else 2}** {words} |" in text

    def test_a_seed_counts_where_every_cell_of_the_row_has_it(self) -> None:
        """A case that only the newer file has makes the row's seeds fewer, not more."""
        one = results("1", head(), block(0, 10))
        two = results("2", head(), block(8, 4), block(8, 4, "numpy", "y-float32"))
        assert sums([one, two])[self.ROW].seeds == 4

    def test_rows_are_told_apart_by_place_dtype_and_draws(self) -> None:
        """Backends, dtypes and full draws have rows of their own; what nobody provides has none."""
        blocks = [block(0, 1), block(0, 1, "rlkernels"), block(0, 1, "numpy", "x-float64")]
        run = results("1", head(), *blocks, block(0, 1, "numpy", "plain", counts={"unsupported": 1}))
        run.subjects[1] = SubjectRecord(subject="rlkernels", provides=[], versions={"rlkernels": "0"})
        full = results("2", head(full=True), block(0, 1))
        assert [(r.backend, r.dtype, r.full) for r in sums([run, full])] == [
            ("numpy", "float32", False),
            ("numpy", "float32", True),
            ("numpy", "float64", False),
            ("rlkernels", "float32", False),
        ]

    @pytest.mark.parametrize(
        ("case", "wanted"),
        [
            ("token-k3-float64", "float64"),
            ("bfloat16", "bfloat16"),
            ("plain", ""),
            ("float32s", ""),
            ("a-uint32-b", "uint32"),
        ],
    )
    def test_a_dtype_is_a_part_of_the_cases_name(self, case: str, wanted: str) -> None:
        """Whole parts between dashes."""
        assert dtype(case) == wanted


def test_a_second_run_judges_what_the_first_has_not(
    tmp_path: Path, subject: Callable[..., Subject], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seeds 0–2 stand in a file: a run up to 5 writes 3 and 4 alone, and together they are five."""
    from test_calibration import RIGHT, flaky_gate, request  # noqa: PLC0415  pytest collects what is imported above

    gate: Gate = flaky_gate(())
    right = subject(RIGHT)
    made = {gate.id: "e" * 16}
    first = tmp_path / "calibrate-1.jsonl"
    first.touch()
    asked = request(tmp_path, gate, right, 3)
    asked.header.codes.update(made)
    calibration_session.conduct(asked, first, as_json=False)
    second = tmp_path / "calibrate-2.jsonl"
    second.touch()
    wider = request(tmp_path, gate, right, 5)
    wider.header.codes.update(made)
    before = past(tmp_path, wider.header)
    assert before.lacking(map(key, wider.cells), wider.seeds) == 2
    header = wider.header.model_copy(update={"planned": 2, "beside": list(before.files)})
    assert calibration_session.conduct(replace(wider, header=header, past=before), second, as_json=False) == 0
    found = read(second)
    assert found.state == "complete"
    assert [(b.first_seed, b.seeds) for b in found.blocks] == [(3, 2)]
    assert [whole.seeds for whole in sums([read(first), found]).values()] == [5]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ["--seeds", "3", "--seeds-up-to", "9"],
            "--seeds says how many and --seeds-up-to which is the end; give one of them",
        ),
        (
            ["--seeds-up-to", "9", "--write-limits"],
            "--write-limits measures over the seeds of its own run; give --seeds, not",
        ),
        (["--seed", "9", "--seeds-up-to", "9"], "--seeds-up-to 9: must be more than --seed, which is 9"),
    ],
    ids=["both", "limits", "empty"],
)
def test_what_makes_no_sense_is_one_sentence(tmp_path: Path, options: list[str], words: str) -> None:
    """Options that contradict each other are refused before anything is judged."""
    command = [sys.executable, "-m", "gates", "calibrate", "philox", "--subject", "numpy", *options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in " ".join(done.stderr.split())
    assert list(tmp_path.iterdir()) == []


def test_without_a_cell_nothing_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no subject has the ops of the gates, no seed of any cell is lacking either, and that is no success."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gates.run.plan.plan", lambda *_, **__: [])
    done = CliRunner().invoke(cli.app, ["calibrate", "philox", "--seeds-up-to", "3"])
    assert done.exit_code == 3, done.output
    assert "nothing is left" not in done.output


def test_the_command_as_it_is_typed(tmp_path: Path) -> None:
    """Two seeds, then up to three: the second file has one seed, and a third run finds nothing left."""
    command = [sys.executable, "-m", "gates", "calibrate", "philox", "--subject", "numpy", "--jobs", "1", "--record"]
    for options, said in (
        (["--seeds", "2"], "passed, 0 failed"),
        (["--seeds-up-to", "3"], "passed, 0 failed"),
        (["--seeds-up-to", "3"], "nothing is left: calibrate-"),
    ):
        done = subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert said in done.stdout
    one, two = sorted(
        (read(f) for f in (tmp_path / "results" / "gates").iterdir()), key=lambda run: run.header.seeds or 0
    )
    assert {(b.first_seed, b.seeds) for b in one.blocks} == {(0, 2)}
    assert {(b.first_seed, b.seeds) for b in two.blocks} == {(2, 1)}
    assert two.header.beside == [one.path.name]
    assert {whole.seeds for whole in sums([one, two]).values()} == {3}
