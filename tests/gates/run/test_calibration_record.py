"""The recorded calibrations hold what the issue promises: no gate refused a correct subject at any seed."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from gates.calibration_limits import FILE, load
from gates.calibration_past import codes
from gates.registry import load as load_gates
from gates.report.calibration import flaky, points, rates
from gates.report.markdown import render
from gates.results.jsonl import Results, read

FOLDER = Path(__file__).resolve().parents[3] / "results" / "gates"
RECORDS = sorted(FOLDER.glob("calibrate-*.jsonl"))


@pytest.fixture(params=RECORDS, ids=lambda path: path.stem)
def run(request: pytest.FixtureRequest) -> Results:
    return read(request.param)


def test_there_are_some() -> None:
    """What is read below exists."""
    assert RECORDS


def test_no_gate_raised_a_false_alarm(run: Results) -> None:
    """Every verdict of every seed is a pass, or of an op that the subject does not provide.

    A gate that did is another one now: the file stays, for nobody hides an alarm, and its seeds count as earlier code's.
    A subject that was not on that machine was asked nothing at all: its cells are skipped, and no sum counts their seeds.
    """
    here = {block.subject for block in run.blocks if set(block.counts) != {"skipped"}}
    refused = {
        block.gate for block in run.blocks if block.subject in here and set(block.counts) - {"pass", "unsupported"}
    }
    assert here
    assert refused == {block.gate for block, _ in flaky(run.blocks)}
    mended = codes(load_gates().gates[gate] for gate in refused)
    assert not {gate for gate in refused if run.header.codes[gate] == mended[gate]}


def test_every_cell_was_judged_at_every_seed(run: Results) -> None:
    """No seed is missing and none was counted twice; what a stopped run did not come to is another one's."""
    assert run.header.seeds
    if run.summary is None:
        assert run.path.name in {name for path in RECORDS for name in read(path).header.beside}
        return
    assert sum(block.seeds for block in run.blocks) == run.header.planned
    earlier = [block for name in run.header.beside for block in read(FOLDER / name).blocks]
    seeds = {rate.seeds for rate in rates([*run.blocks, *earlier]) if rate.bound is not None}
    assert min(seeds) >= run.header.seeds


def test_each_bound_of_a_rate_is_that_of_its_seeds(run: Results) -> None:
    """At a rate of the 95% bound, so few alarms come once in twenty times (Clopper and Pearson)."""
    for rate in rates(run.blocks):
        if rate.bound is not None:
            n, p = rate.seeds, rate.bound
            few = sum(math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(rate.alarms + 1))
            assert few == pytest.approx(0.05, rel=1e-9)


def test_no_claim_is_beyond_its_limit(run: Results) -> None:
    """The largest share of every claim is a number, and at most 1."""
    assert all(0.0 <= point.share <= 1.0 for point in points(run.blocks))


def test_its_page_is_a_function_of_the_file(run: Results) -> None:
    """Rendering twice gives the same text, and it names every gate: in a row, or as judged in other files."""
    text = render([run])
    assert text == render([read(run.path)])
    judged = {block.gate for block in run.blocks}
    assert all(f"| `{gate}` |" in text for gate in judged)
    assert judged == set(run.header.gates) or run.header.beside
    _, _, words = text.partition("in files that were recorded before: ")
    elsewhere = words.partition(".\n")[0].replace("`", "")
    assert elsewhere == ", ".join(gate for gate in run.header.gates if gate not in judged)


def test_every_limit_separates_noise_from_the_smallest_mutant() -> None:
    """What is shipped as calibrated lies clear of both sides, and its sources are recorded."""
    for entry in load(FILE).limits:
        assert entry.defect() == ""
        assert all((FOLDER / name).is_file() for name in entry.source.split(", ")), entry.source
        assert entry.history
