"""Summarise recorded speeds: each op against each peer, over all shapes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from gates.results.speed_file import SpeedResults
from gates.results.speed_records import SpeedRecord


def speed_summary(runs: Iterable[SpeedResults]) -> str:
    """Return a markdown table: the range of ratios of medians over the shapes, and how many goals were met.

    The newest measurement of each row counts; runs on a chosen instruction set are left out.
    """
    newest: dict[tuple[str, str, str], SpeedRecord] = {}
    for run in sorted((run for run in runs if not run.header.isa), key=lambda run: run.header.started):
        newest |= {(row.op, row.shape, row.baseline): row for row in run.rows if row.baseline}
    rows: dict[tuple[str, str], list[SpeedRecord]] = defaultdict(list)
    for row in newest.values():
        rows[row.op, row.baseline].append(row)
    lines = ["| op | against | shapes | times faster | goals |", "|---|---|---|---|---|"]
    for (op, baseline), found in rows.items():
        lines.append(f"| {op} | {baseline} | {len(found)} | {_range(found)} | {_goals(found)} |")
    return "\n".join(lines)


def _range(rows: list[SpeedRecord]) -> str:
    """Return the smallest and the largest ratio, and the outcome of rows without a time."""
    ratios = sorted(row.ratio.value for row in rows if row.ratio)
    ranges = [] if not ratios else [" – ".join(f"{value:.3g}" for value in dict.fromkeys((ratios[0], ratios[-1])))]
    return ", ".join([*ranges, *(f"**{row.outcome}** at {row.shape}" for row in rows if row.outcome != "timed")])


def _goals(rows: list[SpeedRecord]) -> str:
    goals = [row for row in rows if row.goal is not None]
    outcomes = {
        outcome: [row for row in goals if row.goal_met == outcome] for outcome in ("met", "undecided", "missed")
    }
    counts = ", ".join(f"{len(found)} {outcome}" for outcome, found in outcomes.items() if found)
    short = [f"{row.shape} wants {row.goal:g}" for outcome in ("undecided", "missed") for row in outcomes[outcome]]
    return counts + (f" ({', '.join(short)})" if short else "")
