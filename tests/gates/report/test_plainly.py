"""Numbers for people: a distance and its limit in place of multiples of a limit."""

from __future__ import annotations

import pytest

from gates.report.plainly import plainly, rare


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (
            "loss error in textbook limits is 1000, must be <= 1 (got 1.5, want 1.25)",
            "loss is off by 0.25 (limit 3e-04): got 1.5, want 1.25",
        ),
        (
            "gradient error in 2u·S (float32) is 400, must be <= 4 (at [5, 28]: got 4.5e-07, want 4.25e-07)",
            "gradient is off by 2.5e-08 (limit 2e-10) at [5, 28]: got 4.5e-07, want 4.25e-07",
        ),
        ("loss error in textbook limits is nan, must be <= 1 (got nan, want 0.122)", "loss is nan, want 0.122"),
        (
            "gradient error in textbook limits is inf, must be <= 1 (at [0]: got 0.5, want 0)",
            "gradient is 0.5 at [0], must be 0",
        ),
        ("bins that hold other lengths is 65, must be <= 0", "bins that hold other lengths is 65, must be <= 0"),
        (
            "smallest input (32 → 2 numbers): advantage error in textbook limits: got 1",
            "smallest input (32 → 2 numbers): advantage: got 1",
        ),
        ("kl raised: IndexError", "kl raised: IndexError"),
    ],
)
def test_a_reason_is_said_plainly(reason: str, words: str) -> None:
    assert plainly(reason) == words


def test_rare_input_is_named() -> None:
    assert rare("loss.grpo.matches-definition", "empty-row") == "row without tokens"
    assert rare("advantages.constant-group-is-zero", "trl-float32") == "equal rewards"
    assert rare("advantages.constant-group-is-zero", "found-groups-of-one") == "group of one"
    assert not rare("loss.grpo.matches-definition", "ragged")
