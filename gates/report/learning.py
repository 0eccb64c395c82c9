"""Draw recorded learning curves."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from gates.model import ConfigurationError
from gates.results.read_lines import first_object, whole_lines

COLUMNS = 4
PANEL = 2.1
"""The height of a row of panels in inches."""
WANTED_GAIN: Final[Mapping[str, float]] = {"reward": 0.3, "margin": 0.1}
"""The gain that every algorithm must reach, by measure. The mean reward is in [0, 1]. For the preference margin 0.1 is beta
times one nat: a correct answer becomes e times likelier relative to a wrong one."""
AXES: Final[Mapping[str, str]] = {
    "reward": "mean reward of fresh samples",
    "margin": "margin of held-out pairs",
}
Panels = Mapping[str, list[Mapping[str, Any]]]
KEYS = {"algorithm", "seed", "measure", "step", "start", "end"}


def is_learning_file(path: Path) -> bool:
    """Return whether the first line is a learning curve."""
    return _is_curve(first_object(path))


def _is_curve(line: object) -> bool:
    if not isinstance(line, dict) or not line.keys() >= KEYS:
        return False
    return isinstance(line["measure"], str) and line["measure"] in AXES and line["measure"] in line


def read_curves(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file of learning curves."""
    curves = []
    for number, content in whole_lines(path, torn=True):
        try:
            line = json.loads(content)
        except (ValueError, RecursionError):
            raise ConfigurationError(f"{path}:{number} is no JSON") from None
        if not _is_curve(line):
            raise ConfigurationError(
                f"{path}:{number} is no learning curve: it must have {', '.join(sorted(KEYS))}, and what measure names, "
                f"one of {', '.join(AXES)}"
            )
        if not _drawable(line):
            raise ConfigurationError(
                f"{path}:{number} is no learning curve: step and {line['measure']} must be as many numbers"
            )
        curves.append(line)
    return curves


def _drawable(line: Mapping[str, Any]) -> bool:
    """Return whether the fields to draw have the right types."""
    steps, values = line["step"], line[line["measure"]]
    if not isinstance(steps, list) or not isinstance(values, list) or len(steps) != len(values):
        return False
    numbers = [*steps, *values, line["start"], line["end"]]
    return isinstance(line["algorithm"], str) and all(isinstance(n, int | float) for n in numbers)


def render_curves(curves: Iterable[Mapping[str, Any]]) -> str:
    """Return an SVG with a block per measure, a panel per algorithm and a line per seed; the required gain is dashed.

    Needs matplotlib, the extra `plot`.
    """
    try:
        from matplotlib import rc_context  # noqa: PLC0415  a large library, for this picture only
        from matplotlib.figure import Figure  # noqa: PLC0415  as above
    except ImportError:
        raise ConfigurationError("pictures need matplotlib: pip install '.[plot]' in a checkout of Gates") from None
    blocks: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for curve in curves:
        blocks.setdefault(curve["measure"], defaultdict(list))[curve["algorithm"]].append(curve)
    chosen = {measure: blocks[measure] for measure in AXES if measure in blocks}
    rows = [-(-len(panels) // COLUMNS) for panels in chosen.values()]
    with rc_context({"svg.hashsalt": "gates", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9}):
        # no layout engine: its last digits differ from run to run
        figure = Figure(figsize=(2.6 * COLUMNS, PANEL * sum(rows)))
        top = sum(rows)
        for count, (measure, panels) in zip(rows, chosen.items(), strict=True):
            extent = {"top": (top - 0.15) / sum(rows), "bottom": (top - count + 0.25) / sum(rows)}
            _block(figure, extent, count, measure, panels)
            top -= count
        svg = io.StringIO()
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    return svg.getvalue()


def _block(figure: Any, extent: Mapping[str, float], rows: int, measure: str, panels: Panels) -> None:
    grid = figure.add_gridspec(rows, COLUMNS, left=0.08, right=0.99, hspace=0.3, wspace=0.12, **extent)
    axes = grid.subplots(sharex=True, sharey=True, squeeze=False).ravel()
    for axis, (name, lines) in zip(axes, panels.items(), strict=False):
        _panel(axis, name, measure, lines)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    middle = (extent["top"] + extent["bottom"]) / 2
    figure.text(0.015, middle, AXES[measure], rotation=90, ha="center", va="center")
    axes[-COLUMNS].set_xlabel("training steps")


def _panel(axis: Any, name: str, measure: str, lines: Sequence[Mapping[str, Any]]) -> None:
    for curve in lines:
        axis.plot(curve["step"], curve[measure], linewidth=1.2, label=f"seed {curve['seed']}")
    required = max(curve["start"] for curve in lines) + WANTED_GAIN[measure]
    axis.axhline(required, color="0.5", linewidth=0.8, linestyle="--")
    axis.set_title(name, fontsize=9)
    if measure == "reward":
        axis.set_ylim(0.0, 1.0)
    axis.spines[["top", "right"]].set_visible(False)
