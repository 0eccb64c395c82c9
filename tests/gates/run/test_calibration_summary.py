"""Calibrations that add up: lines, rates, what the one recorded file keeps and drops, and the command."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from runs_on_file import header
from typer.testing import CliRunner

from gates.cli.verbs import app
from gates.registry import load
from gates.report.calibration import family, gate, nearest, place, rates, upper_bound
from gates.report.markdown import render
from gates.results.jsonl import Results, as_line, read
from gates.results.records import CalibrationRecord, FalsePositiveRecord, NearestRecord, seeds_of, seeds_text
from gates.run import calibration_summary, code_digest
from gates.run.calibration_summary import Place, added, counts, done, record
from gates.run.code_digest import codes
from gates.run.judge import judge

GATE = load().gates["philox.known-answers"]
CODES = {GATE.id: "a" * 16}


def line(judged: str = "", case: str = "x-float32", **changes: Any) -> CalibrationRecord:
    values: dict[str, Any] = {
        "gate": GATE.id,
        "subject": "numpy",
        "backend": "numpy",
        "blas": "own",
        "cpu": "a processor",
        "full": False,
        "commits": ["cccccccc"],
        "seeds": {"judged": {case: judged}} if judged else {},
        "retried": {},
        "false_positives": [],
        "nearest": [],
    }
    return CalibrationRecord(**(values | changes))


def refused(seed: int, case: str = "x-float32") -> FalsePositiveRecord:
    return FalsePositiveRecord(case=case, seed=seed, status="wrong", cause="bound", reason="r")


def near(share: float, seed: int, quantity: str = "q") -> NearestRecord:
    return NearestRecord(quantity=quantity, case="x-float32", seed=seed, share=share, observed=0.5, limit=1.0)


def results(path: Path, *lines: CalibrationRecord, **changes: Any) -> Results:
    """A calibration on file."""
    asked = {"verb": "calibrate", "gates": [GATE.id], "subjects": ["numpy"], "codes": CODES, "seeds": 10, "quick": True}
    path.write_text("".join(map(as_line, (header(**(asked | changes)), *lines))))
    return read(path)


class TestLines:
    """How lines add up."""

    @pytest.mark.parametrize(
        ("seeds", "text"), [({3}, "3"), ({0, 1, 2}, "0-2"), ({0, 1, 5, 7, 8}, "0-1,5,7-8"), ({0, 2}, "0,2")]
    )
    def test_seeds_are_ranges(self, seeds: set[int], text: str) -> None:
        assert seeds_text(seeds) == text
        assert seeds_of(text) == seeds

    @pytest.mark.parametrize("text", ["", "1-", "-1", "1..3", "3-1", "0-999999999", "0-9,", " 1"])
    def test_what_is_no_range_is_refused(self, text: str) -> None:
        """Nor one that would fill the memory."""
        with pytest.raises(ValueError, match="judged"):
            line(seeds={"judged": {"x": text}})

    def test_a_seed_that_two_lines_have_counts_once(self) -> None:
        """0–9 and 5–14 are 15 seeds, a false positive of both is one, and both commits are named."""
        one = line("0-9", false_positives=[refused(7)])
        two = line("5-14", false_positives=[refused(7)], commits=["dddddddd"], retried={"x-float32": "6"})
        (found,) = added([one, two])
        assert found.seeds == {"judged": {"x-float32": "0-14"}}
        assert (found.commits, found.retried) == (["cccccccc", "dddddddd"], {"x-float32": "6"})
        assert counts(found) == {"correct": 14, "wrong": 1}
        assert added([found, one]) == [found]

    def test_what_was_judged_in_the_end_is_no_longer_skipped(self) -> None:
        """A library that was not installed then; a limit that was not recorded, in an old file."""
        absent = line(seeds={"skipped": {"x-float32": "0-4"}, "uncalibrated": {"y": "0"}})
        (found,) = added([absent, line("2-9")])
        assert found.seeds == {
            "judged": {"x-float32": "2-9"},
            "skipped": {"x-float32": "0-1"},
            "uncalibrated": {"y": "0"},
        }

    @pytest.mark.parametrize(
        "changes", [{"blas": "openblas"}, {"cpu": "another"}, {"full": True}, {"subject": "other"}]
    )
    def test_other_machines_draws_and_subjects_have_lines_of_their_own(self, changes: dict[str, Any]) -> None:
        assert len(added([line("0-4"), line("0-4", **changes)])) == 2

    @pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)], ids=str)
    def test_what_is_no_number_is_the_largest_share(self, order: tuple[int, ...]) -> None:
        """Whatever comes after it."""
        shares = (0.5, math.nan, 0.7)
        (found,) = added(line(str(seed), nearest=[near(shares[seed], seed)]) for seed in order)
        assert nearest([found]) == {GATE.id: (math.inf, "q: numpy, x-float32, seed 1")}
        assert [item.seed for item in found.nearest] == [1]


@pytest.mark.parametrize(
    ("versions", "found"),
    [
        ({"numpy": "2"}, Place("numpy", "own")),
        ({"rlkernels": "0.1", "numpy": "2"}, Place("rlkernels", "own")),
        ({"mlx": "0.32", "device": "Device(cpu, 0)"}, Place("mlx-cpu", "own")),
        ({"mlx": "0.32", "device": "Device(gpu, 0)"}, Place("mlx-gpu", "own")),
        (
            {"mlx": "0.32", "device": "Device(cpu, 0)", "preloaded": "libopenblas.so.0 (OpenBLAS 0.3)"},
            Place("mlx-cpu", "openblas"),
        ),
    ],
)
def test_a_place_is_what_the_worker_says(versions: dict[str, str], found: Place) -> None:
    """Backend and BLAS come from the handshake."""
    assert Place.of(versions) == found


class TestRates:
    """How often a gate refused a correct subject."""

    def test_a_seed_counts_where_every_case_was_judged_at_it(self) -> None:
        """Cases that were judged at other seeds: a rate is over the seeds that they share."""
        apart = [line("0-9"), line("10-19", "y-float32")]
        (rate,) = rates(apart, gate).values()
        assert (rate.seeds, rate.verdicts, rate.bound) == (0, 20, None)
        assert rate.words == "no seed was judged in every case"
        (rate,) = rates([*apart, line("5-14", "y-float32")], gate).values()
        assert (rate.seeds, rate.bound) == (5, pytest.approx(1 - 0.05 ** (1 / 5)))

    def test_a_seed_is_refused_once(self) -> None:
        """In two cases and two subjects, it is one seed: the published limit of 1 in 10."""
        one = line("0-9", false_positives=[refused(3)])
        two = line("0-9", "y-float32", false_positives=[refused(3, "y-float32")], subject="other")
        (rate,) = rates([one, two], family).values()
        assert (rate.seeds, rate.refused, rate.verdicts) == (10, {3}, 20)
        assert rate.bound == pytest.approx(0.394163, rel=1e-5)

    def test_rows_are_told_apart_by_backend_blas_dtype_and_draws(self, tmp_path: Path) -> None:
        """What nobody provides has no row, and the page names the commits."""
        lines = [
            line("0-4"),
            line("0-4", backend="mlx-cpu", blas="openblas", subject="other"),
            line("0-4", "x-float64"),
            line("0-4", "x-bfloat16-y"),
            line("0-4", "float32s", full=True),
            line(seeds={"unsupported": {"plain": "0"}}, backend="rlkernels"),
        ]
        assert [name[1:] for name, rate in rates(lines, place).items() if rate.judged] == [
            ("mlx-cpu", "openblas", "float32", ""),
            ("numpy", "own", "", "(all draws)"),
            ("numpy", "own", "bfloat16", ""),
            ("numpy", "own", "float32", ""),
            ("numpy", "own", "float64", ""),
        ]
        text = render([results(tmp_path / "r.jsonl", *lines, beside=["calibration.jsonl"])])
        assert f"| `{GATE.id}` | mlx-cpu | openblas | float32 | 5 | 5 | 0 | 0.45 | cccccccc |" in text
        assert f"| `{GATE.id}` (all draws) | numpy | own | – | 5 |" in text
        assert "| rlkernels |" not in text
        assert "Seeds that `calibration.jsonl` had when the run began were not judged again." in text

    @pytest.mark.parametrize("seeds", [1, 7, 100, 1000])
    def test_the_bound_solves_its_own_definition(self, seeds: int) -> None:
        """At the bound, so few false positives have a chance of 5%, summed here by exact binomials."""
        for refused in {0, seeds // 3, seeds - 1}:
            rate = upper_bound(refused, seeds)
            chance = sum(math.comb(seeds, k) * rate**k * (1 - rate) ** (seeds - k) for k in range(refused + 1))
            assert chance == pytest.approx(0.05, rel=1e-6)
            assert rate >= refused / seeds

    @pytest.mark.parametrize(("refused", "seeds"), [(0, 0), (-1, 5), (6, 5)])
    def test_a_bound_of_nonsense_is_refused(self, refused: int, seeds: int) -> None:
        """No seeds, or more false positives than seeds."""
        with pytest.raises(ValueError, match="there must be seeds"):
            upper_bound(refused, seeds)


class TestSummary:
    """The one recorded file."""

    def test_runs_add_up_in_it(self, tmp_path: Path) -> None:
        """Two runs are the union of their seeds, complete, with the nearest claim of each quantity alone."""
        path = tmp_path / "gates" / "calibration.jsonl"
        shares = [near(0.5, 1), near(0.2, 2, "other"), near(0.9, 3).model_copy(update={"case": "y"})]
        one = results(tmp_path / "1", line("0-9", nearest=shares[:2]))
        two = results(tmp_path / "2", line("10-19", nearest=shares[2:], false_positives=[refused(12)]))
        assert record(one, path, CODES) == [f"recorded in {path}: 10 verdicts of 1 gates"]
        assert read(path).summary.exit_code == 0  # type: ignore[union-attr]  `record` has written it
        assert record(two, path, CODES) == [f"recorded in {path}: 20 verdicts of 1 gates"]
        found = read(path)
        (merged,) = found.calibrations
        assert merged.seeds == {"judged": {"x-float32": "0-19"}}
        assert [(item.quantity, item.share) for item in merged.nearest] == [("other", 0.2), ("q", 0.9)]
        assert (found.state, found.header.codes, found.header.dirty) == ("complete", CODES, False)
        assert found.summary is not None
        assert (found.summary.counts["correct"], found.summary.exit_code) == (19, 1)
        again = path.read_bytes()
        record(two, path, CODES)
        assert path.read_bytes() == again

    def test_seeds_of_other_code_are_dropped_with_a_note(self, tmp_path: Path) -> None:
        """The gate was mended, or is gone: what was recorded of it says nothing of the one that is here."""
        path = tmp_path / "calibration.jsonl"
        record(results(tmp_path / "1", line("0-9")), path, CODES)
        other = results(tmp_path / "2", line("0-1"), codes={GATE.id: "b" * 16})
        notes = record(other, path, {GATE.id: "b" * 16})
        note = f"not in {path}, because the code changed since they were judged: {GATE.id}"
        assert notes[1] == note
        assert [found.seeds for found in read(path).calibrations] == [{"judged": {"x-float32": "0-1"}}]
        assert record(other, path, {})[1:] == [note]
        assert (read(path).calibrations, read(path).state) == ([], "complete")
        assert "Nothing was measured" in render([read(path)])

    @pytest.mark.parametrize(
        ("changes", "head"),
        [({}, {"codes": {GATE.id: "b" * 16}}), ({}, {"codes": {}}), ({"full": True}, {}), ({"cpu": "another"}, {})],
        ids=["other code", "no code", "other draws", "other processor"],
    )
    def test_what_another_judge_said_is_judged_again(
        self, tmp_path: Path, changes: dict[str, Any], head: dict[str, Any]
    ) -> None:
        """Other code, draws or machine are no substitute."""
        asked = header(codes=CODES)
        assert done(results(tmp_path / "1", line("0-3")), asked, ["judged"]) == {
            (GATE.id, "numpy", "x-float32"): {0, 1, 2, 3}
        }
        assert not done(results(tmp_path / "1", line("0-3", **changes), **head), asked, ["judged"])

    def test_a_subject_that_was_absent_is_there_now(self, tmp_path: Path) -> None:
        """It said nothing of its place then, so its line is another one; it is gone when a run has judged the subject."""
        path = tmp_path / "calibration.jsonl"
        absent = line(seeds={"skipped": {"x-float32": "0-4"}}, backend="unknown", blas="unknown")
        record(results(tmp_path / "1", absent), path, CODES)
        assert [found.backend for found in read(path).calibrations] == ["unknown"]
        record(results(tmp_path / "2", line("0-4")), path, CODES)
        assert [found.backend for found in read(path).calibrations] == ["numpy"]

    def test_a_dirty_commit_makes_it_dirty(self, tmp_path: Path) -> None:
        path = tmp_path / "calibration.jsonl"
        record(results(tmp_path / "1", line("0", commits=[f"cccccccc{calibration_summary.DIRTY}"])), path, CODES)
        record(results(tmp_path / "2", line("1")), path, CODES)
        assert read(path).header.dirty is True


class TestCode:
    """What decides a gate's verdicts."""

    def test_it_is_the_checks_own_and_what_it_imports(self) -> None:
        """The definition, the judge and the comparison are in it; other families, subjects, reports and mutants are not."""
        found = code_digest.closure(("gates.families.kl.gates", judge.__module__))
        needed = {
            "gates.families.kl.gates",
            "reference.oracle.kl",
            "gates.run.trial",
            "gates.run.compare",
            "gates.model",
        }
        assert needed | {judge.__module__} <= found
        assert not {"gates.families.packing.gates", "gates.families.rollout.gates.rows"} & found
        assert not any(name.startswith(("gates.subjects", "gates.report", "gates.cli")) for name in found)

    def test_gates_of_other_checks_have_other_codes(self) -> None:
        """Every shipped gate has one; two families differ."""
        gates = [load().gates["kl.k3.matches-definition"], GATE]
        assert len(set(codes(gates).values())) == 2
        assert codes(gates) == codes(gates)

    def test_a_changed_line_is_other_code(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The text of a module that the check imports changes it."""
        before, source = codes([GATE]), code_digest.source
        edited = {"reference.oracle.philox": b"\n# edited"}
        monkeypatch.setattr(code_digest, "source", lambda module: source(module) + edited.get(module, b""))
        assert codes([GATE]) != before


class TestCommand:
    """`gates calibrate` as it is typed."""

    @staticmethod
    def gates(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "gates", "calibrate", "philox", "--jobs", "1", *options]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)

    def test_seeds_add_up_over_sessions(self, tmp_path: Path) -> None:
        """Two seeds, then up to three: the second run judges one; a third one finds nothing left."""
        for options, said in (
            (["--seeds", "2"], "correct, 0 wrong"),
            (["--seeds-up-to", "3"], "correct, 0 wrong"),
            (["--seeds-up-to", "3"], "nothing is left: results/gates/calibration.jsonl has seeds 0 to 2 of all cases"),
        ):
            ended = self.gates(tmp_path, "--subject", "numpy", "--record", *options)
            assert ended.returncode == 0, ended.stderr
            assert said in " ".join(ended.stdout.split())
        runs = [read(path) for path in sorted((tmp_path / "results" / "runs").iterdir())]
        judged = [{text for found in run.calibrations for text in found.seeds["judged"].values()} for run in runs]
        assert sorted(judged, key=str) == [{"0-1"}, {"2"}]
        summary = read(tmp_path / "results" / "gates" / "calibration.jsonl")
        assert {text for found in summary.calibrations for text in found.seeds["judged"].values()} == {"0-2"}
        assert summary.header.planned == sum(run.header.planned for run in runs)

    def test_a_run_that_is_resumed_may_be_recorded(self, tmp_path: Path) -> None:
        """Its seeds get into the summary whenever it came to its end."""
        options = ("--subject", "numpy", "--seeds", "1")
        assert self.gates(tmp_path, *options).returncode == 0
        (path,) = (tmp_path / "results" / "runs").iterdir()
        ended = self.gates(tmp_path, *options, "--resume", str(path), "--record")
        assert ended.returncode == 0, ended.stderr
        assert "recorded in results/gates/calibration.jsonl" in ended.stderr

    def test_json_lines_are_those_of_the_file(self, tmp_path: Path) -> None:
        """Words that hold what some take for the end of a line do not part one."""
        names = "numpy.OPS"
        text = f"from gates.subjects.numpy_baseline import subject as numpy\ndef no(**_):\n    raise ValueError('one\\u2028two')\nOPS = dict.fromkeys({names}, no)\n"
        (tmp_path / "mine.py").write_text(text)
        ended = self.gates(tmp_path, "--subject", "mine.py", "--seeds", "1", "--json")
        assert ended.returncode == 1, ended.stderr
        found = [json.loads(part) for part in ended.stdout.split("\n") if part]
        assert {part["record"] for part in found} == {"header", "subject", "calibration", "summary"}
        (path,) = (tmp_path / "results" / "runs").iterdir()
        assert len(found) == len(path.read_text().rstrip("\n").split("\n"))

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (
                ["--seeds", "3", "--seeds-up-to", "9"],
                "--seeds says how many and --seeds-up-to which is the end; give one",
            ),
            (["--seed", "9", "--seeds-up-to", "9"], "--seeds-up-to 9: must be more than --seed, which is 9"),
        ],
        ids=["both", "empty"],
    )
    def test_what_makes_no_sense_is_one_sentence(self, tmp_path: Path, options: list[str], words: str) -> None:
        """Options that contradict each other are refused before anything is judged."""
        ended = self.gates(tmp_path, "--subject", "numpy", *options)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert words in " ".join(ended.stderr.split())
        assert list(tmp_path.iterdir()) == []

    def test_without_a_case_nothing_was_measured(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where no subject has the ops of the gates, no seed of any case is lacking either, and that is no success."""
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("gates.run.plan.plan", lambda *_, **__: [])
        ended = CliRunner().invoke(app, ["calibrate", "philox", "--seeds-up-to", "3"])
        assert ended.exit_code == 3, ended.output
        assert "nothing is left" not in ended.output
