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
        ("unsupported", "error", "new failure"),
        ("waived", "wrong", "new failure"),
        (None, "wrong", "new failure"),
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
def test_kinds(tmp_path: Path, before: Status | None, after: Status | None, kind: str | None) -> None:
    """A cell that fails and did not is a new failure, though it is new itself; only a pass is fixed."""
    anchor = verdict(case="anchor")
    old = write(tmp_path / "old.jsonl", [anchor, *([verdict(before)] if before else [])])
    new = write(tmp_path / "new.jsonl", [anchor, *([verdict(after)] if after else [])])
    found = compare(old, new)
    assert [(c.kind, c.before, c.after) for c in found.changes] == ([(kind, before or "", after or "")] if kind else [])
    assert found.same == (1 if kind else 2)


def test_other_gates_and_subjects_are_not_gone(tmp_path: Path) -> None:
    """A run of a part says how many cells of the baseline it does not have, and lists none of them."""
    old = write(tmp_path / "old.jsonl", [verdict(), verdict(gate="loss"), verdict(subject="other")])
    found = compare(old, write(tmp_path / "new.jsonl", [verdict()]))
    assert (found.changes, found.same, found.elsewhere) == ((), 1, 2)
    assert "no changes, 1 as before; 2 of gates or subjects that this run does not have" in changes_text(found)


@pytest.mark.parametrize(
    ("stopped", "words"),
    [
        ("old", "1 new failure, 1 gone, 1 as before; 2 judged in one run only (old.jsonl is incomplete: 2 of 9)"),
        ("new", "1 new failure, 2 new, 1 as before; 1 judged in one run only (new.jsonl is incomplete: 4 of 9)"),
    ],
)
def test_cases_that_a_stopped_run_did_not_reach_are_neither_new_nor_gone(
    tmp_path: Path, stopped: str, words: str
) -> None:
    """Nobody knows what it would have said; a failure is reported all the same, for hiding one is worse."""
    old, new = [verdict(case=name) for name in "ab"], [verdict(case=name) for name in "acd"]
    runs = {"old": old, "new": [*new, verdict("wrong", case="e")]}
    more = {name: {"complete": False, "planned": 9} if name == stopped else {} for name in runs}
    files = [write(tmp_path / f"{name}.jsonl", cells, **more[name]) for name, cells in runs.items()]
    found = compare(*files)
    assert changes_text(found).splitlines()[-1].strip() == words
    assert "e: not judged → wrong" in changes_text(found)


def test_a_shard_lacks_cells_of_its_plan(tmp_path: Path) -> None:
    """Held against a whole run it has lost nothing; merged shards are a whole run again."""
    old = write(tmp_path / "old.jsonl", [verdict(case=name) for name in "abc"])
    plan = PlanRecord(digest="0" * 64, cells=3, shard=2, shards=3)
    shard = compare(old, write(tmp_path / "new.jsonl", [verdict(case="b")], plan=plan))
    assert changes_text(shard).endswith("no changes, 1 as before; 2 judged in one run only (new.jsonl is shard 2 of 3)")


def test_other_definitions_are_no_regression(tmp_path: Path) -> None:
    """What is asked changed: a verdict that changed with it says nothing of the subject."""
    old = write(tmp_path / "old.jsonl", [verdict(), verdict("wrong", case="b")], definitions="1.1")
    new = write(tmp_path / "new.jsonl", [verdict("wrong"), verdict(case="b")], definitions="2.0")
    text = changes_text(compare(old, new))
    assert "the definitions changed from 1.1 to 2.0: a changed verdict may come from them" in text
    assert "2 changed, 0 as before" in text
    assert "failure" not in text


def test_other_settings_are_reported(tmp_path: Path) -> None:
    """Two runs that were not asked the same say what differs."""
    old = write(tmp_path / "old.jsonl", [verdict()], quick=True, seed=3)
    text = changes_text(compare(old, write(tmp_path / "new.jsonl", [verdict()])))
    assert "seed was 3, is 0" in text
    assert "quick was True, is False" in text


@pytest.mark.parametrize("form", ["text", "md", "json", "github"])
def test_every_format_shows_them(tmp_path: Path, form: ReportFormat) -> None:
    """`gates report NEW --baseline OLD`: each kind of change is there, and rendering twice gives the same bytes."""
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
        assert kinds == set(KINDS) - {"worse", "better"}
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
    """Better than leaving them out without a word."""
    run = write(tmp_path / "run.jsonl", [verdict()])
    with pytest.raises(ConfigurationError, match="has no place for --baseline"):
        render(form, [run], compare(run, run))


def test_a_proof_is_no_baseline(tmp_path: Path) -> None:
    run = write(tmp_path / "run.jsonl", [verdict()])
    proof = write(tmp_path / "proof.jsonl", [verdict()], verb="prove")
    with pytest.raises(ConfigurationError, match="only runs of `gates check` are compared"):
        compare(proof, run)
