"""A plan in parts: every case in one of them, and one run again when they are merged."""

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import records
from command_line import here
from doubles import make_gate
from hypothesis import given, settings
from hypothesis import strategies as st

from gates.model import Case, ConfigurationError, Subject
from gates.report.markdown import render
from gates.results.jsonl import Results, read
from gates.results.records import CounterexampleRecord, PlanRecord, SummaryRecord, VerdictRecord
from gates.run.merge import merge
from gates.run.plan import PlannedCase, plan
from gates.run.shards import Shard, digest, without

SUBJECT = Subject("s", Path("s.py"), "s")
LIMITS = st.sampled_from([1.0, 5.0, 20.0, 20.0, 120.0])
PLANS = st.lists(st.lists(LIMITS, min_size=1, max_size=6), min_size=0, max_size=8)
STATUS = st.sampled_from(["correct", "wrong", "error", "skipped", "unsupported"])


def planned(gates: Sequence[Sequence[float]]) -> list[PlannedCase]:
    """A plan with a gate for each list, and in it a case for each limit."""
    made = [
        make_gate(id=f"g{i}", cases=tuple(Case(f"c{j}", lambda rng: {}, limit_s=s) for j, s in enumerate(limits)))
        for i, limits in enumerate(gates)
    ]
    return plan(made, [SUBJECT, replace(SUBJECT, name="t")], quick=False)


def shard_files(cases: list[PlannedCase], count: int, folder: Path, statuses: Sequence[Any] = ()) -> list[Results]:
    """The files of every shard, written and read again."""
    found = []
    given = {one.names: status for one, status in zip(cases, statuses, strict=False)}
    for index in range(1, count + 1):
        part = Shard(index, count)
        mine = [one.names for one in part.take(cases)]
        head = records.header([j.names for j in cases], planned=len(mine), plan=part.record(cases))
        lines = records.whole(mine, head, [given.get(c, "correct") for c in mine])
        found.append(read(records.write(folder / f"{index}.jsonl", lines)))
    return found


class TestPartition:
    """Which shard judges which case."""

    @given(PLANS, st.integers(1, 12))
    def test_shards_are_disjoint_and_cover_the_plan(self, gates: list[list[float]], count: int) -> None:
        """Whatever the plan and the number of shards, each case is in exactly one shard."""
        cases = planned(gates)
        parts = [[one.names for one in Shard(i, count).take(cases)] for i in range(1, count + 1)]
        assert sorted(c for part in parts for c in part) == sorted(one.names for one in cases)

    @given(PLANS, st.integers(1, 12))
    def test_shards_are_balanced_by_limit(self, gates: list[list[float]], count: int) -> None:
        """The limits of two shards differ by no more than the longest limit of one case."""
        cases = planned(gates)
        loads = [sum(one.case.limit_s for one in Shard(i, count).take(cases)) for i in range(1, count + 1)]
        assert max(loads) - min(loads) <= max((one.case.limit_s for one in cases), default=0.0)

    @given(PLANS, st.integers(1, 6), st.randoms(use_true_random=False))
    def test_the_order_of_the_plan_does_not_matter(self, gates: list[list[float]], count: int, random: Any) -> None:
        """A machine that lists subjects or gates in another order finds the same shards and the same digest."""
        cases = planned(gates)
        mixed = list(cases)
        random.shuffle(mixed)
        for index in range(1, count + 1):
            assert {j.names for j in Shard(index, count).take(cases)} == {
                j.names for j in Shard(index, count).take(mixed)
            }
        assert Shard().record(cases) == Shard().record(mixed)

    @pytest.mark.parametrize(
        "text", ["0/5", "6/5", "1/0", "2", "2/", "/5", "a/b", "-1/5", "1/5/2", "1/99999", "", " 1/2"]
    )
    def test_an_invalid_shard_is_refused(self, text: str) -> None:
        """Anything but INDEX/COUNT within range is one sentence."""
        with pytest.raises(ConfigurationError, match=r"must be INDEX/COUNT"):
            Shard.parse(text)

    def test_the_digest_distinguishes_plans(self) -> None:
        """A case more, a case less or another name is another plan."""
        names = [("g", "s", "a"), ("g", "s", "b")]
        others = [names[:1], [*names, ("g", "s", "c")], [("g", "s", "a"), ("g", "t", "b")], [("gs", "", "a"), names[1]]]
        assert len({digest(names), *map(digest, others)}) == 5
        assert digest(names) == digest(reversed(names))


class TestMerge:
    """The shards' files joined."""

    @settings(max_examples=40, deadline=None)
    @given(PLANS.filter(len), st.integers(1, 7), st.lists(STATUS, max_size=60), st.randoms(use_true_random=False))
    def test_nothing_is_lost_and_nothing_counted_twice(
        self, gates: list[list[float]], count: int, statuses: list[str], random: Any
    ) -> None:
        """For any plan, number of shards and order of files, the merged run has the verdicts of the whole, each once."""
        cases = planned(gates)
        with tempfile.TemporaryDirectory() as folder:
            runs = shard_files(cases, count, Path(folder), statuses)
            mixed = list(runs)
            random.shuffle(mixed)
            lines = merge(mixed)
            assert lines == merge(runs)
            whole = read(records.write(Path(folder) / "whole.jsonl", lines))
        wanted = {one.names: status for one, status in zip(cases, statuses, strict=False)}
        found = [(v.gate, v.subject, v.case) for v in whole.verdicts]
        assert sorted(found) == sorted(one.names for one in cases)
        assert {(v.gate, v.subject, v.case): v.status for v in whole.verdicts if v.status != "correct"} == {
            names: status for names, status in wanted.items() if status != "correct"
        }
        assert whole.state == "complete"
        assert whole.header.plan == Shard().record(cases)
        assert whole.summary is not None
        assert sum(whole.summary.counts.values()) == len(cases) == whole.header.planned
        assert [part.file for part in whole.header.merged] == [f"{i}.jsonl" for i in range(1, count + 1)]

    @settings(max_examples=20, deadline=None)
    @given(PLANS.filter(len), st.integers(2, 5), st.data())
    def test_a_merge_needs_every_shard(self, gates: list[list[float]], count: int, data: Any) -> None:
        """Left out, given twice or in the place of another: refused."""
        cases = planned(gates)
        one = data.draw(st.integers(0, count - 1))
        with tempfile.TemporaryDirectory() as folder:
            runs = shard_files(cases, count, Path(folder))
            with pytest.raises(ConfigurationError, match=f"these are missing: {one + 1}$"):
                merge(runs[:one] + runs[one + 1 :])
            with pytest.raises(ConfigurationError, match=f"both shard {one + 1}"):
                merge([*runs, runs[one]])

    def test_it_renders_like_one_run(self, tmp_path: Path) -> None:
        """The report of the merged file has the tables of a run that was never cut in shards."""
        cases = planned([[1.0, 5.0, 20.0], [1.0, 1.0]])
        statuses = ["correct", "wrong", "unsupported"]
        merged = read(records.write(tmp_path / "merged.jsonl", merge(shard_files(cases, 3, tmp_path, statuses))))
        names = [one.names for one in cases]
        alone = read(records.write(tmp_path / "alone.jsonl", records.whole(names, records.header(names), statuses)))  # type: ignore[arg-type]  # of literals
        assert tables(merged) == tables(alone)


def tables(run: Results) -> str:
    """A report from its first table of verdicts on."""
    return render([run]).partition("| gate |")[2]


PLAN = planned([[1.0, 5.0], [20.0]])


def changed(**changes: Any) -> Callable[[list[Results]], list[Results]]:
    """Give the second shard another header."""

    def change(runs: list[Results]) -> list[Results]:
        runs[1].header = runs[1].header.model_copy(update=changes)
        return runs

    return change


def lose(runs: list[Results]) -> list[Results]:
    runs[1].verdicts.pop()
    return runs


def swap(runs: list[Results]) -> list[Results]:
    """A verdict of the first shard in the place of one of the second."""
    runs[1].verdicts[0] = runs[0].verdicts[0]
    return runs


def rename(runs: list[Results]) -> list[Results]:
    runs[1].verdicts[0] = runs[1].verdicts[0].model_copy(update={"case": "nobody planned this"})
    return runs


def unfinished(runs: list[Results]) -> list[Results]:
    runs[1].summary = None
    return runs


def merged_already(runs: list[Results]) -> list[Results]:
    header, *_ = merge(runs)
    runs[1].header = header  # type: ignore[assignment]  # the first line is a header
    return runs


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (changed(seed=1), "seed is 0 in .*1.jsonl and 1 in .*2.jsonl; judge every shard"),
        (changed(commit="abc"), "commit is None in .* and abc in"),
        (changed(dirty=True), "dirty is"),
        (changed(tool="rl-gates 9"), "tool is rl-gates 0 in .* and rl-gates 9 in"),
        (changed(quick=False), "quick is True"),
        (changed(full=True), "full is False"),
        (changed(model="/m"), "model is None"),
        (changed(verb="prove"), "is of `gates prove`"),
        (changed(gates=["g0"]), r"gates is 2 names \(with g1\) in .* and 1 names in"),
        (changed(subject_files={"s": "0f"}), r"subject_files is \{\} in .* and \{'s': '0f'\} in"),
        (changed(plan=PlanRecord(digest="0" * 64, cells=7, shard=2, shards=2)), "the plan of .* has 6 cases .* 7 "),
        (changed(plan=PlanRecord(digest=Shard().record(PLAN).digest, cells=6, shard=2, shards=3)), "one of 2 shards, "),
        (changed(plan=None), "names no plan"),
        (changed(planned=9), "verdicts, must have 9"),
        (lose, "has 2 verdicts, must have 3"),
        (swap, "each case must be judged once"),
        (rename, "a file was changed after it was written"),
        (unfinished, "is incomplete: 3 of 3; finish it with"),
        (merged_already, "is merged already"),
        (lambda runs: [], "it got none"),
    ],
    ids=[
        *[
            "seed",
            "commit",
            "dirty",
            "version",
            "quick",
            "full",
            "model",
            "verb",
            "gates",
            "file",
            "plan",
            "count",
            "old",
        ],
        *["planned", "lost", "twice", "foreign", "unfinished", "merged", "none"],
    ],
)
def test_files_of_different_runs_are_refused(
    tmp_path: Path, change: Callable[[list[Results]], list[Results]], words: str
) -> None:
    """Another plan, commit, seed or version, a hole or a double is one sentence with both files."""
    runs = shard_files(PLAN, 2, tmp_path)
    assert merge(runs)
    with pytest.raises(ConfigurationError, match=words):
        merge(change(runs))


def test_a_run_that_started_at_no_time_is_refused(tmp_path: Path) -> None:
    """The day decides which waivers have expired; a header that anybody wrote may have none."""
    runs = shard_files(PLAN, 2, tmp_path)
    runs[1].header = runs[1].header.model_copy(update={"started": "soon"})
    with pytest.raises(ConfigurationError, match="started 'soon', which is no time"):
        merge(runs)


def test_a_requirement_that_one_shard_missed_fails_the_whole(tmp_path: Path) -> None:
    """Exit code 1 of a shard whose verdicts all held is that of the merged run."""
    runs = shard_files(PLAN, 2, tmp_path)
    assert exit_code(runs) == 0
    summary = runs[1].summary
    assert summary is not None
    runs[1].summary = summary.model_copy(update={"exit_code": 1})
    assert exit_code(runs) == 1


def test_a_shard_in_which_nothing_was_measured_does_not_spoil_the_whole(tmp_path: Path) -> None:
    """A shard of unsupported cases ends with 3; with passes in another the whole ends with 0, without any with 3."""
    mine = {one.names for one in Shard(1, 2).take(PLAN)}
    runs = shard_files(PLAN, 2, tmp_path, ["unsupported" if one.names in mine else "correct" for one in PLAN])
    assert runs[0].summary is not None
    assert runs[0].summary.exit_code == 3
    assert exit_code(runs) == 0
    (tmp_path / "none").mkdir()
    assert exit_code(shard_files(PLAN, 2, tmp_path / "none", ["unsupported"] * len(PLAN))) == 3


@pytest.mark.parametrize(
    ("out", "named"),
    [
        ("results/runs/whole.jsonl", "../../shards/1.counterexamples/g0-s.safetensors"),
        ("shards/whole.jsonl", "1.counterexamples/g0-s.safetensors"),
    ],
    ids=["elsewhere", "beside"],
)
def test_the_smallest_inputs_are_named_from_the_merged_file(tmp_path: Path, out: str, named: str) -> None:
    """They stay where the shards wrote them, and the replay command of a report of the whole run finds them."""
    shards, whole = tmp_path / "shards", tmp_path / out
    (shards / "1.counterexamples").mkdir(parents=True)
    (shards / "1.counterexamples" / "g0-s.safetensors").touch()
    runs = shard_files(PLAN, 2, shards, ["wrong"])
    of_failing = next(run for run in runs if any(v.status == "wrong" for v in run.verdicts))
    failing = next(v for v in of_failing.verdicts if v.status == "wrong")
    of_failing.counterexamples.append(
        CounterexampleRecord(
            **failing.model_dump(include={"gate", "subject", "case", "seed"}),
            file="1.counterexamples/g0-s.safetensors",
            words="got 1, want 2",
            elements_before=9,
            elements_after=2,
            unit="numbers",
            finished=True,
            subject_file="../x/mine.py",
        )
    )
    whole.parent.mkdir(parents=True, exist_ok=True)
    (small,) = (record for record in merge(runs, whole.parent) if isinstance(record, CounterexampleRecord))
    assert small.file == named
    assert (whole.parent / small.file).is_file()
    assert of_failing.counterexamples[0].file == "1.counterexamples/g0-s.safetensors"
    assert (whole.parent / str(small.subject_file)).resolve() == tmp_path.resolve() / "x" / "mine.py"


def exit_code(runs: list[Results]) -> int:
    summary = merge(runs)[-1]
    assert isinstance(summary, SummaryRecord)
    return summary.exit_code


@pytest.mark.parametrize(
    ("command", "left"),
    [(["check", "kl", "--shard", "2/5", "--quick"], ["check", "kl", "--quick"]), (["check", "--shard=2/5"], ["check"])],
)
def test_the_command_of_the_whole_names_no_shard(command: list[str], left: list[str]) -> None:
    """What is shown as the merged run's command is what would have run it whole."""
    assert without(command, "--shard") == left


@pytest.mark.slow
def test_the_commands_as_a_matrix_types_them(tmp_path: Path) -> None:
    """Two shards and a merge give the verdicts of the whole run, with its last line and exit code."""
    what = ["check", "philox", "packing", "--subject", "numpy", "--quick"]
    alone = here(*what, "--out", "alone", cwd=tmp_path)
    for part in ("1/2", "2/2"):
        done = here(*what, "--out", "parts", "--shard", part, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    files = [str(path) for path in (tmp_path / "parts").glob("*.jsonl")]
    joined = here("merge", *files, "--out", "whole.jsonl", cwd=tmp_path)
    assert joined.returncode == alone.returncode == 0, joined.stderr
    assert joined.stdout.splitlines()[-1] == alone.stdout.splitlines()[-1]
    (one,) = (tmp_path / "alone").glob("*.jsonl")
    assert plain(one) == plain(tmp_path / "whole.jsonl")
    again = here("merge", *files, "--out", "whole.jsonl", cwd=tmp_path)
    assert again.returncode == 2
    assert "exists already" in again.stderr


def plain(path: Path) -> list[str]:
    """The verdicts of a file in order of their names, without their times."""
    found: list[VerdictRecord] = sorted(read(path).verdicts, key=lambda v: (v.gate, v.subject, v.case))
    return [json.dumps(v.model_copy(update={"seconds": 0.0}).model_dump(mode="json")) for v in found]
