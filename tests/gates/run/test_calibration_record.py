"""The recorded summary shows that no gate refused a correct subject at any seed."""

from pathlib import Path

import pytest

from gates.families.rollout.gates.quantised import LIMITS
from gates.registry import load as load_gates
from gates.report.calibration import gate, nearest, rates
from gates.report.html import render_html
from gates.report.markdown import render
from gates.results.jsonl import Results, read
from gates.run.calibration_summary import NAME

FILE = Path(__file__).resolve().parents[3] / "results" / "gates" / NAME
LARGEST = 1_000_000  # bytes
CLEARANCE = 1.25  # least ratio of a limit to the noise, and of the smallest mutant's effect to the limit


@pytest.fixture(scope="module")
def summary() -> Results:
    if not FILE.is_file():
        pytest.skip(f"{FILE.name} is not recorded: `gates calibrate --record` makes it")
    return read(FILE)


def test_no_gate_had_a_false_positive(summary: Results) -> None:
    """Every verdict of every seed is a pass, or the subject lacks the op.

    All cases of a subject that was not installed on that machine are skipped, and no rate counts their seeds.
    """
    assert any("judged" in line.seeds for line in summary.calibrations)
    for line in summary.calibrations:
        assert set(line.seeds) <= {"judged", "unsupported"} or set(line.seeds) == {"skipped"}, (line.gate, line.subject)
        assert line.false_positives == []
    assert summary.summary is not None
    assert (summary.summary.exit_code, summary.summary.problems) == (0, [])


def test_every_case_was_judged_at_every_seed(summary: Results) -> None:
    """All cases of a gate have the same seeds for every subject, and every gate exists."""
    for (name,), rate in rates(summary.calibrations, gate).items():
        assert name in load_gates().gates
        if rate.judged:
            assert rate.verdicts == rate.seeds * len(rate.judged), name


def test_no_claim_is_beyond_its_limit(summary: Results) -> None:
    """The largest share of every claim is finite and at most 1."""
    assert all(0.0 <= share <= 1.0 for share, _ in nearest(summary.calibrations).values())


def test_rendering_the_summary_is_deterministic(summary: Results) -> None:
    """Rendering twice gives the same text with every gate; the file is small."""
    text = render([summary])
    assert text == render([read(FILE)])
    assert all(f"| `{name}` |" in text for name in summary.header.gates)
    assert all(name in render_html([FILE]) for name in summary.header.gates[:1])
    assert FILE.stat().st_size <= LARGEST


def test_every_measured_limit_separates_noise_from_the_smallest_mutant(summary: Results) -> None:
    """The limits of quantised sampling are clear of noise and mutants, and no recorded seed exceeds the stated noise."""
    for claim, cases in LIMITS.items():
        for measured in cases.values():
            assert CLEARANCE * measured.noise <= measured.limit <= measured.effect / CLEARANCE, claim
    claims = [near for line in summary.calibrations for near in line.nearest if near.quantity in LIMITS]
    assert {near.quantity for near in claims} == set(LIMITS)
    for near in claims:
        assert near.observed <= LIMITS[near.quantity][int(near.case[0])].noise, near
