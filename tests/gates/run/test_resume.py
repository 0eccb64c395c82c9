"""A run that was killed, finished in its own file: valid at any moment, complete in the end, no case judged twice."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import records
from doubles import make_gate

from gates.model import Case, ConfigurationError, Evidence, Subject, Verdict
from gates.results.jsonl import Results, Writer, read
from gates.results.records import Machine, PlanRecord, SubjectRecord, verdict_record
from gates.run import session
from gates.run.engines.interface import Executor
from gates.run.judge import Judged
from gates.run.plan import Options, PlannedCase, plan
from gates.run.resume import resume, verdict
from gates.run.shards import Shard
from gates.worker.process import Hello

KILLS = int(os.environ.get("KILLS", "2"))
CASES = tuple(Case(f"c{n}", lambda rng: {}, limit_s=float(n + 1)) for n in range(6))
PLAN = plan([make_gate(cases=CASES)], [Subject("s", Path("s.py"), "s")], quick=False)
HEAD = records.header(
    [c.names for c in PLAN], commit="abc", dirty=False, command=["check", "kl", "--out", "x", "--record"]
)


class Quick:
    """Judges without workers, and remembers what."""

    judged_names: list[tuple[str, str, str]]

    def __init__(self, versions: Mapping[str, str] | None = None) -> None:
        self.judged_names = []
        self._hello = Hello({}, {}, versions) if versions else None

    def __call__(self, options: Options) -> Executor:
        return self

    def submit(self, cases: Sequence[PlannedCase]) -> None:
        self._cases = list(cases)

    def judged(self) -> Iterator[Judged]:
        for planned in self._cases:
            self.judged_names.append(planned.names)
            yield Judged(records.verdict(planned.names), self._hello)

    def close(self) -> None:
        pass


def finish(
    path: Path, requirements: tuple[session.Requirement, ...] = (), versions: Mapping[str, str] | None = None
) -> tuple[Quick, session.Tally]:
    """Resume a file and judge what is left."""
    engine = Quick(versions)
    resumed = resume(path, HEAD, PLAN)
    try:
        log = None if resumed.complete else resumed.writer
        tally = session.check(
            session.CheckRequest(resumed.left, Options(), log, requirements, engine=engine, resumed=resumed)
        )
    finally:
        resumed.writer.close()
    return engine, tally


def names(run: Results) -> list[tuple[str, str, str]]:
    return [(v.gate, v.subject, v.case) for v in run.verdicts]


class TestResume:
    """What is left of a run, and how it goes on."""

    def test_a_cut_anywhere_after_the_header_can_be_finished(self, tmp_path: Path) -> None:
        """However many bytes survive: the torn line goes, what was whole stays, the rest is judged, each case once."""
        data = records.write(tmp_path / "whole.jsonl", records.whole([c.names for c in PLAN], HEAD)).read_bytes()
        first = data.index(b"\n") + 1
        cut = tmp_path / "cut.jsonl"
        edges = {i + n for i, byte in enumerate(data) if byte == ord("\n") for n in (-1, 0, 1, 2)}
        for size in sorted(edges.union(range(0, len(data), 37)) & set(range(first, len(data) + 1))):
            cut.write_bytes(data[:size])
            before = names(read(cut))
            engine, tally = finish(cut)
            run = read(cut)
            assert cut.read_bytes().startswith(data[: data[:size].rindex(b"\n") + 1])
            assert run.state == "complete"
            assert sorted(names(run)) == sorted([c.names for c in PLAN])
            assert sorted([*before, *engine.judged_names]) == sorted([c.names for c in PLAN])
            assert tally.counts["correct"] == len(PLAN)
            assert [r.judged for r in run.resumes] == ([] if size == len(data) else [len(before)])

    def test_a_cut_inside_the_header_says_that_nothing_was_judged(self, tmp_path: Path) -> None:
        file = tmp_path / "r.jsonl"
        file.write_bytes(b'{"record": "header"')
        with pytest.raises(ConfigurationError, match="no complete line"):
            resume(file, HEAD, PLAN)
        assert file.read_bytes() == b'{"record": "header"'

    def test_a_complete_run_stays_as_it_is(self, tmp_path: Path) -> None:
        """Nothing is judged and no byte is written; the tally is that of the file."""
        file = records.write(tmp_path / "r.jsonl", records.whole([c.names for c in PLAN], HEAD, ["wrong"]))
        data = file.read_bytes()
        engine, tally = finish(file)
        assert (engine.judged_names, file.read_bytes(), tally.exit_code()) == ([], data, 1)

    def test_earlier_verdicts_count_for_requirements(self, tmp_path: Path) -> None:
        """A skip before the kill is a hole in what is required, after it too."""
        lines = records.whole([c.names for c in PLAN], HEAD, ["skipped"])[:2]
        file = records.write(tmp_path / "r.jsonl", lines)
        _, tally = finish(file, (session.Requirement("s"),))
        assert [hole.status for hole in tally.holes] == ["skipped"]
        assert tally.exit_code() == 1
        summary = read(file).summary
        assert summary is not None
        assert summary.exit_code == 1

    @pytest.mark.parametrize(("version", "lines"), [("1", 1), ("2", 2)], ids=["the same", "another"])
    def test_a_changed_subject_is_recorded_again(self, tmp_path: Path, version: str, lines: int) -> None:
        """A library that was renewed between kill and resumption: its verdicts rest on two versions, and both are recorded."""
        said = SubjectRecord(subject="s", provides=[], versions={"library": "1"})
        head, first = records.whole([c.names for c in PLAN], HEAD)[:2]
        file = records.write(tmp_path / "r.jsonl", [head, said, first])
        finish(file, versions={"library": version})
        assert [record.versions["library"] for record in read(file).subjects] == ["1", "2"][:lines]

    def test_a_verdict_is_read_back_as_it_was_written(self) -> None:
        evidence = Evidence("q", float("inf"), "<=", 1.0, "because", "where", "control")
        found = Verdict("g", "s", "c", 7, "wrong", "control", "reason", (evidence,), 0.25)
        assert verdict(verdict_record(found)) == found


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seed": 1}, "seed was 1 and is 0; go on with the command that began it, .*: gates check kl --resume "),
        ({"commit": "def"}, "commit was def and is abc"),
        ({"dirty": True}, "dirty was True"),
        ({"tool": "rl-gates 9"}, "tool was rl-gates 9"),
        ({"quick": False}, "quick was False"),
        ({"model": "/m"}, "model was /m"),
        ({"threads": 7}, "threads was 7"),
        ({"numpy": "1"}, "numpy was 1"),
        ({"machine": Machine(system="s", cpu="other", cores=2, features=[])}, "machine was .*other"),
        ({"subjects": ["s", "t"]}, r"subjects was \['t'\] and is nothing else"),
        ({"subject_files": {"s": "0f"}}, "the file of s has changed since.*begin another one without --resume"),
        ({"plan": Shard(1, 2).record(PLAN)}, "plan was .*shards=2"),
        ({"plan": PlanRecord(digest="0" * 64, cells=6)}, "plan was .*digest='0000"),
        ({"plan": None}, "names no plan"),
        ({"verb": "prove"}, "verb was prove and is check"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_another_run_is_refused_and_unchanged(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    """What verdicts depend on must be the same; the message names it, and the command that began the run."""
    file = records.write(tmp_path / "r.jsonl", [HEAD.model_copy(update=changes)])
    data = file.read_bytes() + b'{"torn'
    file.write_bytes(data)
    with pytest.raises(ConfigurationError, match=words):
        resume(file, HEAD, PLAN)
    assert file.read_bytes() == data


def test_other_jobs_and_another_time_are_no_other_run(tmp_path: Path) -> None:
    """How many workers run side by side changes no verdict."""
    file = records.write(tmp_path / "r.jsonl", [HEAD.model_copy(update={"jobs": 9, "started": "earlier"})])
    assert len(finish(file)[0].judged_names) == len(PLAN)


def test_a_foreign_verdict_is_refused(tmp_path: Path) -> None:
    """A case that the plan does not have was not written by this run."""
    file = records.write(tmp_path / "r.jsonl", [HEAD, verdict_record(records.verdict(("g", "s", "nowhere")))])
    with pytest.raises(ConfigurationError, match="g · s · nowhere is not in its header's plan"):
        resume(file, HEAD, PLAN)


def test_a_file_has_one_writer_at_a_time(tmp_path: Path) -> None:
    """While a run is writing, or another resumes it, a resumption is refused; after its end it is not."""
    writer = Writer(tmp_path / "r.jsonl")
    writer.write(HEAD)
    with pytest.raises(ConfigurationError, match="another process is writing to it"):
        resume(tmp_path / "r.jsonl", HEAD, PLAN)
    writer.close()
    resumed = resume(tmp_path / "r.jsonl", HEAD, PLAN)
    with pytest.raises(ConfigurationError, match="another process is writing to it"):
        resume(tmp_path / "r.jsonl", HEAD, PLAN)
    resumed.writer.close()


SLOW = """
import time
import numpy as np

def pack_sequences(**inputs):
    time.sleep(0.05)
    raise NotImplementedError("it only takes its time")

OPS = {"pack_sequences": pack_sequences}
"""
COMMAND = [sys.executable, "-m", "gates", "check", "packing", "--subject", "./slow.py", "--jobs", "1"]


def start(folder: Path, *options: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*COMMAND, *options], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def only(folder: Path) -> Path:
    (file,) = folder.glob("*.jsonl")
    return file


def written(folder: Path, kind: str) -> int:
    """How many lines of a kind the files of a folder hold."""
    return sum(path.read_bytes().count(f'"record":"{kind}"'.encode()) for path in folder.glob("*.jsonl"))


def grown(process: subprocess.Popen[bytes], lines: Callable[[], int], beyond: int) -> None:
    """Wait until there are more lines: of verdicts, the process has loaded everything and judges."""
    while process.poll() is None and lines() <= beyond:
        time.sleep(0.002)


@pytest.mark.slow
@pytest.mark.timeout(60 + 30 * KILLS)
def test_killed_at_random_moments(tmp_path: Path) -> None:
    """SIGKILL at random moments of one run after another: every line is valid each time, and the end is complete.

    `KILLS=100` is the record's number. A moment is drawn from the time in which a third of the plan is judged, after the
    run's first verdict; every fourth, for a run that dies before it has judged, after its first line of any kind.
    """
    (tmp_path / "slow.py").write_text(SLOW)
    out = tmp_path / "out"
    moments = random.Random(0)  # noqa: S311  reproducible moments, not secrets
    kills = rounds = 0
    file: Path | None = None
    before: set[tuple[str, str, str]] = set()
    while True:
        first = "verdict" if kills % 4 else "resume" if file else "header"
        lines = partial(written, out, first)
        beyond = lines()
        process = start(tmp_path, *(["--resume", str(file)] if file else ["--out", str(out)]))
        try:
            grown(process, lines, beyond)
            process.wait(timeout=moments.uniform(0.0, 0.4) if kills < KILLS else 60.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
        file = only(out)
        run = read(file)  # raises if any line is no record, or a case is judged twice
        assert before <= set(names(run))
        before = set(names(run))
        if run.summary is None:
            assert run.state == f"incomplete: {len(run.verdicts)} of 42"
            continue
        rounds += 1
        assert run.summary.counts["unsupported"] == len(before) == 42
        if kills >= KILLS:
            break
        file.unlink()  # it got to its end: begin again
        file, before = None, set()
    assert kills == KILLS
    assert rounds >= 1
    sys.stdout.write(f"{kills} kills, {rounds} whole runs of 42 cells each judged once\n")


def test_two_runs_at_once_in_one_folder_do_not_collide(tmp_path: Path) -> None:
    """Two commands started together, in one folder, each leave a whole file of their own."""
    (tmp_path / "slow.py").write_text(SLOW)
    running = [start(tmp_path, "--out", "out") for _ in range(2)]
    assert [process.wait(timeout=60) for process in running] == [3, 3]
    runs = [read(path) for path in (tmp_path / "out").glob("*.jsonl")]
    assert [(run.state, len(set(names(run)))) for run in runs] == [("complete", 42)] * 2


def test_the_command_as_it_is_typed(tmp_path: Path) -> None:
    """A killed run goes on with `--resume FILE`, shows the whole in the end, and ends as it would have."""
    (tmp_path / "slow.py").write_text(SLOW)
    process = start(tmp_path, "--out", "out")
    grown(process, partial(written, tmp_path / "out", "verdict"), 2)
    process.kill()
    process.wait()
    file = only(tmp_path / "out")
    judged = len(read(file).verdicts)
    done = subprocess.run(
        [*COMMAND, "--resume", str(file)], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 3, done.stderr
    assert done.stdout.splitlines()[-1].startswith("exit 3: nothing was judged")
    assert [r.judged for r in read(file).resumes] == [judged]
