"""The conformance page: matrix, what is meant by GRPO, coverage, and the records that it is rendered from."""

from collections import defaultdict
from pathlib import Path

import pytest
from libraries import finding, grade, header

from gates.model import ConfigurationError
from gates.report.conformance import document, words
from gates.report.conformance.screen import screen
from gates.report.files import render_files
from gates.results.common_cases import CommonCases, read_common
from gates.results.conformance_records import (
    BlankRecord,
    ConformanceResults,
    CoverageRecord,
    read_conformance,
)
from gates.results.library_facts import LibraryFacts, read_facts
from gates.subjects.peers import reproduce

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "results" / "conformance"


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
            BlankRecord(op="preference_loss[ipo]", kind="refused", why="ValueError"),
        ],
    )


def rendered(*libraries: ConformanceResults, facts: dict[str, LibraryFacts] | None = None) -> str:
    """Return the page without an appendix."""
    return document.render(libraries, facts or {}, {})


def test_the_page_has_cells_findings_and_coverage(library: ConformanceResults) -> None:
    """Conventions are counted separately; cells keep their columns, and numbers lead to the library's page."""
    text = rendered(library, ConformanceResults(header("also")))
    links = "[1](conformance/fake.md#fake-k3) [2](conformance/fake.md#fake-choice)"
    assert "| **GRPO** | – | correct<br>8 of 9 asked, calls† |" in text
    assert f"| **KL** | – | **wrong** with a documented option<br>16 of 18 asked, calls<br>{links} |" in text
    assert "| **RLOO** | – | correct<br>as *no ratio, token mean*<br>8 of 9 asked, calls |" in text
    assert "| **KTO** | – | [*not judged*](conformance/fake.md#not-judged) |" in text
    assert "| **IPO** | – | [*refused*](conformance/fake.md#not-judged) |" in text
    assert "1 departures (1 bugs, 0 numeric, 0 traps) and, counted apart, 1 conventions; 1 of 2 were reproduced" in text
    assert "| fake | 2 | judged 1 of 2 in scope | 0 | 1 | 0 | 0 | 0 | 0 | 0 | 0 |" in text


def test_grpo_axis_by_axis(library: ConformanceResults) -> None:
    """From the settings in force where an update was judged, else from the composition that its calls are."""
    step = ConformanceResults(header("step"), [grade("step", "training_step[grpo]", "correct")])
    settings = {"algorithm": "dapo", "epsilon_low": 0.2, "epsilon_high": 0.28, "beta": 0.0, "baseline": "mean"}
    facts = {"step": LibraryFacts(version="1", trainers={"grpo": settings}, named={})}
    text = rendered(library, step, facts=facts)
    assert (
        "| [step](conformance/step.md) | token ratio | clip 0.2, 0.28 | token mean | none | less the group's mean | updates |"
        in text
    )
    assert (
        "| [fake](conformance/fake.md) | token ratio | clip | row mean | given by the caller | given by the caller | calls |"
        in text
    )
    assert "as *token mean, no KL*<br>8 of 9 asked, updates" in text


def test_the_appendix_compares_common_cases(library: ConformanceResults) -> None:
    common = {
        "gae": CommonCases(cases=4, libraries={"a": {"fragile": 1, "hardening": 2}, "b": {}}),
        "kto_loss": CommonCases(cases=3, libraries={"a": {"wrong": 1}, "b": {}}),
        "full_kl": CommonCases(cases=2, libraries={"a": {}, "b": {}}),
    }
    text = document.render([library], {}, common)
    assert "| `gae` | 4 | △ 1 ▫ 2 | holds |" in text
    assert "| `kto_loss` | 3 | see above | holds |" in text
    assert "Ops whose common cases all libraries hold: `full_kl` (2)." in text


def test_a_finding_about_no_row_is_linked_nevertheless(library: ConformanceResults) -> None:
    library.findings.append(finding("fake-lost", "bug").model_copy(update={"ops": []}))
    assert "Findings about no row: [fake-lost](conformance/fake.md#fake-lost)." in rendered(library)


def test_the_screen_lists_ops_that_are_not_correct(
    library: ConformanceResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row for each op that is not correct, with the finding that explains it; problems last; no line too wide."""
    monkeypatch.setenv("COLUMNS", "80")
    lines = list(screen(library, ["fake-k3: its program does not show it: 1 is not 2"]))
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


@pytest.mark.parametrize("text", ["[]", "{", '{"trl": {"version": 1}}', '{"ops": {"gae": {"cases": "x"}}}'])
def test_invalid_facts_and_common_cases_are_errors(tmp_path: Path, text: str) -> None:
    for name, read in (("facts.json", read_facts), ("common.json", read_common)):
        (tmp_path / name).write_text(text)
        with pytest.raises(ConfigurationError, match=name):
            read(tmp_path)


def test_a_folder_may_have_neither_facts_nor_common_cases(tmp_path: Path) -> None:
    assert read_facts(tmp_path) == {}
    assert read_common(tmp_path) == {}


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
    files = sorted(FOLDER.glob("*.jsonl"))
    assert len(files) >= 9, "`gates peers check --record` records every library"
    assert len((ROOT / "results" / "CONFORMANCE.md").read_text().splitlines()) <= 300


def test_every_recorded_grade_is_explained() -> None:
    """No op is graded below imprecise without a finding, nor wrong by numeric ones; no program refutes its finding."""
    files = sorted(FOLDER.glob("*.jsonl"))
    assert files
    for file in files:
        found = read_conformance(file)
        needed = [grade for grade in found.grades if grade.grade not in {*words.GOOD, "imprecise"}]
        assert [grade.op for grade in needed if not grade.findings] == [], file.name
        assert [f.id for f in found.findings if not f.reproduced] == [], file.name
        numeric = {f.id for f in found.findings if f.kind == "numeric" and f.use}  # older records have no `use`
        assert [g.op for g in needed if g.grade == "wrong" and numeric.issuperset(g.findings)] == [], file.name
        assert [row.name for row in found.coverage if not row.status] == [], file.name


def test_no_diagnosis_is_a_bug_here_and_a_choice_there() -> None:
    """What the check itself names alike in two libraries is charged alike."""
    kinds = {finding.id: finding.kind for _, finding in reproduce.known().values()}
    bugs: dict[str, set[bool]] = defaultdict(set)
    for file in sorted(FOLDER.glob("*.jsonl")):
        for record in read_conformance(file).grades:
            about = {kinds[name] == "bug" for name in record.findings if name in kinds}
            for part in record.computes.removeprefix("computes: ").split(" · ") if about else ():
                bugs[part] |= about
    unnamed = {"", "computes nothing that is known", "nothing that is known"}
    assert {part: found for part, found in bugs.items() if part not in unnamed and len(found) > 1} == {}
