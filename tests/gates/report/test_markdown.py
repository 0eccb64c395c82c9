"""The markdown report: the outcome first, and each failing gate once."""

from pathlib import Path

import pytest
from runs_on_file import verdict, write

from gates.model import Evidence, Verdict, Waived
from gates.report.failures import failures, largest_effect, severity
from gates.report.markdown import render
from gates.report.not_judged import condensed
from gates.results.records import SubjectRecord, VerdictRecord, verdict_record


def failing(
    case: str, *observed: float, relation: str = "<=", limit: float = 4.0, cause: str = "bound", gate: str = "g.x"
) -> VerdictRecord:
    """Return a failure with a broken claim for each number."""
    items = tuple(Evidence(f"q{place}", value, relation, limit, "x") for place, value in enumerate(observed))  # type: ignore[arg-type]
    return verdict_record(Verdict(gate, "mine", case, 7, "wrong", cause, f"as {case} says", op=gate, evidence=items))


@pytest.mark.parametrize(
    ("record", "expected", "largest"),
    [
        (failing("two", 8.0, 40.0), 2.0, 10.0),
        (failing("count", 3.0, limit=0.0), 3.0, 3.0),
        (failing("nan", float("nan")), float("inf"), float("inf")),
        (failing("too-little", 0.0, relation=">="), float("inf"), float("inf")),
        (failing("crashed", cause="crashed"), float("inf"), float("inf")),
    ],
    ids=["two claims", "a count", "no number", "another relation", "a crash"],
)
def test_excess_over_the_limit(record: VerdictRecord, expected: float, largest: float) -> None:
    """The excess is a share of the limit, or the count if the limit is 0; for the quoted claim, and the largest."""
    assert (severity(record), largest_effect(record)) == (expected, largest)


def test_a_gate_that_fails_often_is_reported_once(tmp_path: Path) -> None:
    """The entry has the worst case with its reason, the counts, and the other cases, worse ones first."""
    ran = [failing("a", 8.0), failing("b", 400.0), failing("c", 40.0), verdict(gate="g.x", case="d")]
    run = write(tmp_path / "r.jsonl", [*ran, *(verdict("unsupported", gate="g.x", case=f"u{n}") for n in range(9))])
    (found,) = failures(run)
    assert ([v.case for v in found.verdicts], found.count) == (["b", "c", "a"], "3 of 4 cases")
    text = render([run])
    assert "- **mine** `g.x`, 3 of 4 cases; worst b: as b says\n  - also c, a\n" in text
    assert "as a says" not in text
    assert "| mine | **1** | 4 of 13 |" in text


def test_many_other_cases_are_counted(tmp_path: Path) -> None:
    run = write(tmp_path / "r.jsonl", [failing(f"case-{n:02}", 8.0) for n in range(40)])
    assert "case-12, and 27 more\n" in render([run])


def test_the_outcome_is_at_the_top(tmp_path: Path) -> None:
    """One sentence, then counts of gates per subject without departures as failures, then the sections in order."""
    waived = Waived("wrong", "known", "#12", "ada", "2027-01-01")
    verdicts = [
        verdict(),
        verdict("wrong", gate="b"),
        verdict("wrong", gate="c", cause="departs"),
        verdict("error", gate="d"),
        verdict("waived", gate="e", waived=waived),
        verdict("unsupported", gate="f"),
    ]
    text = render([write(tmp_path / "r.jsonl", verdicts, problems=["required, but skipped: peer"])])
    line = (
        "**Not all held**: 1 wrong, 1 error, 1 documented deviation, 1 waived, 1 correct, 1 unsupported; exit code 1."
    )
    assert text.splitlines()[6] == line
    assert "| mine | **1** | **1** | 1 | 1 | 1 | 1 | 5 of 6 |" in text
    titles = [line.removeprefix("### ") for line in text.splitlines() if line.startswith("### ")]
    assert titles == [
        "Grades",
        "Errors of the judge",
        "Wrong",
        "Documented deviations from the definition",
        "Waived",
        "What else fails the run",
        "Every gate",
        "Nearest to the limit, of what passed",
        "Not judged",
    ]
    assert "  - wrong, waived until 2027-01-01 by ada, #12: known" in text


def test_several_runs_are_summarised(tmp_path: Path) -> None:
    """Each run has a line with a link to its file; then come all verdicts and a table for each proof."""
    first = write(tmp_path / "a.jsonl", [verdict()])
    cut = write(tmp_path / "b c.jsonl", [verdict(subject="peer")], complete=False, planned=9)
    proof = write(tmp_path / "p.jsonl", [verdict(), verdict("wrong", mutant="kl.flipped")], verb="prove")
    text = render([first, cut, proof])
    lines = text.splitlines()
    folder = tmp_path.name
    assert lines[6] == f"| [`a.jsonl`]({folder}/a.jsonl) | mine | All that was judged held: 1 correct; exit code 0 |"
    assert lines[7] == f"| [`b c.jsonl`]({folder}/b%20c.jsonl) | peer | **incomplete: 1 of 9**: 1 correct |"
    heads = [line for line in lines if line.startswith("#")]
    assert heads[1:5] == ["## Verdicts", "### Grades", "## Proof", "## Runs"]
    assert heads[5:] == ["### a", "### b c", "### p"]
    assert "| `kl.k3` | correct (1 case" in text
    assert "### Every" not in text


def test_the_recorded_report_is_short() -> None:
    """It has the verdicts and a table each for proof and calibration; the JSONL has the rest."""
    report = Path(__file__).parents[3] / "results" / "REPORT.md"
    assert len(report.read_text().splitlines()) <= 300


def test_a_subject_that_does_not_start_is_reported_once(tmp_path: Path) -> None:
    """Its reason is reported once, not once per gate."""
    dead = [verdict("wrong", gate=gate, cause="start", reason="it has no OPS") for gate in ("a", "b", "c")]
    assert render([write(tmp_path / "r.jsonl", dead)]).count("it has no OPS") == 1


def test_equal_versions_are_reported_once(tmp_path: Path) -> None:
    """Variants of one library share a line."""
    expected = [
        SubjectRecord(subject=name, provides=[], versions={"lib": v})
        for name, v in [("a", "1"), ("b", "2"), ("c", "1")]
    ]
    text = render([write(tmp_path / "r.jsonl", [verdict()], also=expected)])
    assert "| subject a, c | lib 1 |" in text
    assert "| subject b | lib 2 |" in text


def test_causes_are_grouped_across_names() -> None:
    """Undefined ops and missing values are grouped; other causes are unchanged."""
    found = {
        ("peer", "unsupported", "kl is not defined by peer"): 3,
        ("peer", "unsupported", "loss is not defined by peer"): 2,
        ("peer", "unsupported", "loss of peer has dtype 'a', not 'b'"): 4,
        ("peer", "unsupported", "loss of peer has dtype 'a', not 'c'"): 1,
        ("peer", "unsupported", "some words"): 1,
        ("peer", "unsupported", "other words"): 1,
        ("late", "skipped", "it is not here"): 7,
        ("late", "unsupported", "kl is not defined by late"): 5,
    }
    assert condensed(found) == [
        ("skipped", "late", "it is not here (7)"),
        ("unsupported", "late", "kl is not defined by late (5)"),
        ("unsupported", "peer", "loss of peer has dtype 'a', not 'b' (4), 'c' (1)"),
        ("unsupported", "peer", "not defined by peer: kl (3), loss (2)"),
        ("unsupported", "peer", "other words (1)"),
        ("unsupported", "peer", "some words (1)"),
    ]
