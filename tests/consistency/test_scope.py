"""The public names of libraries: their declared rows against the records, the definitions, and the committed list."""

import re
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

from gates.families.trainer.step_cases import CASES
from gates.registry import load
from gates.report.ops import ops_of
from gates.results.conformance_records import ConformanceResults, CoverageRecord, read_conformance
from gates.subjects.peers import declared, environments
from gates.subjects.peers.scope import ASKED, KINDS_OUTSIDE, STATUSES, named_op, problem, scope

pytestmark = pytest.mark.fast

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "results" / "conformance"
RECORDS = {path.stem: read_conformance(path) for path in sorted(FOLDER.glob("*.jsonl"))}
GRADED = {(grade.subject, grade.op) for record in RECORDS.values() for grade in record.grades}
STEP = re.compile(r"(?:training_step|resolve_config)\[\w+\]")


def rows(status: str) -> list[tuple[str, CoverageRecord]]:
    return [(peer, row) for peer, record in RECORDS.items() for row in record.coverage if row.status == status]


@pytest.mark.parametrize("peer", RECORDS)
def test_recorded_rows_are_the_declared_ones(peer: str) -> None:
    """`gates peers coverage --record` renews them; the names come from the installed package."""
    sources = {source.source: source for source in declared.conformance(environments.peers()[peer]).coverage}
    recorded: dict[str, list[CoverageRecord]] = defaultdict(list)
    for row in RECORDS[peer].coverage:
        recorded[row.source].append(row)
    assert set(recorded) == set(sources)
    stale = [
        row.name for row in RECORDS[peer].coverage if sources[row.source].row(row.name) != (row.status, row.reason)
    ]
    assert not stale, f"run `gates peers coverage {peer} --record` and `make generate`"


def _history() -> dict[str, list[dict[str, object]]]:
    return tomllib.loads((FOLDER / "scope.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("peer", RECORDS)
def test_a_changed_list_of_what_is_in_scope_has_a_reason(peer: str) -> None:
    """The share of judged names means something only if what it is a share of does not change silently."""
    now, entries = scope(RECORDS[peer].coverage), _history()[peer]
    last = entries[-1]
    assert (last["names"], last["digest"]) == (now.names, now.digest), (
        f"the list of what is in scope of {peer} changed: add an entry to results/conformance/scope.toml with "
        f'names = {now.names}, digest = "{now.digest}", and the reason in `why`; say it in CHANGELOG.md too'
    )
    reasons = [str(entry["why"]) for entry in entries]
    assert all(len(why.split()) >= 4 for why in reasons)
    assert len(set(reasons)) == len(reasons)


def test_what_is_judged_names_an_op_with_a_grade() -> None:
    graded = {peer: {grade.op.partition("[")[0] for grade in record.grades} for peer, record in RECORDS.items()}
    judged = rows("judged")
    assert judged
    assert [row.name for peer, row in judged if not graded[peer] & set(re.findall(r"\w+", row.reason))] == []


def test_what_is_judged_elsewhere_has_a_grade_there() -> None:
    named = {named_op(row.status, row.reason) for _, row in rows("judged elsewhere")}
    assert named
    assert named - GRADED == set()


def test_what_is_said_to_be_judged_by_a_training_step_is() -> None:
    said = {(peer, op) for peer, row in rows("judged") for op in STEP.findall(row.reason)}
    assert said
    assert said - GRADED == set()


def test_what_needs_a_training_step_is_asked_by_no_case() -> None:
    """Where a trainer's updates are judged, the reason names what the cases leave out, and it is none of their settings."""
    asked = {(case.conventions["trainer"], name) for case in CASES for name in case.make.keywords["settings"]}
    waiting = [(peer, row, named_op(row.status, row.reason)[1]) for peer, row in rows("needs a training step")]
    assert waiting
    for peer, row, op in waiting:
        trainer = op.partition("[")[2].rstrip("]")
        if (peer, op) in GRADED:
            assert row.reason != op, f"{peer}: {row.name} is judged by {op}"
            assert (trainer, row.name) not in asked, f"{peer}: {row.name} is asked by {op}"


def test_what_is_not_judged_yet_names_an_op() -> None:
    ops = {named_op(row.status, row.reason)[1].partition("[")[0] for _, row in rows("not judged yet")}
    assert ops
    assert ops - set(ops_of(load().gates.values())) == set()


def _plain(name: str) -> str:
    return name.lower().replace("-", "_").replace(" ", "_")


def test_what_has_no_definition_yet_is_not_defined() -> None:
    """No heading of the definitions and no name between backticks there is such a name or its reason."""
    text = (ROOT / "docs" / "definitions.md").read_text(encoding="utf-8")
    defined = {
        _plain(name) for name in (*re.findall(r"`([\w+-]+)`", text), *re.findall(r"^#+ (.*)$", text, re.MULTILINE))
    }
    assert {"grpo", "gae", "label_smoothing"} <= defined
    undefined = {_plain(words) for _, row in rows("no definition yet") for words in (row.name, row.reason)}
    assert undefined & defined == set()


def test_every_kind_of_what_is_out_of_scope_is_used() -> None:
    assert {row.reason for _, row in rows("out of scope")} == set(KINDS_OUTSIDE)


def test_the_share_counts_what_is_asked_of_what_is_in_scope() -> None:
    """A name that is out of scope counts nowhere; the digest is of names, not of how far they are judged."""

    def library(*statuses: str) -> ConformanceResults:
        covered = [
            CoverageRecord(source="functions x", name=f"f{number}", status=status, reason="")
            for number, status in enumerate(statuses)
        ]
        return ConformanceResults(RECORDS["trl"].header, coverage=covered)

    here, later = (
        scope(library(*statuses).coverage) for statuses in (tuple(STATUSES), (*tuple(STATUSES)[:-2], "judged"))
    )
    assert str(here) == f"judged {len(ASKED)} of {len(STATUSES) - 1} in scope"
    assert (later.names, later.digest) == (here.names, here.digest)
    assert (
        scope(library("judged", "out of scope").coverage).digest != scope(library("judged", "judged").coverage).digest
    )


@pytest.mark.parametrize(
    ("status", "reason", "wrong"),
    [
        ("out of scope", "too hard", "is no kind of what is out of scope"),
        ("judged elsewhere", "in another library", "must be PEER: OP"),
        ("needs a training step", "needs a model", "must be training_step"),
        ("not judged yet", "policy_loss", "must be OP: why"),
        ("no definition yet", " ".join(["word"] * 13), "has 13 words, must have at most 12"),
        ("out of scope", "logging", ""),
        ("judged elsewhere", "transformers: filtered_logprobs[hf]", ""),
        ("needs a training step", "training_step[grpo]: dropout", ""),
    ],
)
def test_a_reason_can_be_checked(status: str, reason: str, wrong: str) -> None:
    said = problem(status, reason)  # type: ignore[arg-type]  # as the declaration has it
    assert (wrong in said) if wrong else not said
