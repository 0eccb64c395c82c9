"""Sums of calibrations: lines, rates, the recorded summary, code digests, and the command."""

import json
import math
import subprocess
from pathlib import Path
from typing import Any

import pytest
from command_line import here
from runs_on_file import header
from typer.testing import CliRunner

from gates.cli.verbs import app
from gates.registry import load
from gates.report.calibration import family, gate, nearest, platform, rates, upper_bound
from gates.report.markdown import render
from gates.results.calibration_records import (
    CalibrationRecord,
    FalsePositiveRecord,
    NearestRecord,
    seeds_of,
    seeds_text,
)
from gates.results.jsonl import Results, as_line, read
from gates.run import calibration_summary, code_digest
from gates.run.calibration_summary import Platform, added, counts, done, record
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
    """Merging lines."""

    @pytest.mark.parametrize(
        ("seeds", "text"), [({3}, "3"), ({0, 1, 2}, "0-2"), ({0, 1, 5, 7, 8}, "0-1,5,7-8"), ({0, 2}, "0,2")]
    )
    def test_seeds_are_ranges(self, seeds: set[int], text: str) -> None:
        assert seeds_text(seeds) == text
        assert seeds_of(text) == seeds

    @pytest.mark.parametrize("text", ["", "1-", "-1", "1..3", "3-1", "0-999999999", "0-9,", " 1"])
    def test_invalid_ranges_are_refused(self, text: str) -> None:
        """This includes ranges that are too large for memory."""
        with pytest.raises(ValueError, match="judged"):
            line(seeds={"judged": {"x": text}})

    def test_a_seed_in_two_lines_counts_once(self) -> None:
        """0–9 and 5–14 are 15 seeds, a false positive in both counts once, and the line names both commits."""
        first = line("0-9", false_positives=[refused(7)])
        second = line("5-14", false_positives=[refused(7)], commits=["dddddddd"], retried={"x-float32": "6"})
        (merged,) = added([first, second])
        assert merged.seeds == {"judged": {"x-float32": "0-14"}}
        assert (merged.commits, merged.retried) == (["cccccccc", "dddddddd"], {"x-float32": "6"})
        assert counts(merged) == {"correct": 14, "wrong": 1}
        assert added([merged, first]) == [merged]

    def test_a_judged_seed_is_no_longer_skipped(self) -> None:
        """Its library was not installed in an earlier run, or an old file had no limit for it."""
        absent = line(seeds={"skipped": {"x-float32": "0-4"}, "uncalibrated": {"y": "0"}})
        (merged,) = added([absent, line("2-9")])
        assert merged.seeds == {
            "judged": {"x-float32": "2-9"},
            "skipped": {"x-float32": "0-1"},
            "uncalibrated": {"y": "0"},
        }

    @pytest.mark.parametrize(
        "changes", [{"blas": "openblas"}, {"cpu": "another"}, {"full": True}, {"subject": "other"}]
    )
    def test_machines_draws_and_subjects_have_separate_lines(self, changes: dict[str, Any]) -> None:
        assert len(added([line("0-4"), line("0-4", **changes)])) == 2

    @pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)], ids=str)
    def test_nan_is_the_largest_share(self, order: tuple[int, ...]) -> None:
        """The order of the lines is irrelevant."""
        shares = (0.5, math.nan, 0.7)
        (merged,) = added(line(str(seed), nearest=[near(shares[seed], seed)]) for seed in order)
        assert nearest([merged]) == {GATE.id: (math.inf, "q: numpy, x-float32, seed 1")}
        assert [item.seed for item in merged.nearest] == [1]


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ({"numpy": "2"}, Platform("numpy", "own")),
        ({"rlkernels": "0.1", "numpy": "2"}, Platform("rlkernels", "own")),
        ({"mlx": "0.32", "device": "Device(cpu, 0)"}, Platform("mlx-cpu", "own")),
        ({"mlx": "0.32", "device": "Device(gpu, 0)"}, Platform("mlx-gpu", "own")),
        (
            {"mlx": "0.32", "device": "Device(cpu, 0)", "preloaded": "libopenblas.so.0 (OpenBLAS 0.3)"},
            Platform("mlx-cpu", "openblas"),
        ),
    ],
)
def test_the_platform_comes_from_the_handshake(versions: dict[str, str], expected: Platform) -> None:
    """The handshake has the backend and the BLAS."""
    assert Platform.of(versions) == expected


class TestRates:
    """The rate at which a gate refuses a correct subject."""

    def test_a_seed_counts_if_every_case_was_judged_at_it(self) -> None:
        """A rate covers the seeds that all cases share."""
        apart = [line("0-9"), line("10-19", "y-float32")]
        (rate,) = rates(apart, gate).values()
        assert (rate.seeds, rate.verdicts, rate.bound) == (0, 20, None)
        assert rate.label == "no seed was judged in every case"
        (rate,) = rates([*apart, line("5-14", "y-float32")], gate).values()
        assert (rate.seeds, rate.bound) == (5, pytest.approx(1 - 0.05 ** (1 / 5)))

    def test_a_refused_seed_counts_once(self) -> None:
        """Two cases and two subjects refused at the same seed give 1 of 10, with its published bound."""
        first = line("0-9", false_positives=[refused(3)])
        second = line("0-9", "y-float32", false_positives=[refused(3, "y-float32")], subject="other")
        (rate,) = rates([first, second], family).values()
        assert (rate.seeds, rate.refused, rate.verdicts) == (10, {3}, 20)
        assert rate.bound == pytest.approx(0.394163, rel=1e-5)

    def test_backend_blas_dtype_and_draws_have_separate_rows(self, tmp_path: Path) -> None:
        """Unsupported cases have no row, and the page names the commits."""
        lines = [
            line("0-4"),
            line("0-4", backend="mlx-cpu", blas="openblas", subject="other"),
            line("0-4", "x-float64"),
            line("0-4", "x-bfloat16-y"),
            line("0-4", "float32s", full=True),
            line(seeds={"unsupported": {"plain": "0"}}, backend="rlkernels"),
        ]
        assert [name[1:] for name, rate in rates(lines, platform).items() if rate.judged] == [
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
        assert "The run skipped the seeds that `calibration.jsonl` had at its start." in text

    @pytest.mark.parametrize("seeds", [1, 7, 100, 1000])
    def test_the_bound_satisfies_its_definition(self, seeds: int) -> None:
        """At the bound, at most as many false positives have probability 5%, by a sum of exact binomials."""
        for refused in {0, seeds // 3, seeds - 1}:
            rate = upper_bound(refused, seeds)
            chance = sum(math.comb(seeds, k) * rate**k * (1 - rate) ** (seeds - k) for k in range(refused + 1))
            assert chance == pytest.approx(0.05, rel=1e-6)
            assert rate >= refused / seeds

    @pytest.mark.parametrize(("refused", "seeds"), [(0, 0), (-1, 5), (6, 5)])
    def test_a_bound_needs_valid_counts(self, refused: int, seeds: int) -> None:
        """No seeds, or more false positives than seeds."""
        with pytest.raises(ValueError, match="expected at least one seed"):
            upper_bound(refused, seeds)


class TestSummary:
    """The recorded summary."""

    def test_runs_add_up(self, tmp_path: Path) -> None:
        """The summary of two runs has the union of their seeds and the nearest claim of each quantity."""
        path = tmp_path / "gates" / "calibration.jsonl"
        shares = [near(0.5, 1), near(0.2, 2, "other"), near(0.9, 3).model_copy(update={"case": "y"})]
        first = results(tmp_path / "1", line("0-9", nearest=shares[:2]))
        second = results(tmp_path / "2", line("10-19", nearest=shares[2:], false_positives=[refused(12)]))
        assert record(first, path, CODES) == [f"recorded in {path}: 10 verdicts of 1 gates"]
        assert read(path).summary.exit_code == 0  # type: ignore[union-attr]  `record` has written it
        assert record(second, path, CODES) == [f"recorded in {path}: 20 verdicts of 1 gates"]
        summary = read(path)
        (merged,) = summary.calibrations
        assert merged.seeds == {"judged": {"x-float32": "0-19"}}
        assert [(item.quantity, item.share) for item in merged.nearest] == [("other", 0.2), ("q", 0.9)]
        assert (summary.state, summary.header.codes, summary.header.dirty) == ("complete", CODES, False)
        assert summary.summary is not None
        assert (summary.summary.counts["correct"], summary.summary.exit_code) == (19, 1)
        before = path.read_bytes()
        record(second, path, CODES)
        assert path.read_bytes() == before

    def test_seeds_of_other_code_are_dropped_with_a_note(self, tmp_path: Path) -> None:
        """After a gate changed or was removed, its recorded seeds are not evidence for the current gate."""
        path = tmp_path / "calibration.jsonl"
        record(results(tmp_path / "1", line("0-9")), path, CODES)
        other = results(tmp_path / "2", line("0-1"), codes={GATE.id: "b" * 16})
        notes = record(other, path, {GATE.id: "b" * 16})
        note = f"dropped from {path}, because their code has changed since: {GATE.id}"
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
    def test_seeds_judged_under_other_conditions_are_judged_again(
        self, tmp_path: Path, changes: dict[str, Any], head: dict[str, Any]
    ) -> None:
        """Seeds count only for the same code, draws and machine."""
        asked = header(codes=CODES)
        assert done(results(tmp_path / "1", line("0-3")), asked, ["judged"]) == {
            (GATE.id, "numpy", "x-float32"): {0, 1, 2, 3}
        }
        assert not done(results(tmp_path / "1", line("0-3", **changes), **head), asked, ["judged"])

    def test_skipped_lines_of_a_subject_are_replaced_once_it_is_judged(self, tmp_path: Path) -> None:
        """The line of an absent subject has an unknown platform; it disappears once a run has judged the subject."""
        path = tmp_path / "calibration.jsonl"
        absent = line(seeds={"skipped": {"x-float32": "0-4"}}, backend="unknown", blas="unknown")
        record(results(tmp_path / "1", absent), path, CODES)
        assert [found.backend for found in read(path).calibrations] == ["unknown"]
        record(results(tmp_path / "2", line("0-4")), path, CODES)
        assert [found.backend for found in read(path).calibrations] == ["numpy"]

    def test_a_dirty_commit_makes_the_summary_dirty(self, tmp_path: Path) -> None:
        path = tmp_path / "calibration.jsonl"
        record(results(tmp_path / "1", line("0", commits=[f"cccccccc{calibration_summary.DIRTY}"])), path, CODES)
        record(results(tmp_path / "2", line("1")), path, CODES)
        assert read(path).header.dirty is True


class TestCode:
    """The digest of the code that decides a gate's verdicts."""

    def test_the_digest_covers_the_check_and_its_imports(self) -> None:
        """It includes the definition, the judge and the comparison, but no other families, subjects or reports."""
        modules = code_digest.closure(("gates.families.kl.gates", judge.__module__))
        needed = {
            "gates.families.kl.gates",
            "gates_reference.oracle.kl",
            "gates.run.trial",
            "gates.run.compare",
            "gates.model",
        }
        assert needed | {judge.__module__} <= modules
        assert not {"gates.families.packing.gates", "gates.families.rollout.gates.rows"} & modules
        assert not any(name.startswith(("gates.subjects", "gates.report", "gates.cli")) for name in modules)

    def test_gates_with_different_checks_have_different_digests(self) -> None:
        """Two families differ, and repeated digests are equal."""
        gates = [load().gates["kl.k3.matches-definition"], GATE]
        assert len(set(codes(gates).values())) == 2
        assert codes(gates) == codes(gates)

    def test_an_edit_changes_the_digest(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The edited module is one that the check imports."""
        before, source = codes([GATE]), code_digest.source
        edited = {"gates_reference.oracle.philox": b"\n# edited"}
        monkeypatch.setattr(code_digest, "source", lambda module: source(module) + edited.get(module, b""))
        assert codes([GATE]) != before


class TestCommand:
    """`gates calibrate` on the command line."""

    @staticmethod
    def gates(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
        return here("calibrate", "philox", "--jobs", "1", *options, cwd=folder)

    def test_seeds_add_up_over_sessions(self, tmp_path: Path) -> None:
        """Two seeds, then up to three: the second run judges one seed, the third none."""
        for options, message in (
            (["--seeds", "2"], "correct, 0 wrong"),
            (["--seeds-up-to", "3"], "correct, 0 wrong"),
            (["--seeds-up-to", "3"], "nothing to do: results/gates/calibration.jsonl has seeds 0 to 2 of all cases"),
        ):
            ended = self.gates(tmp_path, "--subject", "numpy", "--record", *options)
            assert ended.returncode == 0, ended.stderr
            assert message in " ".join(ended.stdout.split())
        runs = [read(path) for path in sorted((tmp_path / "results" / "runs").iterdir())]
        judged = [{text for found in run.calibrations for text in found.seeds["judged"].values()} for run in runs]
        assert sorted(judged, key=str) == [{"0-1"}, {"2"}]
        summary = read(tmp_path / "results" / "gates" / "calibration.jsonl")
        assert {text for found in summary.calibrations for text in found.seeds["judged"].values()} == {"0-2"}
        assert summary.header.planned == sum(run.header.planned for run in runs)

    def test_a_resumed_run_can_be_recorded(self, tmp_path: Path) -> None:
        """Its seeds are added to the summary after the run has finished."""
        options = ("--subject", "numpy", "--seeds", "1")
        assert self.gates(tmp_path, *options).returncode == 0
        (path,) = (tmp_path / "results" / "runs").iterdir()
        ended = self.gates(tmp_path, *options, "--resume", str(path), "--record")
        assert ended.returncode == 0, ended.stderr
        assert "recorded in results/gates/calibration.jsonl" in ended.stderr

    def test_json_output_has_the_lines_of_the_file(self, tmp_path: Path) -> None:
        """A Unicode line separator in a message does not split a line."""
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
        ("options", "message"),
        [
            (
                ["--seeds", "3", "--seeds-up-to", "9"],
                "--seeds is a number of seeds and --seeds-up-to is their end; give one",
            ),
            (["--seed", "9", "--seeds-up-to", "9"], "--seeds-up-to 9: must be more than --seed, which is 9"),
        ],
        ids=["both", "empty"],
    )
    def test_contradictory_options_are_refused(self, tmp_path: Path, options: list[str], message: str) -> None:
        """The command fails with one sentence before anything is judged."""
        ended = self.gates(tmp_path, "--subject", "numpy", *options)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert message in " ".join(ended.stderr.split())
        assert list(tmp_path.iterdir()) == []

    def test_a_plan_without_cases_measures_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """If no subject has the gates' ops, no seed is missing, but the exit code is 3."""
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("gates.run.plan.plan", lambda *_, **__: [])
        ended = CliRunner().invoke(app, ["calibrate", "philox", "--seeds-up-to", "3"])
        assert ended.exit_code == 3, ended.output
        assert "nothing to do" not in ended.output
