"""What differs between two records of a library."""

import json

import pytest
from libraries import finding, grade, header

from gates.report import library_changes
from gates.results.conformance_records import ConformanceResults, CoverageRecord


def row(name: str, status: str = "judged") -> CoverageRecord:
    return CoverageRecord(source="functions fake.kl", name=name, status=status, reason="token_kl")


def record(version: str, **parts: list[object]) -> ConformanceResults:
    return ConformanceResults(header("fake").model_copy(update={"version": version}), **parts)  # type: ignore[arg-type]


BEFORE = record(
    "1.2",
    grades=[
        grade("fake", "token_kl[k3]", "wrong", ("fake-k3",)),
        grade("fake", "gae", "correct"),
        grade("fake", "full_kl", "correct"),
        grade("fake", "policy_loss[grpo]", "correct"),
    ],
    findings=[finding("fake-k3", "bug"), finding("fake-gone", "trap"), finding("fake-back", "bug", reproduced=False)],
    coverage=[row("kl"), row("old"), row("moved")],
)
AFTER = record(
    "1.3",
    grades=[
        grade("fake", "token_kl[k3]", "correct"),
        grade("fake", "gae", "fragile"),
        grade("fake", "kto_loss", "correct"),
        grade("fake", "policy_loss[grpo]", "correct"),
    ],
    findings=[finding("fake-k3", "bug", reproduced=False), finding("fake-new", "trap"), finding("fake-back", "bug")],
    coverage=[row("kl"), row("new", ""), row("moved", "departs")],
)


def test_each_difference_stands_in_its_group() -> None:
    changes = library_changes.compared(BEFORE, AFTER)
    ops = {name: [getattr(entry, "op", "") for entry in entries] for name, entries in changes.groups().items()}
    assert (ops["worse"], ops["better"]) == (["gae"], ["token_kl[k3]"])
    assert (ops["newly_judged"], ops["no_longer_judged"]) == (["kto_loss"], ["full_kl"])
    assert [entry.id for entry in changes.no_longer_reproduced] == ["fake-k3"]
    assert [entry.id for entry in changes.reproduced_again] == ["fake-back"]
    assert [entry.id for entry in changes.findings_added] == ["fake-new"]
    assert [entry.id for entry in changes.findings_removed] == ["fake-gone"]
    assert [entry.name for entry in changes.names_added] == ["new"]
    assert [entry.name for entry in changes.names_removed] == ["old"]
    assert [(entry.before, entry.after) for entry in changes.statuses_changed] == [("judged", "departs")]


def test_the_reason_is_that_of_the_worse_grade() -> None:
    changes = library_changes.compared(BEFORE, AFTER)
    assert changes.better[0].why == "fake-k3"
    assert changes.worse[0].why == "computes: another"


def test_another_version_alone_is_no_change() -> None:
    again = record("1.3", grades=BEFORE.grades, findings=BEFORE.findings, coverage=BEFORE.coverage)  # type: ignore[list-item]
    changes = library_changes.compared(BEFORE, again)
    assert not changes
    lines = list(library_changes.screen(changes))
    assert lines == ["fake 1.2 (2026-11-25) → 1.3 (2026-11-25)", "nothing changed"]


def test_a_program_that_was_not_run_says_nothing() -> None:
    """A quick check runs one program in four."""
    quick = record("1.3", findings=[finding("fake-k3", "bug", reproduced=None)])
    changes = library_changes.compared(record("1.2", findings=[finding("fake-k3", "bug")]), quick)
    assert not changes.no_longer_reproduced


def test_the_screen_has_one_page_however_much_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few entries of each group; no line is too wide, and what is left out is counted."""
    monkeypatch.setenv("COLUMNS", "80")
    many = record("2.0", coverage=[row(f"name_{number}") for number in range(500)])
    ops = [grade("fake", f"policy_loss[{number}]", "wrong", ("fake-k3",) * 20) for number in range(40)]
    was = record("1.2", grades=[one.model_copy(update={"grade": "correct"}) for one in ops])
    changes = library_changes.compared(was, ConformanceResults(many.header, ops, many.coverage))
    lines = list(library_changes.screen(changes))
    assert len(lines) <= 50
    assert all(len(line) <= 80 for line in lines)
    assert "  32 more; --json has all" in lines
    assert any(line.endswith("476 more") for line in lines)
    assert lines[-1] == "40 grades that became worse · 500 public names added"


def test_other_definitions_and_quick_records_are_said() -> None:
    newer = BEFORE.header.model_copy(update={"definitions": "3.0", "quick": True})
    lines = list(library_changes.screen(library_changes.compared(BEFORE, ConformanceResults(newer))))
    assert "definitions 2.0 → 3.0: a changed grade may come from them" in lines
    assert any(line.startswith("one record has the quick cases alone") for line in lines)


def test_the_document_has_all_and_is_json() -> None:
    found = json.loads(json.dumps(library_changes.document(library_changes.compared(BEFORE, AFTER))))
    assert found["changed"] is True
    assert (found["before"]["version"], found["after"]["version"]) == ("1.2", "1.3")
    assert found["worse"] == [
        {"subject": "fake", "op": "gae", "before": "correct", "after": "fragile", "why": "computes: another"}
    ]
    assert set(library_changes.TITLES) <= set(found)
