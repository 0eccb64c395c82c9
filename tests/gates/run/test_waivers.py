"""Waivers: what they excuse, and when they fail the run themselves."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from command_line import RIGHT, here
from doubles import make_gate
from runs_on_file import write

from gates.cli import project
from gates.model import ConfigurationError, Status, Subject, Verdict
from gates.results.jsonl import read as read_results
from gates.results.records import PlanRecord, SummaryRecord, Waiver, WaiverRecord, verdict_record
from gates.run.merge import merge
from gates.run.shards import digest
from gates.run.waivers import Extent, Waivers, read

TODAY = date(2026, 11, 21)
GOOD: dict[str, Any] = {
    "id": "kl.k3",
    "subject": "mine",
    "reason": "known",
    "issue": "#12",
    "owner": "ada",
    "expires": date(2026, 12, 31),
}
ENTRY = """
[[waivers]]
id = "{id}"
subject = "mine"
reason = "one degree of freedom too many"
issue = "#12"
owner = "ada"
expires = {expires}
"""


def waivers(*, whole: bool = True, **changes: Any) -> Waivers:
    return Waivers([WaiverRecord(**{**GOOD, **changes}, whole=whole)], TODAY)


def verdict(status: Status, gate: str = "kl.k3", subject: str = "mine", case: str = "some") -> Verdict:
    return Verdict(gate, subject, case, 0, status, "bound", "kl error is 9, must be <= 4")


class TestApply:
    """Which verdicts become `waived`."""

    @pytest.mark.parametrize(
        ("changes", "status", "wanted"),
        [
            ({}, "wrong", "waived"),
            ({}, "error", "waived"),
            ({}, "correct", "correct"),
            ({}, "unsupported", "unsupported"),
            ({}, "skipped", "skipped"),
            ({"subject": "other"}, "wrong", "wrong"),
            ({"id": "kl"}, "wrong", "waived"),
            ({"id": "k"}, "wrong", "waived"),
            ({"id": "loss"}, "wrong", "wrong"),
            ({"id": "kl.*"}, "wrong", "waived"),
            ({"case": "other"}, "wrong", "wrong"),
            ({"case": "some"}, "wrong", "waived"),
            ({"case": "s*"}, "wrong", "waived"),
            ({"expires": TODAY}, "wrong", "waived"),
            ({"expires": date(2026, 11, 20)}, "wrong", "wrong"),
        ],
    )
    def test_a_failure_that_it_covers(self, changes: dict[str, Any], status: Status, wanted: Status) -> None:
        """Failures and errors of the named gate, case and subject, until the last day; nothing else changes."""
        assert waivers(**changes).apply(verdict(status)).status == wanted

    def test_the_verdict_keeps_its_reason_and_status(self) -> None:
        """The record says what would be without the waiver, and who answers."""
        found = waivers().apply(verdict("wrong"))
        assert found.reason == "kl error is 9, must be <= 4"
        assert found.waived is not None
        assert (found.waived.status, found.waived.owner, found.waived.expires) == ("wrong", "ada", "2026-12-31")


class TestProblems:
    """What fails the run."""

    @pytest.mark.parametrize(
        ("changes", "statuses", "words"),
        [
            ({}, ["wrong"], ""),
            ({}, ["correct", "error"], ""),
            ({}, ["skipped"], ""),
            (
                {},
                ["correct", "correct", "unsupported"],
                "no longer needed, since nothing it names fails (2 correct, 1 unsupported)",
            ),
            ({}, ["unsupported"], "no longer needed"),
            ({"id": "kl.k33"}, ["wrong"], "matches no verdict of this run, did you mean 'kl.k3'"),
            ({"subject": "mime"}, ["wrong"], "matches no verdict of this run, did you mean 'mine'"),
            ({"case": "none"}, ["wrong"], "matches no verdict of this run: correct"),
            ({"expires": date(2026, 11, 20)}, ["wrong"], "(ada, #12) expired on 2026-11-20"),
            ({"expires": date(2026, 11, 20)}, [], "expired"),
            ({"whole": False}, ["correct"], ""),
            ({"whole": False}, [], ""),
        ],
    )
    def test_a_waiver_that_is_stale(self, changes: dict[str, Any], statuses: list[Status], words: str) -> None:
        """Expired, unmatched, or no longer needed; a run of a part of what it names tells only the first."""
        found = waivers(**changes)
        for status in statuses:
            found.apply(verdict(status))
        said = "\n".join(found.problems())
        assert words in said
        assert bool(said) == bool(words)

    def test_a_shard_reports_only_expired_waivers(self) -> None:
        """Whether the others are needed is for all shards together."""
        shard, expired = waivers(), waivers(expires=date(2026, 1, 1))
        shard.partial = expired.partial = True
        assert shard.problems() == []
        assert "expired" in expired.problems()[0]


@pytest.mark.parametrize(
    ("waiver", "run", "whole"),
    [
        ({}, {}, True),
        ({}, {"gates": ("kl.k1",)}, False),
        ({"id": "kl.*"}, {"gates": ("kl.k3",)}, False),
        ({"id": "kl.*"}, {}, True),
        ({}, {"quick": True}, False),
        ({"case": "some"}, {"quick": True}, True),
        ({"subject": "other"}, {"subjects": ("mine",)}, False),
        ({"subject": "numpy"}, {}, False),
        ({"subject": "nobody"}, {}, True),
        ({"id": "nothing"}, {}, True),
        ({"id": "nothing"}, {"gates": ("kl.k1",)}, False),
        ({"id": "nothing", "subject": "mine"}, {"subjects": ("mine",)}, True),
    ],
)
def test_whether_a_run_judges_all_that_a_waiver_names(waiver: dict[str, Any], run: dict[str, Any], whole: bool) -> None:
    """A selection, quick cases or another subject leave it open; a full run reports a name that nothing has."""
    case = make_gate().cases[0]
    slow = type(case)("slow", case.make)
    known = {name: make_gate(id=name, cases=(case, slow)) for name in ("kl.k1", "kl.k3")}
    everyone = {name: Subject(name, Path("x.py"), "x") for name in ("mine", "other")}
    extent = Extent.of(
        known.values(),
        [known[name] for name in run.get("gates", known)],
        everyone.values(),
        [everyone[name] for name in run.get("subjects", everyone)],
        {"numpy": everyone["mine"]},
        quick=run.get("quick", False),
    )
    assert extent.whole(Waiver(**{**GOOD, **waiver})) is whole


class TestFile:
    """gates.toml."""

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            (
                ENTRY.format(id="kl", expires="2026-12-01") + 'isue = "x"',
                "waiver 1 has no 'isue', did you mean 'issue'",
            ),
            ('[[waivers]]\nid = "kl"', "waiver 1 must have 'subject'"),
            (ENTRY.format(id="kl", expires='"soon"'), "waiver 1: expires: "),
            (ENTRY.format(id="", expires="2026-12-01"), "waiver 1: id: "),
            ("[[waiver]]\n", "has no 'waiver', did you mean 'waivers'"),
            ("waivers = 3", "must be tables"),
            ("[[", "is no TOML"),
        ],
    )
    def test_a_user_error_is_one_sentence(self, tmp_path: Path, text: str, words: str) -> None:
        """It names the file, the entry, what was found and the nearest name."""
        (tmp_path / "gates.toml").write_text(text)
        with pytest.raises(ConfigurationError) as error:
            read(tmp_path / "gates.toml")
        assert words in str(error.value)
        assert str(tmp_path / "gates.toml") in str(error.value)

    def test_a_named_file_must_exist(self, tmp_path: Path) -> None:
        """Without `--waivers` no file is none; with it, it is a mistake."""
        with pytest.raises(ConfigurationError, match="cannot read"):
            read(tmp_path / "gates.toml")


class TestRun:
    """`gates check` with a gates.toml at the project's root."""

    GATE = "advantages.matches-definition"

    def run(self, folder: Path, expires: str, code: str = RIGHT.replace("ddof=ddof", "ddof=0")) -> tuple[int, str, Any]:
        (folder / "mine.py").write_text(code)
        (folder / "gates.toml").write_text(ENTRY.format(id=self.GATE, expires=expires))
        (folder / "below").mkdir()
        command = ["check", self.GATE, "--subject", "../mine.py", "--out", "o"]
        done = here(*command, cwd=folder / "below")
        (file,) = (folder / "below" / "o").glob("*.jsonl")
        return done.returncode, " ".join(done.stdout.split()), read_results(file)

    def test_a_waived_failure_is_judged_and_shown_and_fails_nothing(self, tmp_path: Path) -> None:
        """The gate runs, its evidence and reason stay, the count says waived, and the exit code is 0."""
        code, text, run = self.run(tmp_path, "2999-12-31")
        assert code == 0, text
        found = [v for v in run.verdicts if v.status == "waived"]
        assert found
        assert text.endswith("exit 0: nothing wrong, 1 waived (--strict fails on these)")
        assert {v.waived.status for v in found} <= {"wrong", "hardening"}
        assert all(v.evidence and "must be <=" in v.reason for v in found)
        assert "waived until 2999-12-31 by ada" in text
        assert run.header.waivers[0].owner == "ada"

    def test_an_expired_waiver_excuses_nothing(self, tmp_path: Path) -> None:
        """The failures count, and a line says that it has expired."""
        code, text, run = self.run(tmp_path, "2020-01-01")
        assert code == 1
        assert not any(v.status == "waived" for v in run.verdicts)
        assert f"the waiver of {self.GATE} for mine (ada, #12) expired on 2020-01-01" in text
        assert run.summary.problems

    def test_a_needless_waiver_fails_a_passing_run(self, tmp_path: Path) -> None:
        """Everything passes, and the exit code is 1, with the line that says what to remove."""
        code, text, run = self.run(tmp_path, "2999-12-31", RIGHT)
        assert code == 1
        assert "is no longer needed, since nothing it names fails" in text
        assert run.summary.exit_code == 1


def test_the_clock_is_the_callers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a waiver has expired is decided by the day that the run is given."""
    (tmp_path / "mine.py").write_text(RIGHT)
    (tmp_path / "gates.toml").write_text(ENTRY.format(id="double", expires="2026-12-01"))
    monkeypatch.chdir(tmp_path)
    from gates.registry import load  # noqa: PLC0415  heavy; for this test only

    for day, expired in ((date(2026, 12, 1), False), (date(2026, 12, 2), True)):
        asked = project.request(load(), project.CommandLine(subject=["./mine.py"], quick=True), today=day)
        assert ("expired" in " ".join(asked.waivers.problems())) is expired


@pytest.mark.parametrize(
    ("second", "words"),
    [("wrong", ""), ("correct", "is no longer needed, since nothing it names fails (2 correct)")],
    ids=["needed by one shard", "by none"],
)
def test_shards_tell_together_whether_a_waiver_is_needed(tmp_path: Path, second: Status, words: str) -> None:
    """The first shard passes and says nothing; the merged run fails if the waiver was needed by none."""
    names = [("kl.k3", "mine", name) for name in ("a", "b")]
    entries = list(waivers().entries)
    shards = []
    for index, (name, status) in enumerate(zip(names, ("correct", second), strict=True), 1):
        judged = waivers().apply(verdict(status, case=name[2]))
        plan = PlanRecord(digest=digest(names), cells=2, shard=index, shards=2)
        line = verdict_record(judged)
        shards.append(write(tmp_path / f"{index}.jsonl", [line], plan=plan, waivers=entries))
    summary = merge(shards)[-1]
    assert isinstance(summary, SummaryRecord)
    assert summary.exit_code == (1 if words else 0)
    assert words in " ".join(summary.problems)
    assert bool(summary.problems) == bool(words)
