"""The screen of a recorded step at 40 columns."""

from rich.cells import cell_len

from gates.errors import ExitCode
from gates.recorded.finding import Finding
from gates.report.recorded import lines

REASON = (
    "gradient error is 5.74e+05 textbook limits, must be <= 1 (at [0, 0]: got 0, want 0.0278813919); loss error is 12"
)


def test_a_narrow_screen_keeps_the_words() -> None:
    """Reasons stand below the name, and no line is wider than the screen."""
    findings = [
        Finding("policy_loss[grpo]", "wrong", REASON, computes="completion mask shifted by one position to the right"),
        Finding("importance_weights", "unsupported", "the file has no tensor `weights`, and no tensor `sampling`"),
    ]
    screen = [line.plain for line in lines("step.safetensors", findings, ExitCode.FAILED, 40, 0.3)]
    assert max(map(cell_len, screen)) <= 40
    text = " ".join(" ".join(screen).split())
    assert f"computes: {findings[0].computes} {REASON}" in text
    assert findings[1].reason in text
