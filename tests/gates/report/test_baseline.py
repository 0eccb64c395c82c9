"""What changed between two runs."""

import json
from pathlib import Path

import pytest
from runs_on_file import verdict, write
from typer.testing import CliRunner

from gates.cli.verbs import app
from gates.config.format_names import ReportFormat
from gates.model import ConfigurationError, Status
from gates.report.baseline import KINDS, compare
from gates.report.changes import changes_text
from gates.report.formats import render
from gates.results.records import PlanRecord


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ("correct", "correct", None),
        ("wrong", "wrong", None),
        ("correct", "wrong", "new failure"),
        ("unsupported", "error", "newly visible"),
        ("waived", "wrong", "new failure"),
        (None, "wrong", "newly visible"),
        (None, "correct", "new"),
        ("correct", None, "gone"),
        ("wrong", "correct", "fixed"),
        ("error", "correct", "fixed"),
        ("waived", "correct", "fixed"),
        ("wrong", "error", "changed"),
        ("correct", "imprecise", "new failure"),
        ("imprecise", "wrong", "worse"),
        ("wrong", "fragile", "better"),
        ("fragile", "correct", "fixed"),
        ("fragile", "timeout", "changed"),
        ("wrong", "waived", "changed"),
        ("correct", "unsupported", "changed"),
        ("wrong", "skipped", "changed"),
    ],
)
def test_kinds_of_changes(tmp_path: Path, before: Status | None, after: Status | None, kind: str | None) -> None:
    """A cell that was not judged and fails is newly visible; a failing cell is fixed only by a pass."""
    anchor = verdict(case="anchor")
    old = write(tmp_path / "old.jsonl", [anchor, *([verdict(before)] if before else [])])
    new = write(tmp_path / "new.jsonl", [anchor, *([verdict(after)] if after else [])])
    found = compare(old, new)
    assert [(c.kind, c.before, c.after) for c in found.changes] == ([(kind, before or "", after or "")] if kind else [])
    assert found.same == (1 if kind else 2)


def test_gates_and_subjects_outside_the_run_are_not_gone(tmp_path: Path) -> None:
    """A run of some gates counts the missing cells of the baseline without listing them."""
    old = write(tmp_path / "old.jsonl", [verdict(), verdict(gate="loss"), verdict(subject="other")])
    found = compare(old, write(tmp_path / "new.jsonl", [verdict()]))
    assert (found.changes, found.same, found.elsewhere) == ((), 1, 2)
    assert "no changes, 1 as before; 2 of gates or subjects that this run does not have" in changes_text(found)


@pytest.mark.parametrize(
    ("stopped", "words"),
    [
        ("old", "1 newly visible, 1 gone, 1 as before; 2 judged in one run only (old.jsonl is incomplete: 2 of 9)"),
        ("new", "1 newly visible, 2 new, 1 as before; 1 judged in one run only (new.jsonl is incomplete: 4 of 9)"),
    ],
)
def test_cases_missing_from_an_interrupted_run_are_unknown(tmp_path: Path, stopped: str, words: str) -> None:
    """Cases that the interrupted run did not reach are neither new nor gone, but failures are reported."""
    old, new = [verdict(case=name) for name in "ab"], [verdict(case=name) for name in "acd"]
    runs = {"old": old, "new": [*new, verdict("wrong", case="e")]}
    more = {name: {"complete": False, "planned": 9} if name == stopped else {} for name in runs}
    files = [write(tmp_path / f"{name}.jsonl", cells, **more[name]) for name, cells in runs.items()]
    found = compare(*files)
    assert changes_text(found).splitlines()[-1].strip() == words
    assert "e: not judged → wrong" in changes_text(found)


def test_cells_of_other_shards_are_not_gone(tmp_path: Path) -> None:
    """Compared with a complete run, a shard has no lost cells; merged shards are complete again."""
    old = write(tmp_path / "old.jsonl", [verdict(case=name) for name in "abc"])
    plan = PlanRecord(digest="0" * 64, cells=3, shard=2, shards=3)
    shard = compare(old, write(tmp_path / "new.jsonl", [verdict(case="b")], plan=plan))
    assert changes_text(shard).endswith("no changes, 1 as before; 2 judged in one run only (new.jsonl is shard 2 of 3)")


def test_changed_definitions_are_not_regressions(tmp_path: Path) -> None:
    """If a definition changed, a changed verdict is not evidence about the subject."""
    old = write(tmp_path / "old.jsonl", [verdict(), verdict("wrong", case="b")], definitions="1.1")
    new = write(tmp_path / "new.jsonl", [verdict("wrong"), verdict(case="b")], definitions="2.0")
    text = changes_text(compare(old, new))
    assert "the definitions changed from 1.1 to 2.0: a changed verdict may come from them" in text
    assert "2 changed, 0 as before" in text
    assert "failure" not in text


def test_changed_settings_are_reported(tmp_path: Path) -> None:
    """The report names the settings in which two runs differ."""
    old = write(tmp_path / "old.jsonl", [verdict()], quick=True, seed=3)
    text = changes_text(compare(old, write(tmp_path / "new.jsonl", [verdict()])))
    assert "seed was 3, is 0" in text
    assert "quick was True, is False" in text


@pytest.mark.parametrize("form", ["text", "md", "json", "github"])
def test_every_format_shows_the_changes(tmp_path: Path, form: ReportFormat) -> None:
    """`gates report NEW --baseline OLD` shows each kind of change, and rendering is deterministic."""
    old = [verdict(case=name) for name in "abc"] + [
        verdict("wrong", case="d"),
        verdict("wrong", case="e", reason="x|y"),
    ]
    new = [verdict("wrong", case="a"), verdict("unsupported", case="b"), verdict(case="d"), verdict(case="f")]
    write(tmp_path / "old.jsonl", old)
    run = write(tmp_path / "new.jsonl", new)
    arguments = ["report", str(run.path), "--baseline", str(tmp_path / "old.jsonl"), "--format", form]
    once, again = (CliRunner().invoke(app, arguments) for _ in range(2))
    assert once.exit_code == 0, once.output
    assert once.output == again.output
    if form == "json":
        kinds = {c["kind"] for c in json.loads(once.output)["changes"]["changes"]}
        assert kinds == set(KINDS) - {"worse", "better", "newly visible"}
        return
    lines = once.output.splitlines()
    for words in (
        "new failure: mine · kl.k3 · a: correct → wrong: kl error",
        "fixed: mine · kl.k3 · d: wrong → correct",
        "changed: mine · kl.k3 · b: correct → unsupported: why",
        "new: mine · kl.k3: 1 correct",
        "gone: mine · kl.k3: 1 correct, 1 wrong",
    ):
        assert any(line.strip().removeprefix("- ").startswith(words) for line in lines), words
    assert "1 new failure, 1 fixed, 1 changed, 1 new, 2 gone, 0 as before" in once.output


@pytest.mark.parametrize("form", ["jsonl", "junit"])
def test_a_format_that_cannot_show_changes_is_refused(tmp_path: Path, form: ReportFormat) -> None:
    """Otherwise the changes would be missing silently."""
    run = write(tmp_path / "run.jsonl", [verdict()])
    with pytest.raises(ConfigurationError, match="has no place for --baseline"):
        render(form, [run], compare(run, run))


def test_a_proof_cannot_be_a_baseline(tmp_path: Path) -> None:
    run = write(tmp_path / "run.jsonl", [verdict()])
    proof = write(tmp_path / "proof.jsonl", [verdict()], verb="prove")
    with pytest.raises(ConfigurationError, match="only runs of `gates check` are compared"):
        compare(proof, run)
