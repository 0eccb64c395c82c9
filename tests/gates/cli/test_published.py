"""Which wrong verdicts the conformance page calls wrong."""

import pytest

from gates.cli.published import published
from gates.model import Evidence, Verdict


def verdict(*locations: str, status: str = "wrong") -> Verdict:
    """Return a verdict with a claim that failed at each location."""
    claims = tuple(Evidence("gradient error", 3.0, "<=", 1.0, "because", where) for where in locations)
    return Verdict("gate", "fake", "case", 0, status, "claim", "reason", claims)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("locations", "status"),
    [
        (("at [0, 0]: got -1.97558354e-12, want 0",), "fragile"),
        (("got 1.00001, want 1",), "fragile"),
        (("got 1.0002, want 1",), "wrong"),
        (("got 1e-05, want 2e-05",), "wrong"),
        (("got nan, want 1",), "wrong"),
        (("row 3",), "wrong"),
        (("got 0, want 1e-12", "got 2, want 1"), "wrong"),
        ((), "wrong"),
    ],
    ids=["a residue", "a digit", "more than a digit", "a factor", "nan", "no numbers", "one of two", "raised"],
)
def test_wrong_is_off_by_an_amount_that_matters(locations: tuple[str, ...], status: str) -> None:
    assert published(verdict(*locations)).status == status


def test_other_verdicts_are_left_alone() -> None:
    assert published(verdict("got 0, want 1e-12", status="imprecise")).status == "imprecise"
