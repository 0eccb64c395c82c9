"""What a run's end means: exit codes, last line, requirements."""

from collections import Counter
from pathlib import Path

import pytest

from gates.model import ConfigurationError, Grade, Status, Subject, Verdict
from gates.report.plain import cell
from gates.run import session
from gates.run.session import Requirement, Tally


def verdict(status: Status, gate: str = "kl.k3", subject: str = "mine") -> Verdict:
    return Verdict(gate, subject, "c", 0, status, "", "")


class TestTally:
    """The full count and the exit code."""

    @pytest.mark.parametrize(
        ("counts", "code", "line"),
        [
            ({"correct": 3}, 0, "3 correct, 0 wrong"),
            (
                {"correct": 15, "wrong": 1, "error": 2, "skipped": 8, "unsupported": 3, "waived": 1},
                1,
                "15 correct, 1 wrong, 2 errors, 8 skipped, 3 unsupported, 1 waived",
            ),
            ({"correct": 1, "error": 1}, 4, "1 correct, 0 wrong, 1 error"),
            ({"skipped": 2}, 3, "0 correct, 0 wrong, 2 skipped"),
            ({"unsupported": 2}, 3, "0 correct, 0 wrong, 2 unsupported"),
            ({}, 3, "0 correct, 0 wrong"),
            ({"correct": 1, "unsupported": 2}, 0, "1 correct, 0 wrong, 2 unsupported"),
        ],
    )
    def test_counts(self, counts: dict[Status, int], code: int, line: str) -> None:
        """0 all held, 1 a subject failed, 4 the judge did, 3 nothing measured; correct and wrong are always said."""
        tally = Tally(Counter(counts))
        assert (tally.exit_code(), tally.line()) == (code, line)

    def test_a_required_skip_fails_a_passing_run(self) -> None:
        """A hole in what was required is exit code 1."""
        assert Tally(Counter({"correct": 1, "skipped": 1}), [verdict("skipped")]).exit_code() == 1


class TestRequirement:
    """`--require SUBJECT[:GATES]`."""

    @pytest.mark.parametrize(
        ("text", "status", "unmet"),
        [
            ("mine", "skipped", True),
            ("mine", "unsupported", False),
            ("mine", "wrong", False),
            ("mine:kl", "unsupported", True),
            ("mine:kl.*", "skipped", True),
            ("mine:loss", "skipped", False),
            ("other", "skipped", False),
        ],
    )
    def test_a_requirement_decides_which_statuses_fail(self, text: str, status: Status, unmet: bool) -> None:
        """A subject alone must not be skipped; named gates must not be unsupported either."""
        assert Requirement.parse(text, ["mine", "other"]).unmet_by(verdict(status)) is unmet

    def test_a_subject_that_is_not_judged_cannot_be_required(self) -> None:
        """A requirement of a subject outside the run is a mistake, said with the ones that are in."""
        with pytest.raises(ConfigurationError, match="'none' is not in this run; it judges mine"):
            Requirement.parse("none", ["mine"])


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({"correct": 3}, "correct 3"),
        ({"correct": 2, "unsupported": 1}, "correct 2 (+1)"),
        ({"correct": 2, "wrong": 1}, "WRONG 1 of 3"),
        ({"wrong": 2, "error": 1}, "ERROR 1 of 3"),
        ({"wrong": 3, "correct": 1, "unsupported": 7, "skipped": 1}, "WRONG 3 of 4 (+8)"),
        ({"skipped": 2}, "skipped"),
        ({}, "·"),
    ],
)
def test_a_cell_of_the_table_shows_the_worst(counts: dict[Status, int], words: str) -> None:
    """A table cell never hides a failure or an error behind passes, and what was not judged is no part of the count."""
    assert cell(Counter(counts))[1] == words


def test_a_digest_distinguishes_versions_of_a_file(tmp_path: Path) -> None:
    """Of subjects that are files of somebody else; the commit of the judge identifies those that are shipped."""
    file, other = tmp_path / "mine.py", tmp_path / "numpy.py"
    other.touch()
    subjects = [Subject("mine", file, "mine"), Subject("numpy", other, "numpy"), Subject("gone", tmp_path / "x", "x")]
    file.write_text("OPS = {}\n")
    before = session.file_digests(subjects, {"numpy"})
    assert list(before) == ["mine"]
    assert before == session.file_digests(subjects, {"numpy"})
    file.write_text("OPS = {}  # mended\n")
    assert session.file_digests(subjects, {"numpy"}) != before


@pytest.mark.parametrize(
    ("fail_on", "counts", "code"),
    [
        ("wrong", {"fragile": 1, "imprecise": 1}, 0),
        ("fragile", {"fragile": 1}, 1),
        ("fragile", {"imprecise": 1}, 0),
        ("imprecise", {"imprecise": 1}, 1),
        ("wrong", {"timeout": 1}, 1),
        ("wrong", {"wrong": 1, "error": 1}, 1),
        ("wrong", {"not asked": 1}, 3),
    ],
)
def test_fail_on_fails_the_run_from_this_grade_upwards(fail_on: Grade, counts: dict[Status, int], code: int) -> None:
    """A timeout always does; what was not asked was not measured."""
    assert Tally(Counter(counts), fail_on=fail_on).exit_code() == code
