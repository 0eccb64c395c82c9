"""Judge every step of a trace, a folder of recorded steps, and keep the worst verdict on each quantity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gates.errors import ConfigurationError
from gates.recorded.finding import ORDER, Finding
from gates.recorded.judge import judged


def steps(folder: Path) -> list[Path]:
    """Return the recorded steps of a trace, or of a run's folder that holds one, in order.

    Raises:
        ConfigurationError: there are none.
    """
    inside = folder / "trace" if (folder / "trace").is_dir() else folder
    files = sorted(inside.glob("step-*.safetensors"))
    if not files:
        raise ConfigurationError(
            f"{folder} holds no recorded step `step-….safetensors`; `output.trace = true` lets `gates trainer train` write them"
        )
    return files


def judged_folder(folder: Path, show: Callable[[str], None] = lambda _: None) -> list[Finding]:
    """Return for each quantity the worst verdict of all steps; `show` is called with what is judged.

    Raises:
        ConfigurationError: there is no step, or one is not a recorded step.
    """
    verdicts: dict[str, list[tuple[str, Finding]]] = {}
    for path in steps(folder):
        for finding in judged(path, lambda quantity, path=path: show(f"{path.stem}: {quantity}"))[1]:  # type: ignore[misc]
            verdicts.setdefault(finding.quantity, []).append((path.stem, finding))
    whole = {quantity.partition("[")[0] for quantity in verdicts if "[" in quantity}
    return [_worst(found) for quantity, found in verdicts.items() if quantity not in whole]


def _worst(found: list[tuple[str, Finding]]) -> Finding:
    """Return the worst of the verdicts on a quantity, with the step that has it or the number of steps."""
    name, worst = min(found, key=lambda each: ORDER.index(each[1].status))
    judged_ones = [finding for _, finding in found if finding.status != "unsupported"]
    if worst.status in ("correct", "unsupported"):
        count = f"{len(judged_ones)} files: " if worst.status == "correct" and len(judged_ones) > 1 else ""
        return replace(worst, reason=count + worst.reason)
    same = sum(finding.status == worst.status for finding in judged_ones)
    others = f" ({worst.status} in {same} of {len(judged_ones)} files)" if len(judged_ones) > 1 else ""
    return replace(worst, reason=f"{name}: {worst.reason}{others}")
