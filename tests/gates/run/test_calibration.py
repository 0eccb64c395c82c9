"""False positives over seeds: counting, workers, interruption and resuming."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from doubles import DOUBLE, make_gate

from gates.model import Bound, Case, ConfigurationError, Evidence, Gate, Subject, Trial
from gates.report import calibration as report
from gates.report import outcome
from gates.report.calibration_progress import shown
from gates.report.markdown import render
from gates.results.calibration_records import CalibrationRecord, seeds_of
from gates.results.jsonl import Writer, read
from gates.results.records import Machine
from gates.run import calibration_summary, session
from gates.run.calibration import Request, conduct
from gates.run.calibration_summary import added
from gates.run.engines import subject_workers as bench
from gates.run.engines.pool import Pool
from gates.run.execute import run
from gates.run.judge import Judged
from gates.run.plan import Options, PlannedCase, plan

Maker = Callable[..., Subject]
RIGHT = "return {'y': 2 * x}"


def request(gate: Gate, subject: Subject, seeds: int, block: int = 10, **changes: Any) -> Request:
    options = Options(seed=0, quick=True)
    cases = plan([gate], [subject], quick=True)
    header = session.header(
        session.RunInfo("calibrate", ["calibrate"], [gate], [subject], options, len(cases) * seeds, seeds=seeds)
    )
    return replace(Request(cases, options, range(seeds), block, header), **changes)


def calibrated(asked: Request, path: Path) -> int:
    """Conduct a quiet run in a new or an existing file; return the exit code."""
    path.touch()
    summary = conduct(asked, path, partial(shown, quiet=True)).summary
    assert summary is not None
    return summary.exit_code


def lines(path: Path) -> list[CalibrationRecord]:
    return added(read(path).calibrations)


def refused(path: Path) -> list[tuple[int, str]]:
    return [(item.seed, item.cause) for line in lines(path) for item in line.false_positives]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "calibrate.jsonl"


def flaky_gate(bad: tuple[int, ...]) -> Gate:
    """Return a gate that refuses every subject at some seeds, because its limit is too narrow there."""

    def check(t: Trial) -> Iterator[Evidence]:
        got = t.got(DOUBLE, **t.inputs)["y"]
        nth = int(t.inputs["x"][0] * 1e6) % 5
        yield t.number("y", 2.0 if nth in bad else 0.25 + float(np.isnan(got).any()), "<=")

    return make_gate(check, bounds={"y": Bound("derived", "a test", 1.0)})


class TestCounts:
    """The result of a calibration."""

    def test_a_sound_gate_has_no_false_positive(self, tmp_path: Path, file: Path, subject: Maker) -> None:
        """Every seed passes: exit code 0, one line per block, and the largest share of the limit."""
        assert calibrated(request(flaky_gate(()), subject(RIGHT), 5, block=2), file) == 0
        found = read(file)
        assert found.state == "complete"
        assert found.summary is not None
        assert found.summary.counts["correct"] == 5
        assert [line.seeds for line in found.calibrations] == [{"judged": {"some": n}} for n in ("0-1", "2-3", "4")]
        assert (found.calibrations[0].backend, found.calibrations[0].blas) == ("numpy", "own")
        (line,) = added(found.calibrations)
        assert [(near.quantity, near.share, near.seed) for near in line.nearest] == [("y", 0.25, 0)]

    def test_a_flaky_gate_is_reported_with_a_reproducing_seed(
        self, tmp_path: Path, file: Path, subject: Maker, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """`gates check` at the reported seed fails again, at other seeds it passes; exit code 1."""
        gate, right = flaky_gate((0, 1, 2)), subject(RIGHT)
        file.touch()
        found = conduct(request(gate, right, 12), file, partial(shown, quiet=False))
        bad = {seed for seed, _ in refused(file)}
        assert found.summary is not None
        assert found.summary.exit_code == 1
        assert 0 < len(bad) < 12
        for seed in range(12):
            (judged,) = run(plan([gate], [right], quick=True), Options(seed=seed))
            assert (judged.verdict.status == "wrong") is (seed in bad), seed
        first = min(bad)
        assert f"FALSE POSITIVE at seed {first}: tried · double" in " ".join(capsys.readouterr().out.split())
        command = f"gates check double.matches-definition --seed {first} --subject tried --quick"
        assert command in "\n".join(report.text(found))
        text = render([read(file)])
        assert text.index("### False positives\n") < text.index("| family |")
        assert command in text

    def test_an_error_is_a_false_positive(self, tmp_path: Path, file: Path, subject: Maker) -> None:
        """A case with a failing precondition does not pass."""
        case = Case("zeros", lambda rng: {"x": np.zeros(4)}, quick=True)
        assert calibrated(request(make_gate(cases=(case,)), subject(RIGHT), 2), file) == 1
        assert [seed for seed, _ in refused(file)] == [0, 1]

    def test_an_unsupported_op_measures_nothing(self, tmp_path: Path, file: Path, subject: Maker) -> None:
        """If every case is unsupported, the exit code is 3 and the rate has no bound."""
        lacking = subject("raise NotImplementedError('no')")
        assert calibrated(request(make_gate(), lacking, 2), file) == 3
        assert [rate.bound for rate in report.rates(lines(file), report.gate).values()] == [None]
        assert "unsupported: tried: 1 cases" in render([read(file)])


class TestWorkers:
    """Workers over several seeds."""

    HEAD = "import os, pathlib\nCOUNT = [0]"

    def body(self, log: Path, then: str = "") -> str:
        return f"with open({str(log)!r}, 'a') as file:\n    file.write(f'{{os.getpid()}}\\n')\nCOUNT[0] += 1\n{then}{RIGHT}"

    @pytest.mark.parametrize(("seeds", "workers"), [(3, 1), (bench.SEEDS, 1), (bench.SEEDS + 1, 2)])
    def test_a_worker_is_replaced_after_some_seeds(
        self, tmp_path: Path, file: Path, subject: Maker, seeds: int, workers: int
    ) -> None:
        """Several seeds share the cost of a start, and leaks of a subject do not accumulate over all seeds."""
        log = tmp_path / "log"
        assert calibrated(request(flaky_gate(()), subject(self.body(log), self.HEAD), seeds, block=4), file) == 0
        assert len(set(log.read_text().split())) == workers
        assert len(log.read_text().split()) == seeds

    def test_a_crashed_worker_is_replaced(self, tmp_path: Path, file: Path, subject: Maker) -> None:
        """A crash at a worker's second call is a false positive of that seed only; the next seed gets a new worker."""
        log = tmp_path / "log"
        dies = subject(self.body(log, "if COUNT[0] == 2:\n    os._exit(9)\n"), self.HEAD)
        assert calibrated(request(flaky_gate(()), dies, 4), file) == 1
        assert refused(file) == [(1, "crashed"), (3, "crashed")]
        assert len(set(log.read_text().split())) == 2

    def test_a_worker_that_does_not_start_is_started_again_at_the_next_seed(
        self, tmp_path: Path, file: Path, subject: Maker
    ) -> None:
        """A failure to start is a false positive of one seed, not of all later ones."""
        stamp = tmp_path / "stamp"
        head = f"import pathlib\nif not pathlib.Path({str(stamp)!r}).exists():\n    pathlib.Path({str(stamp)!r}).touch()\n    raise ValueError('once')"
        assert calibrated(request(flaky_gate(()), subject(RIGHT, head), 3), file) == 1
        assert refused(file) == [(0, "start")]

    def test_engines_may_return_seeds_in_any_order(self, tmp_path: Path, file: Path, subject: Maker) -> None:
        """An engine gets all seeds of a block together; results in reverse order give the same lines as the local pool."""
        asked = request(flaky_gate((1,)), subject(RIGHT), 7, block=5)
        block_sizes: list[int] = []

        class Backwards(Pool):
            def judged(self) -> Iterator[Judged]:
                results = list(super().judged())
                block_sizes.append(len(results))
                yield from reversed(results)

        code = calibrated(replace(asked, engine=Backwards), file)
        assert calibrated(asked, tmp_path / "here.jsonl") == code
        assert block_sizes == [5, 2]
        remote, local = (
            [line.model_copy(update={"nearest": []}) for line in read(path).calibrations]
            for path in (file, tmp_path / "here.jsonl")
        )
        assert remote == local

    @pytest.mark.parametrize(("always", "code"), [(False, 0), (True, 1)], ids=["once", "always"])
    def test_a_case_that_timed_out_is_judged_a_second_time(
        self, tmp_path: Path, file: Path, subject: Maker, always: bool, code: int
    ) -> None:
        """A pause of the machine is recorded as a retry; a hang is a false positive."""
        stamp = tmp_path / "stamp"
        slow = subject(
            f"import pathlib, time\nfile = pathlib.Path({str(stamp)!r})\n"
            f"if {always} or not file.exists():\n    file.touch()\n    time.sleep(30)\n{RIGHT}"
        )
        case = replace(make_gate().cases[0], limit_s=0.4)
        assert calibrated(request(make_gate(cases=(case,)), slow, 1), file) == code
        (line,) = lines(file)
        assert (line.retried, refused(file)) == ({"some": "0"}, [(0, "timeout")] * code)


class TestResume:
    """Resuming an interrupted calibration."""

    def test_a_resumed_run_equals_an_uninterrupted_one(
        self, tmp_path: Path, file: Path, subject: Maker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Interrupted at the third of five seeds, the file has two seeds; after resuming it has each seed once."""
        asked = request(flaky_gate((1,)), subject(RIGHT), 5)
        original = Pool.submit

        def stopped(self: Pool, jobs: Sequence[PlannedCase]) -> None:
            if any(job.seed == 2 for job in jobs):
                raise KeyboardInterrupt
            original(self, jobs)

        monkeypatch.setattr(Pool, "submit", stopped)
        with pytest.raises(KeyboardInterrupt):
            calibrated(asked, file)
        assert read(file).state == "incomplete: 2 of 5"
        assert outcome.of(read(file)).words.startswith("0 of 2 seeds with a false positive; ")
        with file.open("ab") as torn:
            torn.write(b'{"record": "calibration", "gate": "dou')
        monkeypatch.setattr(Pool, "submit", original)
        code = calibrated(asked, file)
        found = read(file)
        assert found.state == "complete"
        assert [line.seeds["judged"]["some"] for line in found.calibrations] == ["0-1", "2-4"]
        assert calibrated(asked, tmp_path / "whole.jsonl") == code
        assert lines(file) == lines(tmp_path / "whole.jsonl")
        assert len(found.subjects) == 1

    def test_recorded_seeds_are_skipped(self, tmp_path: Path, file: Path, subject: Maker) -> None:
        """The summary has seeds 2 and 3, so the file gets the others."""
        asked = request(flaky_gate(()), subject(RIGHT), 7)
        calibrated(replace(asked, recorded={("double.matches-definition", "tried", "some"): {2, 3}}), file)
        assert [line.seeds["judged"]["some"] for line in read(file).calibrations] == ["0-1,4-6"]

    def test_a_seed_is_counted_completely_or_not_at_all(
        self, tmp_path: Path, file: Path, subject: Maker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """After Ctrl-C while a false positive is counted, its seed is not in the file and is judged again."""
        asked = request(flaky_gate(tuple(range(5))), subject(RIGHT), 3)
        original = calibration_summary.NearestRecord

        def stopped(**fields: Any) -> Any:
            if fields["seed"] == 1:
                raise KeyboardInterrupt
            return original(**fields)

        monkeypatch.setattr(calibration_summary, "NearestRecord", stopped)
        with pytest.raises(KeyboardInterrupt):
            calibrated(asked, file)
        assert refused(file) == [(0, "bound")]
        monkeypatch.setattr(calibration_summary, "NearestRecord", original)
        assert calibrated(asked, file) == 1
        assert refused(file) == [(seed, "bound") for seed in (0, 1, 2)]
        summary = read(file).summary
        assert summary is not None
        assert (summary.counts["correct"], summary.counts["wrong"]) == (0, 3)

    def test_a_finished_file_is_not_judged_again(
        self, tmp_path: Path, file: Path, subject: Maker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Resuming a complete file reports its content and appends nothing."""
        asked = request(flaky_gate(()), subject(RIGHT), 2)
        calibrated(asked, file)
        before = file.read_bytes()
        monkeypatch.setattr(Pool, "submit", lambda self, jobs: pytest.fail("judged again") if jobs else None)
        assert calibrated(asked, file) == 0
        assert file.read_bytes() == before

    def test_a_file_of_another_run_is_refused(self, tmp_path: Path, file: Path, subject: Maker) -> None:
        """A file with other seeds cannot be resumed; the message names the difference."""
        calibrated(request(flaky_gate(()), subject(RIGHT), 2), file)
        with pytest.raises(ConfigurationError, match="seeds was 2 and is 3"):
            calibrated(request(flaky_gate(()), subject(RIGHT), 3), file)

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"commit": "0" * 40}, "commit was .* go on with the command that began it"),
            ({"codes": {"double": "b" * 16}}, "the code of double has changed since"),
            ({"machine": Machine(system="s", cpu="another", cores=1, features=[])}, "machine was"),
        ],
        ids=["commit", "code", "processor"],
    )
    def test_other_code_is_refused_unless_the_file_is_complete(
        self, tmp_path: Path, file: Path, subject: Maker, changes: dict[str, Any], words: str
    ) -> None:
        """An incomplete file needs the same commit, code and processor; a complete one can be recorded anywhere."""
        asked = request(flaky_gate(()), subject(RIGHT), 2)
        other = replace(asked, header=asked.header.model_copy(update=changes))
        file.write_text(asked.header.model_dump_json() + "\n")
        with pytest.raises(ConfigurationError, match=words):
            calibrated(other, file)
        calibrated(asked, file)
        assert calibrated(other, file) == 0

    def test_the_summary_may_grow_between_two_sessions(self, tmp_path: Path, file: Path, subject: Maker) -> None:
        """A run that skips the summary's seeds can be resumed after another run was recorded."""
        asked = request(flaky_gate(()), subject(RIGHT), 3)
        header = asked.header.model_copy(update={"beside": ["calibration.jsonl"]})
        file.write_text(header.model_dump_json() + "\n")
        later = header.model_copy(update={"planned": 2})
        known = {("double.matches-definition", "tried", "some"): {0}}
        assert calibrated(replace(asked, header=later, recorded=known), file) == 0
        assert [seeds_of(line.seeds["judged"]["some"]) for line in lines(file)] == [{1, 2}]

    @pytest.mark.parametrize("text", ["my only notes", "two\nlines", ""], ids=["no line", "torn", "empty"])
    def test_a_file_of_another_program_is_not_changed(
        self, tmp_path: Path, file: Path, subject: Maker, text: str
    ) -> None:
        """The file is read before a torn line is cut, so a file named by mistake loses nothing."""
        file.write_text(text)
        asked = request(flaky_gate(()), subject(RIGHT), 1)
        if not text:
            assert calibrated(asked, file) == 0
            return
        with pytest.raises(ConfigurationError):
            calibrated(asked, file)
        assert file.read_text() == text

    def test_a_file_in_use_is_refused(self, tmp_path: Path, file: Path, subject: Maker) -> None:
        """The second process gets an error, and the file keeps its lines."""
        file.touch()
        first = Writer.again(file)
        with pytest.raises(ConfigurationError, match="another process is writing to it"):
            calibrated(request(flaky_gate(()), subject(RIGHT), 2), file)
        first.close()
