"""False positives over seeds: what is counted, what a stopped run keeps, and what a resumed one judges."""

import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from doubles import DOUBLE, make_gate

from gates.model import Bound, Case, ConfigurationError, Evidence, Gate, Subject, Trial
from gates.report import calibration as report
from gates.report import outcome
from gates.report.calibration_progress import Progress
from gates.report.markdown import render
from gates.results.jsonl import Writer, read
from gates.results.records import CalibrationRecord, Machine, seeds_of
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


def request(tmp_path: Path, gate: Gate, subject: Subject, seeds: int, block: int = 10, **changes: Any) -> Request:
    options = Options(seed=0, quick=True)
    cases = plan([gate], [subject], quick=True)
    header = session.header(
        session.RunInfo("calibrate", ["calibrate"], [gate], [subject], options, len(cases) * seeds, seeds=seeds)
    )
    return replace(Request([gate], cases, options, range(seeds), block, header, tmp_path), **changes)


def calibrated(asked: Request, path: Path) -> int:
    """Conduct a run without a word, in a new file or one that is there; return the exit code."""
    path.touch()
    return conduct(asked, path, Progress(quiet=True)).code


def lines(path: Path) -> list[CalibrationRecord]:
    return added(read(path).calibrations)


def refused(path: Path) -> list[tuple[int, str]]:
    return [(found.seed, found.cause) for line in lines(path) for found in line.false_positives]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "calibrate.jsonl"


def flaky_gate(bad: tuple[int, ...]) -> Gate:
    """A gate whose limit is too narrow at some of the seeds that its case is made of, whatever the subject does."""

    def check(t: Trial) -> Iterator[Evidence]:
        got = t.got(DOUBLE, **t.inputs)["y"]
        nth = int(t.inputs["x"][0] * 1e6) % 5
        yield t.number("y", 2.0 if nth in bad else 0.25 + float(np.isnan(got).any()), "<=")

    return make_gate(check, bounds={"y": Bound("derived", "a test", 1.0)})


class TestCounts:
    """What a calibration says of its gates."""

    def test_a_sound_gate_has_no_false_positive(self, tmp_path: Path, file: Path, subject: Maker) -> None:
        """Every seed passes: exit code 0, one line for each block, and the largest share of the limit."""
        assert calibrated(request(tmp_path, flaky_gate(()), subject(RIGHT), 5, block=2), file) == 0
        found = read(file)
        assert found.state == "complete"
        assert found.summary is not None
        assert found.summary.counts["correct"] == 5
        assert [line.seeds for line in found.calibrations] == [{"judged": {"some": n}} for n in ("0-1", "2-3", "4")]
        assert (found.calibrations[0].backend, found.calibrations[0].blas) == ("numpy", "own")
        (line,) = added(found.calibrations)
        assert [(near.quantity, near.share, near.seed) for near in line.nearest] == [("y", 0.25, 0)]

    def test_a_flaky_gate_is_named_with_the_seed_that_shows_it_again(
        self, tmp_path: Path, file: Path, subject: Maker, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The seed of a false positive fails again by itself, another one passes; exit code 1."""
        gate, right = flaky_gate((0, 1, 2)), subject(RIGHT)
        file.touch()
        ended = conduct(request(tmp_path, gate, right, 12), file, Progress(quiet=False))
        bad = {seed for seed, _ in refused(file)}
        assert ended.code == 1
        assert 0 < len(bad) < 12
        for seed in range(12):
            (judged,) = run(plan([gate], [right], quick=True), Options(seed=seed))
            assert (judged.verdict.status == "wrong") is (seed in bad), seed
        first = min(bad)
        assert f"FALSE POSITIVE at seed {first}: tried · double" in " ".join(capsys.readouterr().out.split())
        again = f"gates check double.matches-definition --seed {first} --subject tried --quick"
        assert again in "\n".join(report.text(ended.results, []))
        text = render([read(file)])
        assert text.index("### False positives\n") < text.index("| family |")
        assert again in text

    def test_an_error_is_a_false_positive_too(self, tmp_path: Path, file: Path, subject: Maker) -> None:
        """A case whose precondition fails at a seed is no pass."""
        case = Case("zeros", lambda rng: {"x": np.zeros(4)}, quick=True)
        assert calibrated(request(tmp_path, make_gate(cases=(case,)), subject(RIGHT), 2), file) == 1
        assert [seed for seed, _ in refused(file)] == [0, 1]

    def test_what_nobody_provides_measures_nothing(self, tmp_path: Path, file: Path, subject: Maker) -> None:
        """Unsupported everywhere is exit code 3, and a rate without a bound."""
        lacking = subject("raise NotImplementedError('no')")
        assert calibrated(request(tmp_path, make_gate(), lacking, 2), file) == 3
        assert [rate.bound for rate in report.rates(lines(file), report.gate).values()] == [None]
        assert "unsupported: tried: 1 cases" in render([read(file)])


class TestWorkers:
    """A worker serves several seeds."""

    HEAD = "import os, pathlib\nCOUNT = [0]"

    def body(self, log: Path, then: str = "") -> str:
        return f"with open({str(log)!r}, 'a') as file:\n    file.write(f'{{os.getpid()}}\\n')\nCOUNT[0] += 1\n{then}{RIGHT}"

    @pytest.mark.parametrize(("seeds", "workers"), [(3, 1), (bench.SEEDS, 1), (bench.SEEDS + 1, 2)])
    def test_one_serves_so_many_seeds_and_is_relieved(
        self, tmp_path: Path, file: Path, subject: Maker, seeds: int, workers: int
    ) -> None:
        """Start-up is paid once for some seeds, and what a subject leaks does not add up over all."""
        log = tmp_path / "log"
        assert (
            calibrated(request(tmp_path, flaky_gate(()), subject(self.body(log), self.HEAD), seeds, block=4), file) == 0
        )
        assert len(set(log.read_text().split())) == workers
        assert len(log.read_text().split()) == seeds

    def test_one_that_crashed_or_ran_out_of_time_is_replaced(self, tmp_path: Path, file: Path, subject: Maker) -> None:
        """A crash at the second call of a worker is a false positive of its seed alone; the next seed has another worker."""
        log = tmp_path / "log"
        dies = subject(self.body(log, "if COUNT[0] == 2:\n    os._exit(9)\n"), self.HEAD)
        assert calibrated(request(tmp_path, flaky_gate(()), dies, 4), file) == 1
        assert refused(file) == [(1, "crashed"), (3, "crashed")]
        assert len(set(log.read_text().split())) == 2

    def test_one_that_did_not_start_is_tried_again_at_the_next_seed(
        self, tmp_path: Path, file: Path, subject: Maker
    ) -> None:
        """A failure to start is a false positive of one seed, not of all that follow."""
        stamp = tmp_path / "stamp"
        head = f"import pathlib\nif not pathlib.Path({str(stamp)!r}).exists():\n    pathlib.Path({str(stamp)!r}).touch()\n    raise ValueError('once')"
        assert calibrated(request(tmp_path, flaky_gate(()), subject(RIGHT, head), 3), file) == 1
        assert refused(file) == [(0, "start")]

    def test_other_engines_may_end_seeds_in_any_order(self, tmp_path: Path, file: Path, subject: Maker) -> None:
        """All seeds of a block are handed in together, come back in reverse, and make the lines of this machine's pool."""
        asked = request(tmp_path, flaky_gate((1,)), subject(RIGHT), 7, block=5)
        handed: list[int] = []

        class Backwards(Pool):
            def judged(self) -> Iterator[Judged]:
                found = list(super().judged())
                handed.append(len(found))
                yield from reversed(found)

        code = calibrated(replace(asked, engine=Backwards), file)
        assert calibrated(asked, tmp_path / "here.jsonl") == code
        assert handed == [5, 2]
        there, here = (
            [line.model_copy(update={"nearest": []}) for line in read(path).calibrations]
            for path in (file, tmp_path / "here.jsonl")
        )
        assert there == here

    @pytest.mark.parametrize(("always", "code"), [(False, 0), (True, 1)], ids=["once", "always"])
    def test_what_ran_out_of_time_is_judged_once_more(
        self, tmp_path: Path, file: Path, subject: Maker, always: bool, code: int
    ) -> None:
        """A pause of the machine is no false positive and is noted; a hang is one."""
        stamp = tmp_path / "stamp"
        slow = subject(
            f"import pathlib, time\nfile = pathlib.Path({str(stamp)!r})\n"
            f"if {always} or not file.exists():\n    file.touch()\n    time.sleep(30)\n{RIGHT}"
        )
        case = replace(make_gate().cases[0], limit_s=1.0)
        assert calibrated(request(tmp_path, make_gate(cases=(case,)), slow, 1), file) == code
        (line,) = lines(file)
        assert (line.retried, refused(file)) == ({"some": "0"}, [(0, "timeout")] * code)


class TestResume:
    """A calibration that was stopped goes on where it was."""

    def test_an_interrupt_loses_nothing_and_no_seed_is_judged_twice(
        self, tmp_path: Path, file: Path, subject: Maker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Stopped in the third of five seeds, the file has two; resumed, it has each seed once and equals a whole run."""
        asked = request(tmp_path, flaky_gate((1,)), subject(RIGHT), 5)
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

    def test_an_interrupt_while_lines_are_written_waits_for_the_last(
        self, tmp_path: Path, file: Path, subject: Maker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Ctrl-C as the first of two subjects is written: the other one is written too, for its seeds were judged."""
        gate, subjects = make_gate(), [subject(RIGHT), subject(RIGHT, name="other")]
        asked = request(tmp_path, gate, subjects[0], 2, cases=plan([gate], subjects, quick=True))
        original = Writer.write

        def stopped(self: Writer, record: Any) -> None:
            if record.record == "calibration":
                signal.raise_signal(signal.SIGINT)
            original(self, record)

        monkeypatch.setattr(Writer, "write", stopped)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
        try:
            with pytest.raises(KeyboardInterrupt):
                calibrated(asked, file)
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        finally:
            signal.signal(signal.SIGINT, before)
        assert [(line.subject, line.verdicts) for line in read(file).calibrations] == [("other", 2), ("tried", 2)]

    def test_a_seed_is_counted_whole_or_not_at_all(
        self, tmp_path: Path, file: Path, subject: Maker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Ctrl-C in the middle of counting a false positive: its seed is not in the file, so it is judged again and not lost."""
        asked = request(tmp_path, flaky_gate(tuple(range(5))), subject(RIGHT), 3)
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
        """Going on with a complete file says what it holds, and appends nothing."""
        asked = request(tmp_path, flaky_gate(()), subject(RIGHT), 2)
        calibrated(asked, file)
        before = file.read_bytes()
        monkeypatch.setattr(Pool, "submit", lambda self, jobs: pytest.fail("judged again") if jobs else None)
        assert calibrated(asked, file) == 0
        assert file.read_bytes() == before

    def test_another_run_is_refused(self, tmp_path: Path, file: Path, subject: Maker) -> None:
        """A file of other seeds is not gone on with, and what differs is said."""
        calibrated(request(tmp_path, flaky_gate(()), subject(RIGHT), 2), file)
        with pytest.raises(ConfigurationError, match="its seeds is 2, and this command's 3"):
            calibrated(request(tmp_path, flaky_gate(()), subject(RIGHT), 3), file)

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"commit": "0" * 40}, "its commit is"),
            ({"codes": {"double": "b" * 16}}, "the code or the limits of double are others"),
            ({"machine": Machine(system="s", cpu="another", cores=1, features=[])}, "its processor is"),
        ],
        ids=["commit", "code", "processor"],
    )
    def test_other_code_is_refused_unless_nothing_is_left(
        self, tmp_path: Path, file: Path, subject: Maker, changes: dict[str, Any], words: str
    ) -> None:
        """A file that was cut is of its commit, code and processor; a complete one may be read by any, to write limits from it."""
        asked = request(tmp_path, flaky_gate(()), subject(RIGHT), 2)
        other = replace(asked, header=asked.header.model_copy(update=changes))
        file.write_text(asked.header.model_dump_json() + "\n")
        with pytest.raises(ConfigurationError, match=words):
            calibrated(other, file)
        calibrated(asked, file)
        assert calibrated(other, file) == 0

    def test_a_summary_that_grew_leaves_fewer_seeds(self, tmp_path: Path, file: Path, subject: Maker) -> None:
        """A run beside the summary goes on, though another one was recorded since it began."""
        asked = request(tmp_path, flaky_gate(()), subject(RIGHT), 3)
        header = asked.header.model_copy(update={"beside": ["calibration.jsonl"]})
        file.write_text(header.model_dump_json() + "\n")
        later = header.model_copy(update={"planned": 2})
        known = {("double.matches-definition", "tried", "some"): {0}}
        assert calibrated(replace(asked, header=later, recorded=known), file) == 0
        assert [seeds_of(line.seeds["judged"]["some"]) for line in lines(file)] == [{1, 2}]

    @pytest.mark.parametrize("text", ["my only notes", "two\nlines", ""], ids=["no line", "torn", "empty"])
    def test_a_file_of_another_program_keeps_its_bytes(
        self, tmp_path: Path, file: Path, subject: Maker, text: str
    ) -> None:
        """What is read first is cut afterwards: a file named by mistake loses nothing."""
        file.write_text(text)
        asked = request(tmp_path, flaky_gate(()), subject(RIGHT), 1)
        if not text:
            assert calibrated(asked, file) == 0
            return
        with pytest.raises(ConfigurationError):
            calibrated(asked, file)
        assert file.read_text() == text

    def test_two_at_once_on_one_file_are_refused(self, tmp_path: Path, file: Path, subject: Maker) -> None:
        """The second process gets an error, and the file keeps its lines."""
        file.touch()
        first = Writer.again(file)
        with pytest.raises(ConfigurationError, match="another process is writing to it"):
            calibrated(request(tmp_path, flaky_gate(()), subject(RIGHT), 2), file)
        first.close()
