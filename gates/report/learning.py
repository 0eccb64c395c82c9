"""Recorded learning curves as a picture: a pure function of the lines."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gates.model import ConfigurationError
from gates.report.lines import first_object, whole_lines

COLUMNS = 4
WANTED_GAIN = 0.3
"""Of the mean reward, which is in [0, 1]: what every algorithm must gain over its start."""
KEYS = {"algorithm", "seed", "step", "reward", "start", "end"}


def is_learning_file(path: Path) -> bool:
    """Return whether the first line is a learning curve."""
    return first_object(path).keys() >= KEYS


def read_curves(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file of learning curves."""
    found = []
    for number, text in whole_lines(path, torn=True):
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            raise ConfigurationError(f"{path}:{number} is no JSON") from None
        if not isinstance(line, dict) or not line.keys() >= KEYS:
            raise ConfigurationError(f"{path}:{number} is no learning curve: it must have {', '.join(sorted(KEYS))}")
        if not _drawable(line):
            raise ConfigurationError(f"{path}:{number} is no learning curve: step and reward must be as many numbers")
        found.append(line)
    return found


def _drawable(line: Mapping[str, Any]) -> bool:
    """Return whether the fields that are drawn have the types that they are written with."""
    steps, rewards = line["step"], line["reward"]
    if not isinstance(steps, list) or not isinstance(rewards, list) or len(steps) != len(rewards):
        return False
    numbers = [*steps, *rewards, line["start"], line["end"]]
    return isinstance(line["algorithm"], str) and all(isinstance(n, int | float) for n in numbers)


def render_curves(curves: Iterable[Mapping[str, Any]]) -> str:
    """Return an SVG: a panel for each algorithm, a line for each seed, the gain that is wanted as a dashed line.

    Needs matplotlib, the extra `plot`.
    """
    try:
        from matplotlib import rc_context  # noqa: PLC0415  a large library, for this picture only
        from matplotlib.figure import Figure  # noqa: PLC0415  as above
    except ImportError:
        raise ConfigurationError("pictures need matplotlib: pip install 'rl-gates[plot]'") from None
    panels: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for curve in curves:
        panels[curve["algorithm"]].append(curve)
    rows = -(-len(panels) // COLUMNS)
    with rc_context({"svg.hashsalt": "gates", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9}):
        figure = Figure(figsize=(2.6 * COLUMNS, 2.1 * rows), layout="constrained")
        axes = figure.subplots(rows, COLUMNS, sharex=True, sharey=True, squeeze=False).ravel()
        for axis, (name, lines) in zip(axes, panels.items(), strict=False):
            _panel(axis, name, lines)
        for axis in axes[len(panels) :]:
            axis.set_visible(False)
        figure.supxlabel("optimizer steps")
        figure.supylabel("mean reward of fresh samples")
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return text.getvalue()


def _panel(axis: Any, name: str, lines: Sequence[Mapping[str, Any]]) -> None:
    for curve in lines:
        axis.plot(curve["step"], curve["reward"], linewidth=1.2, label=f"seed {curve['seed']}")
    wanted = max(curve["start"] for curve in lines) + WANTED_GAIN
    axis.axhline(wanted, color="0.5", linewidth=0.8, linestyle="--")
    axis.set_title(name, fontsize=9)
    axis.set_ylim(0.0, 1.0)
    axis.spines[["top", "right"]].set_visible(False)
