"""One grade for each subject and op, and the screen that shows them."""

from pathlib import Path
from typing import Any

import pytest
from runs_on_file import BROKEN, smallest, verdict, write

from gates.model import Status
from gates.report import screen
from gates.report.formats import render
from gates.report.grades import EVERY, Grades
from gates.report.progress import Lines
from gates.report.wrap import sentence, wrapped
from gates.results.jsonl import Results
from gates.results.records import SubjectRecord

REASON = "group z-score with ddof 0 where ddof 1 was asked, which is off by up to 0.07 of a deviation " * 2


class TestGrades:
    """The worst verdict is the grade, with one verdict quoted."""

    @pytest.mark.parametrize(
        ("statuses", "grade"),
        [
            (["correct", "correct"], "correct"),
            (["correct", "imprecise"], "imprecise"),
            (["imprecise", "fragile", "correct"], "fragile"),
            (["fragile", "wrong", "not asked"], "wrong"),
            (["correct", "waived"], "waived"),
            (["wrong", "timeout"], "timeout"),
            (["correct", "unsupported", "skipped"], "correct"),
        ],
    )
    def test_the_worst_status_gives_the_grade(self, statuses: list[Status], grade: str) -> None:
        (found,) = Grades.of(verdict(status, case=f"{n}") for n, status in enumerate(statuses)).grades()
        judged = [status for status in statuses if status not in {"unsupported", "skipped", "not asked"}]
        assert (found.status, found.cases, found.left) == (grade, len(judged), len(statuses) - len(judged))
        assert found.like == statuses.count(found.verdict.status)

    def test_an_op_that_was_not_judged_has_no_grade(self) -> None:
        """It is neither a pass nor a failure and is counted separately."""
        found = Grades.of([verdict("unsupported"), verdict("skipped", gate="b"), verdict("not asked", gate="c")])
        assert found.grades() == []
        assert found.left.total() == 3

    def test_an_op_with_several_gates_is_one_row(self) -> None:
        (found,) = Grades.of([verdict(gate="a", op="kl"), verdict("wrong", gate="b", op="kl")]).grades()
        assert (found.op, found.gates, found.count) == ("kl", ("a", "b"), "1 of 2 cases")

    def test_a_definition_is_quoted_before_a_law(self) -> None:
        verdicts = [verdict("wrong", case="a", level="law"), verdict("wrong", case="b"), verdict("fragile", case="c")]
        (found,) = Grades.of(verdicts).grades()
        assert (found.verdict.case, found.count) == ("b", "1 of 3 cases") if found.like == 1 else ("b", "2 of 3 cases")

    def test_a_documented_deviation_is_shown_if_no_other_failure_is_as_bad(self) -> None:
        """The grade `departs` is a wrong result that the library's documentation announces."""
        departs = verdict("wrong", cause="departs")
        assert [g.status for g in Grades.of([departs, verdict(case="b")]).grades()] == ["departs"]
        assert [g.status for g in Grades.of([departs, verdict("wrong", case="b")]).grades()] == ["wrong"]

    def test_a_subject_that_did_not_start_is_one_row(self) -> None:
        dead = [verdict("wrong", gate=gate, cause="start") for gate in "abc"]
        assert [(g.op, g.cases) for g in Grades.of(dead).grades()] == [(EVERY, 3)]

    def test_a_pass_shows_its_mutants(self) -> None:
        """It counts each mutant that the run recorded for its gates once."""
        mutants = {"a": ["sign", "mask"], "b": ["mask"], "c": ["shift"]}
        (found,) = Grades.of([verdict(gate=gate, op="kl") for gate in "ab"], mutants).grades()
        assert screen.strength([found]) == "2 cases, 2 mutants would have been seen"
        assert found.record()["mutants"] == 2

    def test_a_run_without_recorded_mutants_shows_none(self) -> None:
        """The report does not add mutants of today's catalogue to an old record."""
        (found,) = Grades.of([verdict(gate="kl.k3.matches-definition", op="token_kl")]).grades()
        assert screen.strength([found]) == "1 case"
        assert found.record()["mutants"] is None


def some(path: Path, **changes: Any) -> Results:
    """Return a run of one subject with an op of each grade."""
    statuses: tuple[Status, ...] = ("wrong", "fragile", "imprecise", "timeout", "error", "waived")
    verdicts = [verdict(status, gate=f"gate.{status}", op=f"op_{status}", reason=REASON) for status in statuses]
    verdicts += [verdict(gate=f"g{n}", op=f"right_op_number_{n}") for n in range(12)]
    verdicts += [
        verdict("unsupported", gate=f"u{n}", op=f"u{n}", reason=f"u{n} is not defined by mine") for n in range(5)
    ]
    found = smallest("some", gate="gate.wrong", words="token 7: got 0, want −1; inputs there: " + "policy 0 " * 12)
    versions = SubjectRecord(subject="mine", provides=[], versions={"numpy": "2.4", "mine": "0.3"})
    return write(path / "run.jsonl", verdicts, also=[versions, found], **changes)


class TestScreen:
    """The screen at the end of a run."""

    @pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
    def test_lines_fit_and_words_stay_whole(self, tmp_path: Path, width: int) -> None:
        """Paths are the exception; joined, the lines contain the complete reason."""
        lines = [line.plain for line in screen.lines(screen.of(some(tmp_path)), width)]
        assert [
            line for line in lines if len(line) > width and "gates replay" not in line and "results:" not in line
        ] == []
        assert " ".join(REASON.split())[:60] in " ".join(" ".join(lines).split())
        words = {word for line in lines for word in line.split()}
        assert words >= {f"right_op_number_{n}" for n in range(12)}

    def test_order_of_the_screen(self, tmp_path: Path) -> None:
        """Head, rows from the worst on, a list of correct ops, other counts, the path, and the exit code last."""
        lines = [line.plain for line in screen.lines(screen.of(some(tmp_path)), 120)]
        head = (
            "mine 0.3 · 18 ops judged · 1 wrong · 1 fragile · 1 imprecise · 1 timeout · 1 error · 1 waived · 12 correct"
        )
        assert lines[0].startswith(head)
        assert len(lines[0]) <= 120 or lines[1].strip() == "1 s"
        marks = [line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "]
        assert marks == ["WRONG", "FRAGILE", "IMPRECISE", "TIMEOUT", "ERROR", "WAIVED", "correct", "not"]
        assert "  not judged 5 ops that mine does not have (gates ops)" in lines
        assert lines[-2:] == [f"results: {tmp_path / 'run.jsonl'}", "exit 1: 1 wrong, 1 timeout, 1 error"]

    def test_failures_come_last_on_a_scrolling_terminal(self, tmp_path: Path) -> None:
        ended = screen.of(some(tmp_path))
        for height, first in ((100, "WRONG"), (10, "correct")):
            lines = [line.plain for line in screen.lines(ended, 120, height)]
            assert next(line for line in lines if line.startswith("  ")).split()[0] == first

    def test_several_subjects(self, tmp_path: Path) -> None:
        """Subjects without failures have one line each; failing ones come last with their rows."""
        verdicts = [verdict(subject=name, gate=gate) for name in ("bad", "good", "fine") for gate in ("a", "b")]
        verdicts += [
            verdict("wrong", subject="bad", gate="c"),
            verdict("skipped", subject="peer", reason="it is not here"),
        ]
        lines = render("text", [write(tmp_path / "run.jsonl", verdicts)]).splitlines()
        assert lines[:3] == [
            "fine · 2 ops judged · 2 correct · 2 cases",
            "good · 2 ops judged · 2 correct · 2 cases",
            "peer · not judged: it is not here",
        ]
        assert "bad · 3 ops judged · 1 wrong · 2 correct" in lines
        assert lines[-1] == "exit 1: 1 wrong (1 s)"

    def test_many_failures_fit_on_one_screen(self, tmp_path: Path) -> None:
        """The first failures have rows, the others are listed by name."""
        verdicts = [verdict("wrong", gate=f"g{n}", op=f"op_{n:02}", reason=REASON * 9) for n in range(90)]
        lines = [line.plain for line in screen.lines(screen.of(write(tmp_path / "run.jsonl", verdicts)), 120)]
        assert len(lines) < 60
        assert all(any(f"op_{n:02}" in line for line in lines) for n in range(90))

    @pytest.mark.parametrize(
        ("statuses", "fail_on", "words"),
        [
            (["correct", "correct"], "wrong", "exit 0: all 2 correct"),
            (["correct", "fragile"], "wrong", "exit 0: nothing wrong, 1 fragile (--strict fails on these)"),
            (["correct", "fragile", "imprecise"], "fragile", "exit 1: 1 fragile"),
            (["imprecise", "wrong"], "imprecise", "exit 1: 1 wrong, 1 imprecise"),
            (["correct", "error"], "wrong", "exit 4: 1 error"),
            (["skipped"], "wrong", "exit 3: nothing was judged"),
        ],
    )
    def test_the_last_line(self, tmp_path: Path, statuses: list[Status], fail_on: str, words: str) -> None:
        verdicts = [verdict(status, gate=f"g{n}") for n, status in enumerate(statuses)]
        text = render("text", [write(tmp_path / "run.jsonl", verdicts, fail_on=fail_on)])
        assert text.splitlines()[-1].partition(" (1 s)")[0] == words

    def test_an_unfinished_run_is_marked(self, tmp_path: Path) -> None:
        run = write(tmp_path / "run.jsonl", [verdict()], complete=False, planned=9)
        assert render("text", [run]).splitlines()[-1] == "incomplete: 1 of 9"

    def test_a_waived_failure_names_its_owner(self, tmp_path: Path) -> None:
        from gates.model import Waived  # noqa: PLC0415

        waived = Waived("fragile", "a known bug", "#12", "ada", "2027-01-01")
        text = render("text", [write(tmp_path / "run.jsonl", [verdict("waived", waived=waived)])])
        words = " ".join(text.split())
        assert "fragile, waived until 2027-01-01 by ada (#12): a known bug (1 of 1 case)" in words


class TestWrap:
    """Wrapping of text."""

    def test_a_sentence(self) -> None:
        """Lines have at most the given width; a longer word has its own line."""
        text = f"one two {BROKEN.sentence()} results/a/very/long/path three"
        lines = sentence(text, 20)
        assert " ".join(lines) == text
        assert [line for line in lines if len(line) > 20] == ["results/a/very/long/path"]

    def test_wide_letters_count_twice(self) -> None:
        assert sentence("好好 好好 好好", 9) == ["好好 好好", "好好"]

    def test_no_line_is_a_github_command(self) -> None:
        """GitHub's log interprets lines that start with `::` as commands."""
        assert wrapped(["a", "::error::x"], 3) == ["a", "\\::error::x"]

    def test_lines_beyond_the_limit_are_cut(self) -> None:
        """The last line ends with an ellipsis, within the width."""
        assert sentence("a bb ccc dddd eeeee ffffff", 8, 2) == ["a bb ccc", "dddd …"]


def test_progress_without_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress prints a line to stderr at most every ten seconds."""
    now = [0.0]
    monkeypatch.setattr("gates.report.progress.time.monotonic", lambda: now[0])
    lines = Lines(100)
    for second in range(60):
        now[0] = float(second)
        lines.advance("1 wrong")
    printed = capsys.readouterr()
    assert (printed.out, len(printed.err.splitlines())) == ("", 5)
    assert printed.err.splitlines()[0] == "judged 11 of 100 cases, 1 wrong (10 s)"
