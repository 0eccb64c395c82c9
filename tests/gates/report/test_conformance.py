"""The conformance report: grades, findings and coverage of recorded libraries."""

from collections import defaultdict
from pathlib import Path

import pytest
from libraries import finding, grade, header

from gates.model import ConfigurationError
from gates.report import conformance
from gates.report.files import render_files
from gates.results.conformance_records import (
    BlankRecord,
    ConformanceResults,
    CoverageRecord,
    read_conformance,
)
from gates.subjects.peers import reproduce

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def library() -> ConformanceResults:
    """A library with an op of each sort, variants, blanks, two findings and a name without a row."""
    return ConformanceResults(
        header("fake"),
        [
            grade("fake", "policy_loss[grpo]", "correct").model_copy(update={"settings": ["a clip of 1e9 (3.0)"]}),
            grade("fake", "token_kl[k3]", "wrong", ("fake-k3",)),
            grade("fake@other", "token_kl[k3]", "departs"),
            grade("fake@rloo", "policy_loss[rloo, no ratio, token mean]", "correct"),
        ],
        [
            CoverageRecord(source="functions fake.kl", name="kl", status="departs", reason="fake-k3"),
            CoverageRecord(source="functions fake.kl", name="new", status="", reason=""),
        ],
        [finding("fake-k3", "bug"), finding("fake-choice", "convention", reproduced=None)],
        [
            BlankRecord(op="kto_loss", kind="not judged", why="a closure"),
            BlankRecord(op="gae", kind="refused", why="ValueError"),
        ],
    )


def test_the_report_shows_grades_findings_and_coverage(library: ConformanceResults) -> None:
    """Conventions are counted separately; a finding whose program did not run is marked; cells keep their columns."""
    text = conformance.render([library, ConformanceResults(header("also"))])
    assert "| `token_kl[k3]` | – | **wrong** 3/8 |" in text
    assert "`fake@other` token_kl[k3]: *departs*" in text
    assert "1 departures (1 bugs, 0 numeric, 0 traps) and, counted apart, 1 conventions; 1 of 2 were reproduced" in text
    assert text.index("### Bugs") < text.index("### Conventions")
    assert (
        "**fake-choice** (fake 1.2, `fake/kl.py:3`; wrong: `token_kl[k3]`; with a documented option) (not reproduced in this record)"
        in text
    )
    assert "| fake | 2 | judged 1 of 2 in scope | 0 | 1 | 0 | 0 | 0 | 0 | 0 | 0 |" in text


def test_cells_name_settings_compositions_and_reasons(library: ConformanceResults) -> None:
    """A composition stands in the row of its preset; what is chosen for a library or not judged is listed with why."""
    text = conformance.render([library])
    assert "| `policy_loss[grpo]` | correct 8† |" in text
    assert "| `policy_loss[rloo]` | correct 8 *as no ratio, token mean* |" in text
    assert "fake@rloo" not in text
    assert "| `kto_loss` | *not judged* |" in text
    assert "| `gae` | *refused* |" in text
    assert "- fake: a clip of 1e9 (3.0) (`policy_loss[grpo]`)" in text
    assert "- fake: not judged: `kto_loss`: a closure" in text


def test_findings_name_the_libraries_that_share_a_departure(library: ConformanceResults) -> None:
    other = ConformanceResults(header("other"), findings=[finding("other-k3", "bug")])
    text = conformance.render([library, other])
    assert "The same in: other." in text
    assert "The same in: fake." in text
    assert "The same in" not in conformance.render([library])


def test_findings_stand_on_the_page_of_their_library(library: ConformanceResults) -> None:
    """With pages the report counts them, and links to the page; its sharing of departures is that of all libraries."""
    other = ConformanceResults(header("other"), findings=[finding("other-k3", "bug")])
    text = conformance.render([library, other], "conformance")
    assert "| [fake](conformance/fake.md) | 1 | 0 | 0 | 1 |" in text
    assert "**fake-k3**" not in text
    page = conformance.render_library(library, [library, other])
    assert page.startswith("# fake 1.2: findings\n")
    assert "**fake-k3**" in page
    assert "The same in: other." in page
    assert "**other-k3**" not in page


def test_a_setting_of_every_op_lists_none(library: ConformanceResults) -> None:
    grades = [one.model_copy(update={"settings": ["shim: an empty module"]}) for one in library.grades]
    text = conformance.render([ConformanceResults(library.header, grades)])
    assert "- fake: shim: an empty module (`every op`)" in text


def test_the_screen_lists_ops_that_are_not_correct(
    library: ConformanceResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row for each op that is not correct, with the finding that explains it; problems last; no line too wide."""
    monkeypatch.setenv("COLUMNS", "80")
    lines = list(conformance.screen(library, ["fake-k3: its program does not show it: 1 is not 2"]))
    assert all(len(line) <= 80 for line in lines)
    text = "\n".join(lines)
    assert "1 wrong" in text
    assert "WRONG" in text
    assert "fake-k3" in text
    assert lines[-1].startswith("  ! fake-k3: its program")


def test_records_survive_a_round_trip(library: ConformanceResults, tmp_path: Path) -> None:
    """Line by line; the report is rendered from the file."""
    library.write(tmp_path / "fake.jsonl")
    assert read_conformance(tmp_path / "fake.jsonl") == library
    assert "".join(render_files([tmp_path / "fake.jsonl"], "md", None)).startswith("# Conformance")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda lines: lines[1:], "must be a conformance-header, is a grade"),
        (lambda lines: [*lines, lines[0]], "is a second header"),
        (lambda lines: [*lines, b'{"record": "speed"}\n'], "is no conformance record"),
        (lambda _: [], "no complete line"),
    ],
)
def test_an_invalid_record_names_its_line(
    library: ConformanceResults, tmp_path: Path, change: object, reason: str
) -> None:
    file = tmp_path / "fake.jsonl"
    library.write(file)
    file.write_bytes(b"".join(change(file.read_bytes().splitlines(keepends=True))))  # type: ignore[operator]
    with pytest.raises(ConfigurationError, match=reason):
        read_conformance(file)


def test_other_files_and_formats_are_refused(library: ConformanceResults, tmp_path: Path) -> None:
    """A conformance record is rendered alone, and not in a format of verdicts only."""
    library.write(tmp_path / "fake.jsonl")
    (tmp_path / "other.jsonl").write_text("{}\n")
    with pytest.raises(ConfigurationError, match="render them separately"):
        list(render_files([tmp_path / "fake.jsonl", tmp_path / "other.jsonl"], "md", None))
    with pytest.raises(ConfigurationError, match="--format junit does not apply"):
        list(render_files([tmp_path / "fake.jsonl"], "junit", None))
    with pytest.raises(ConfigurationError, match="--baseline does not apply"):
        list(render_files([tmp_path / "fake.jsonl"], "md", tmp_path / "fake.jsonl"))


def test_the_recorded_report_has_every_library_and_is_short() -> None:
    """results/CONFORMANCE.md, at most 300 lines; `make generate` writes it."""
    files = sorted((ROOT / "results" / "conformance").glob("*.jsonl"))
    assert len(files) >= 9, "`gates peers check --record` records every library"
    assert len((ROOT / "results" / "CONFORMANCE.md").read_text().splitlines()) <= 300


def test_every_recorded_grade_is_explained() -> None:
    """No op is graded below imprecise without a finding, nor wrong by numeric ones; no program refutes its finding."""
    files = sorted((ROOT / "results" / "conformance").glob("*.jsonl"))
    assert files
    for file in files:
        found = read_conformance(file)
        needed = [grade for grade in found.grades if grade.grade not in {*conformance.GOOD, "imprecise"}]
        assert [grade.op for grade in needed if not grade.findings] == [], file.name
        assert [f.id for f in found.findings if not f.reproduced] == [], file.name
        numeric = {f.id for f in found.findings if f.kind == "numeric" and f.use}  # older records have no `use`
        assert [g.op for g in needed if g.grade == "wrong" and numeric.issuperset(g.findings)] == [], file.name
        assert [row.name for row in found.coverage if not row.status] == [], file.name


def test_no_diagnosis_is_a_bug_here_and_a_choice_there() -> None:
    """What the check itself names alike in two libraries is charged alike."""
    kinds = {finding.id: finding.kind for _, finding in reproduce.known().values()}
    bugs: dict[str, set[bool]] = defaultdict(set)
    for file in sorted((ROOT / "results" / "conformance").glob("*.jsonl")):
        for record in read_conformance(file).grades:
            about = {kinds[name] == "bug" for name in record.findings if name in kinds}
            for part in record.computes.removeprefix("computes: ").split(" · ") if about else ():
                bugs[part] |= about
    unnamed = {"", "computes nothing that is known", "nothing that is known"}
    assert {part: found for part, found in bugs.items() if part not in unnamed and len(found) > 1} == {}
