"""Recorded runs of speeds in a few lines: each op against each peer, over all shapes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from gates.results.speed_file import SpeedResults
from gates.results.speed_records import SpeedRecord


def speed_summary(runs: Iterable[SpeedResults]) -> str:
    """Return a markdown table: the least and the greatest ratio of medians over the shapes, and how many goals were met.

    Of a row that several runs have the newest counts; runs on an instruction set that is not the machine's best do not.
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
    """From the least to the greatest ratio; a row without a time shows why instead."""
    ratios = sorted(row.ratio.value for row in rows if row.ratio)
    told = [] if not ratios else [" – ".join(f"{value:.3g}" for value in dict.fromkeys((ratios[0], ratios[-1])))]
    return ", ".join([*told, *(f"**{row.outcome}** at {row.shape}" for row in rows if row.outcome != "timed")])


def _goals(rows: list[SpeedRecord]) -> str:
    asked = [row for row in rows if row.goal is not None]
    kinds = {kind: [row for row in asked if row.goal_met == kind] for kind in ("met", "undecided", "missed")}
    counts = ", ".join(f"{len(found)} {kind}" for kind, found in kinds.items() if found)
    short = [f"{row.shape} wants {row.goal:g}" for kind in ("undecided", "missed") for row in kinds[kind]]
    return counts + (f" ({', '.join(short)})" if short else "")
