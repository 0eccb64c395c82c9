"""False alarms over seeds: what is counted, what a killed run loses, and how a rate is bounded."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from doubles import DOUBLE, make_gate

from gates import calibration
from gates.calibration import key
from gates.calibration_past import Past
from gates.calibration_rate import upper_bound
from gates.calibration_session import Request, conduct
from gates.model import Bound, Case, ConfigurationError, Evidence, Gate, Subject, Trial
from gates.report import outcome
from gates.report.calibration import flaky, points, rates, reproduces
from gates.report.markdown import render
from gates.results.jsonl import Writer, read
from gates.run import session
from gates.run.engines import workers as bench
from gates.run.engines.pool import Pool
from gates.run.execute import run
from gates.run.judge import Judged
from gates.run.plan import Options, PlannedCase, plan

Maker = Callable[..., Subject]
RIGHT = "return {'y': 2 * x}"


def request(tmp_path: Path, gate: Gate, subject: Subject, seeds: int, block: int = 10, **changes: Any) -> Request:
    options = Options(seed=0, quick=True)
    cells = plan([gate], [subject], quick=True)
    header = session.header(
        session.RunInfo("calibrate", ["calibrate"], [gate], [subject], options, len(cells) * seeds, seeds=seeds)
    )
    asked = Request([gate], cells, options, range(seeds), block, header, write_limits=False, proofs=tmp_path)
    return replace(asked, **changes)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "calibrate.jsonl"
    path.touch()
    return path


def flaky_gate(bad: tuple[int, ...]) -> Gate:
    """A gate whose limit is too narrow at some of the seeds that its case is made of, whatever the subject does."""

    def check(t: Trial) -> Iterator[Evidence]:
        got = t.got(DOUBLE, **t.inputs)["y"]
        nth = int(t.inputs["x"][0] * 1e6) % 5
        yield t.number("y", 2.0 if nth in bad else 0.25 + float(np.isnan(got).any()), "<=")

    return make_gate(check, bounds={"y": Bound("derived", "a test", 1.0)})


class TestCounts:
    """What a calibration says of its gates."""

    def test_a_sound_gate_raises_no_alarm(self, tmp_path: Path, file: Path, subject: Maker) -> None:
        """Every seed passes: exit code 0, one line for each block, and the largest share of the limit."""
        assert conduct(request(tmp_path, flaky_gate(()), subject(RIGHT), 5, block=2), file, as_json=False) == 0
        found = read(file)
        assert found.state == "complete"
        assert [(b.first_seed, b.seeds, b.counts) for b in found.blocks] == [
            (0, 2, {"pass": 2}),
            (2, 2, {"pass": 2}),
            (4, 1, {"pass": 1}),
        ]
        (rate,) = rates(found.blocks)
        assert (rate.seeds, rate.alarms) == (5, 0)
        assert rate.bound == pytest.approx(1 - 0.05**0.2)
        (point,) = points(found.blocks)
        assert (point.quantity, point.share, point.seeds) == ("y", 0.25, 5)

    def test_a_flaky_gate_is_named_with_the_seed_that_shows_it_again(
        self, tmp_path: Path, file: Path, subject: Maker, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The alarm's own seed fails again by itself, a seed without an alarm passes; exit code 1."""
        gate, right = flaky_gate((0, 1, 2)), subject(RIGHT)
        assert conduct(request(tmp_path, gate, right, 12), file, as_json=False) == 1
        alarms = flaky(read(file).blocks)
        bad = {alarm.seed for _, alarm in alarms}
        assert 0 < len(bad) < 12
        for seed in range(12):
            (judged,) = run(plan([gate], [right], quick=True), Options(seed=seed))
            assert (judged.verdict.status == "fail") is (seed in bad), seed
        block, alarm = alarms[0]
        again = f"gates check double.matches-definition --seed {alarm.seed} --subject tried --quick"
        assert reproduces(block, alarm, full=False) == again
        assert again in " ".join(capsys.readouterr().out.split())
        text = render([read(file)])
        assert text.index("### False alarms") < text.index("| family |")
        assert again in text

    def test_an_error_is_an_alarm_too(self, tmp_path: Path, file: Path, subject: Maker) -> None:
        """A case whose signal fails at a seed is no pass."""
        case = Case("zeros", lambda rng: {"x": np.zeros(4)}, quick=True)
        assert conduct(request(tmp_path, make_gate(cases=(case,)), subject(RIGHT), 2), file, as_json=False) == 1
        assert [alarm.cause for _, alarm in flaky(read(file).blocks)] == ["signal", "signal"]

    def test_json_lines_are_those_of_the_file(
        self, tmp_path: Path, file: Path, subject: Maker, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Words that hold what some take for the end of a line do not part one."""

        def check(t: Trial) -> Iterator[Evidence]:
            raise RuntimeError("one\u2028two")
            yield

        conduct(request(tmp_path, make_gate(check), subject(RIGHT), 1), file, as_json=True)
        records = [json.loads(line) for line in capsys.readouterr().out.split("\n") if line]
        assert [record["record"] for record in records] == ["header", "subject", "block", "summary"]

    def test_what_nobody_provides_measures_nothing(self, tmp_path: Path, file: Path, subject: Maker) -> None:
        """Unsupported everywhere is exit code 3, and a rate without a bound."""
        lacking = subject("raise NotImplementedError('no')")
        assert conduct(request(tmp_path, make_gate(), lacking, 2), file, as_json=False) == 3
        assert [rate.bound for rate in rates(read(file).blocks)] == [None]
        assert "unsupported: tried: 1 cells" in render([read(file)])


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
        asked = request(tmp_path, flaky_gate(()), subject(self.body(log), self.HEAD), seeds, block=4)
        assert conduct(asked, file, as_json=False) == 0
        assert len(set(log.read_text().split())) == workers
        assert len(log.read_text().split()) == seeds

    def test_one_that_crashed_or_ran_out_of_time_is_replaced(self, tmp_path: Path, file: Path, subject: Maker) -> None:
        """A crash at the second call of a worker is an alarm of its seed alone; the next seed has another worker."""
        log = tmp_path / "log"
        dies = subject(self.body(log, "if COUNT[0] == 2:\n    os._exit(9)\n"), self.HEAD)
        assert conduct(request(tmp_path, flaky_gate(()), dies, 4), file, as_json=False) == 1
        assert [(alarm.seed, alarm.cause) for _, alarm in flaky(read(file).blocks)] == [(1, "crashed"), (3, "crashed")]
        assert len(set(log.read_text().split())) == 2

    def test_one_that_did_not_start_is_tried_again_at_the_next_seed(
        self, tmp_path: Path, file: Path, subject: Maker
    ) -> None:
        """A failure to start is an alarm of one seed, not of all that follow."""
        stamp = tmp_path / "stamp"
        head = f"import pathlib\nif not pathlib.Path({str(stamp)!r}).exists():\n    pathlib.Path({str(stamp)!r}).touch()\n    raise ValueError('once')"
        assert conduct(request(tmp_path, flaky_gate(()), subject(RIGHT, head), 3), file, as_json=False) == 1
        assert [(alarm.seed, alarm.cause) for _, alarm in flaky(read(file).blocks)] == [(0, "start")]

    def test_other_engines_may_end_seeds_in_any_order(self, tmp_path: Path, file: Path, subject: Maker) -> None:
        """All seeds of a block are handed in together, come back in reverse, and make the lines of this machine's pool."""
        asked = request(tmp_path, flaky_gate((1,)), subject(RIGHT), 7, block=5)
        handed: list[int] = []

        class Backwards(Pool):
            def judged(self) -> Iterator[Judged]:
                found = list(super().judged())
                handed.append(len(found))
                yield from reversed(found)

        conduct(replace(asked, engine=Backwards), file, as_json=False)
        here = tmp_path / "here.jsonl"
        here.touch()
        conduct(asked, here, as_json=False)
        assert handed == [5, 2]
        lines = [[b.model_copy(update={"seconds": 0.0}) for b in read(path).blocks] for path in (file, here)]
        assert lines[0] == lines[1]


class TestTime:
    """A time limit that a correct subject passes."""

    @pytest.mark.parametrize(("always", "code"), [(False, 0), (True, 1)], ids=["once", "always"])
    def test_what_ran_out_of_time_is_judged_once_more(
        self, tmp_path: Path, file: Path, subject: Maker, always: bool, code: int
    ) -> None:
        """A pause of the machine is no alarm and is counted; a hang is an alarm."""
        stamp = tmp_path / "stamp"
        slow = subject(
            f"import pathlib, time\nfile = pathlib.Path({str(stamp)!r})\n"
            f"if {always} or not file.exists():\n    file.touch()\n    time.sleep(30)\n{RIGHT}"
        )
        case = replace(make_gate().cases[0], limit_s=1.0)
        assert conduct(request(tmp_path, make_gate(cases=(case,)), slow, 1), file, as_json=False) == code
        (block,) = read(file).blocks
        assert (block.retried, [alarm.cause for alarm in block.alarms]) == (1, ["timeout"] * code)


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
            conduct(asked, file, as_json=False)
        assert read(file).state == "incomplete: 2 of 5"
        assert outcome.of(read(file)).words.startswith("0 of 2 seeds with a false alarm; ")
        with file.open("ab") as torn:
            torn.write(b'{"record": "block", "gate": "dou')
        monkeypatch.setattr(Pool, "submit", original)
        code = conduct(asked, file, as_json=False)
        found = read(file)
        assert found.state == "complete"
        assert [(b.first_seed, b.seeds) for b in found.blocks] == [(0, 2), (2, 3)]
        whole = tmp_path / "whole.jsonl"
        whole.touch()
        assert conduct(asked, whole, as_json=False) == code
        assert points(found.blocks) == points(read(whole).blocks)
        assert rates(found.blocks) == rates(read(whole).blocks)
        assert len(found.subjects) == 1

    def test_seeds_that_other_files_have_are_no_gap_in_a_block(
        self, tmp_path: Path, file: Path, subject: Maker
    ) -> None:
        """A block says which seeds it holds: seeds 2 and 3 that are recorded elsewhere part it in two, and none is renamed."""
        asked = request(tmp_path, flaky_gate(()), subject(RIGHT), 7)
        header = asked.header.model_copy(update={"planned": 5})
        past = Past(("other.jsonl",), {key(asked.cells[0]): frozenset((2, 3))})
        conduct(replace(asked, header=header, past=past), file, as_json=False)
        assert [(b.first_seed, b.seeds) for b in read(file).blocks] == [(0, 2), (4, 3)]

    def test_an_interrupt_while_lines_are_written_waits_for_the_last(
        self, tmp_path: Path, file: Path, subject: Maker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Ctrl-C as the first of two cells is written: the other one is written too, for its seeds were judged."""
        case = make_gate().cases[0]
        gate = make_gate(cases=(case, replace(case, name="another")))
        original = Writer.write

        def stopped(self: Writer, record: Any) -> None:
            if record.record == "block":
                signal.raise_signal(signal.SIGINT)
            original(self, record)

        monkeypatch.setattr(Writer, "write", stopped)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
        try:
            with pytest.raises(KeyboardInterrupt):
                conduct(request(tmp_path, gate, subject(RIGHT), 2), file, as_json=False)
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        finally:
            signal.signal(signal.SIGINT, before)
        assert [(b.case, b.seeds) for b in read(file).blocks] == [("another", 2), (case.name, 2)]

    def test_a_seed_is_counted_whole_or_not_at_all(
        self, tmp_path: Path, file: Path, subject: Maker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Ctrl-C in the middle of counting a false alarm: its seed is not in the file, so it is judged again and not lost."""
        asked = request(tmp_path, flaky_gate(tuple(range(5))), subject(RIGHT), 3)
        original = calibration.AlarmRecord

        def stopped(seed: int, **rest: Any) -> Any:
            if seed == 1:
                raise KeyboardInterrupt
            return original(seed=seed, **rest)

        monkeypatch.setattr(calibration, "AlarmRecord", stopped)
        with pytest.raises(KeyboardInterrupt):
            conduct(asked, file, as_json=False)
        monkeypatch.setattr(calibration, "AlarmRecord", original)
        assert conduct(asked, file, as_json=False) == 1
        assert [alarm.seed for block in read(file).blocks for alarm in block.alarms] == [0, 1, 2]

    def test_a_finished_file_is_not_judged_again(
        self, tmp_path: Path, file: Path, subject: Maker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Going on with a complete file says what it holds, and appends nothing."""
        asked = request(tmp_path, flaky_gate(()), subject(RIGHT), 2)
        conduct(asked, file, as_json=False)
        before = file.read_bytes()
        monkeypatch.setattr(Pool, "submit", lambda self, jobs: pytest.fail("judged again") if jobs else None)
        assert conduct(asked, file, as_json=False) == 0
        assert file.read_bytes() == before

    def test_another_run_is_refused(self, tmp_path: Path, file: Path, subject: Maker) -> None:
        """A file of other seeds is not gone on with, and what differs is said."""
        gate, right = flaky_gate(()), subject(RIGHT)
        conduct(request(tmp_path, gate, right, 2), file, as_json=False)
        with pytest.raises(ConfigurationError, match="its seeds is 2, and this command's 3"):
            conduct(request(tmp_path, gate, right, 3), file, as_json=False)

    def test_other_code_of_a_gate_is_refused_unless_nothing_is_left(
        self, tmp_path: Path, file: Path, subject: Maker
    ) -> None:
        """The commit says nothing of files that were edited and not committed; the header's digests do."""
        asked = request(tmp_path, flaky_gate(()), subject(RIGHT), 2)
        one, two = (
            replace(asked, header=asked.header.model_copy(update={"codes": {"double": digest}}))
            for digest in ("a" * 16, "b" * 16)
        )
        file.write_text(one.header.model_dump_json() + "\n")
        with pytest.raises(ConfigurationError, match="the code or the limits of double are others"):
            conduct(two, file, as_json=False)
        conduct(one, file, as_json=False)
        assert conduct(two, file, as_json=False) == 0

    def test_another_commit_is_refused_unless_nothing_is_left(
        self, tmp_path: Path, file: Path, subject: Maker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A file that was cut is of its commit; a complete one may be read by any, to write limits from it."""
        asked = request(tmp_path, flaky_gate(()), subject(RIGHT), 2)
        other = replace(asked, header=asked.header.model_copy(update={"commit": "0" * 40}))
        file.write_text(asked.header.model_dump_json() + "\n")
        with pytest.raises(ConfigurationError, match="its commit is"):
            conduct(other, file, as_json=False)
        conduct(asked, file, as_json=False)
        assert conduct(other, file, as_json=False) == 0

    @pytest.mark.parametrize("text", ["my only notes", "two\nlines", ""], ids=["no line", "torn", "empty"])
    def test_a_file_that_is_none_of_ours_keeps_its_bytes(
        self, tmp_path: Path, file: Path, subject: Maker, text: str
    ) -> None:
        """What is read first is cut afterwards: a file named by mistake loses nothing."""
        file.write_text(text)
        asked = request(tmp_path, flaky_gate(()), subject(RIGHT), 1)
        if not text:
            assert conduct(asked, file, as_json=False) == 0
            return
        with pytest.raises(ConfigurationError):
            conduct(asked, file, as_json=False)
        assert file.read_text() == text

    def test_two_at_once_on_one_file_are_refused(self, tmp_path: Path, file: Path, subject: Maker) -> None:
        """Whoever comes second is told, and the file keeps its lines."""
        first = Writer.again(file)
        with pytest.raises(ConfigurationError, match="another process is writing to it"):
            conduct(request(tmp_path, flaky_gate(()), subject(RIGHT), 2), file, as_json=False)
        first.close()


class TestRate:
    """The exact upper bound of a rate."""

    @pytest.mark.parametrize(
        ("alarms", "seeds", "bound"),
        [
            (0, 20, 0.139108),  # the published one-sided 95% limits of Clopper and Pearson
            (0, 1000, 0.00299125),
            (1, 10, 0.394163),
            (2, 20, 0.282619),
            (5, 5, 1.0),
        ],
    )
    def test_known_values(self, alarms: int, seeds: int, bound: float) -> None:
        """Tabled values, to their digits."""
        assert upper_bound(alarms, seeds) == pytest.approx(bound, rel=1e-5)

    @pytest.mark.parametrize("seeds", [1, 7, 100, 1000])
    def test_it_solves_its_own_definition(self, seeds: int) -> None:
        """At the bound, so few alarms have a chance of 5%, summed here by exact binomials."""
        for alarms in {0, seeds // 3, seeds - 1}:
            rate = upper_bound(alarms, seeds)
            chance = sum(math.comb(seeds, k) * rate**k * (1 - rate) ** (seeds - k) for k in range(alarms + 1))
            assert chance == pytest.approx(0.05, rel=1e-6)
            assert rate >= alarms / seeds

    def test_without_alarms_it_is_just_below_the_rule_of_three(self) -> None:
        """3/n bounds it from above, within 5% at 100 seeds."""
        assert 0.95 * 0.03 < upper_bound(0, 100) < 0.03

    @pytest.mark.parametrize(("alarms", "seeds"), [(0, 0), (-1, 5), (6, 5)])
    def test_nonsense_is_refused(self, alarms: int, seeds: int) -> None:
        """No seeds, or more alarms than seeds."""
        with pytest.raises(ValueError, match="there must be seeds"):
            upper_bound(alarms, seeds)
