"""The times that asv recorded for the last commits, and the newest comparison of two revisions."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gates.report.speed.inline import Items, Paragraph, Part, Table, Text, code, strong
from gates.report.speed.numbers import interval, seconds, short, titled
from gates.results.speed_records import ComparisonRecord

COMMITS = 5  # rows of the history
MOST = 12  # rows of a comparison
BENCHMARK = "kernels.Kernels.time_call"  # its one parameter is the call
#: The history shows the last call of each of these ops, which has the largest inputs.
NAMED = (
    "group_advantages",
    "token_kl",
    "selective_log_softmax",
    "sample_tokens",
    "policy_loss",
    "pack_sequences",
)


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit that asv timed, with the seconds of each benchmark."""

    name: str
    when: float
    machine: str
    times: dict[str, float]


def parts(folder: Path | None, comparisons: Sequence[ComparisonRecord]) -> Iterator[Part]:
    """Yield the history that asv recorded, and the newest comparison."""
    commits = read_asv(folder) if folder else []
    if commits:
        newest = commits[-1].machine
        yield from _table([commit for commit in commits if commit.machine == newest][-COMMITS:])
    else:
        yield Paragraph(["asv has recorded nothing yet; run ", code("make bench"), "."])
    if comparisons:
        yield _compared(comparisons)
        if remarks := list(_not_listed(comparisons)):
            yield Items(remarks)
    else:
        yield Paragraph(["No comparison of two revisions is recorded; run ", code("gates bench compare A B"), "."])


def read_asv(folder: Path) -> list[Commit]:
    """Return the commits that asv recorded in a folder, oldest first; skip files of another format."""
    commits: dict[tuple[str, str], Commit] = {}
    for path in sorted(folder.glob("*/*.json")):
        try:
            data = json.loads(path.read_bytes())
            name, when = str(data["commit_hash"])[:8], float(data["date"])
            machine, results = str(data["params"]["machine"]), data["results"]
            columns = list(data["result_columns"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        row = results.get(BENCHMARK)
        times = _times(dict(zip(columns, row, strict=False))) if isinstance(row, list) else {}
        if times:
            commits[machine, name] = Commit(name, when, machine, times)
    return sorted(commits.values(), key=lambda commit: (commit.when, commit.name))


def _times(row: dict[str, Any]) -> dict[str, float]:
    """Return the seconds of the last call of each op in NAMED that has a finite time."""
    values, params = row.get("result"), row.get("params")
    if not isinstance(values, list) or not isinstance(params, list) or len(params) != 1:
        return {}
    last: dict[str, tuple[str, float]] = {}
    for quoted, value in zip(params[0], values, strict=False):
        call = str(quoted).strip("'")
        if isinstance(value, int | float) and math.isfinite(value):
            last[call.partition(" ")[0]] = call, float(value)
    return dict(last[op] for op in NAMED if op in last)


def _table(commits: Sequence[Commit]) -> Iterator[Part]:
    """Yield a row for each commit and a column for each benchmark of the newest commit."""
    titles = list(commits[-1].times)
    rows: list[list[Text]] = []
    for commit in commits:
        cells = [seconds(commit.times[title]) if title in commit.times else "–" for title in titles]
        rows.append([f"{commit.name}, {datetime.fromtimestamp(commit.when / 1000, UTC):%Y-%m-%d}", *cells])
    if len(commits) == 1:
        rows[0][0] = [rows[0][0], ", the only commit recorded"]
    yield Table([f"asv on {commits[-1].machine}", *(code(titled(title)) for title in titles)], rows, "History")


def _compared(comparisons: Sequence[ComparisonRecord]) -> Table:
    rows: list[list[Text]] = []
    for row in [row for row in comparisons if row.outcome == "timed" and row.ratio][:MOST]:
        instructions = (
            f"{short(row.left_instructions)} → {short(row.right_instructions)}"
            if row.left_instructions and row.right_instructions
            else ""
        )
        verdict = strong(row.verdict) if row.verdict in {"slower", "undecided"} else row.verdict or ""
        times = " → ".join(short(us) if us is not None else "–" for us in (row.left_us, row.right_us))
        ratio, control = (interval(estimate) if estimate else "–" for estimate in (row.ratio, row.control))
        rows.append([code(row.benchmark), times, ratio, control, verdict, instructions])
    left, right = comparisons[0].left[:12], comparisons[0].right[:12]
    head = [
        "benchmark",
        f"µs, {left} → {right}",
        "B over A",
        "control",
        f"verdict, effects above {100 * comparisons[0].floor:g}%",
        "instructions",
    ]
    return Table(head, rows, "Newest comparison")


def _not_listed(comparisons: Sequence[ComparisonRecord]) -> Iterator[str]:
    """Yield how many timed benchmarks the table leaves out, and why others have no time."""
    timed = sum(row.outcome == "timed" for row in comparisons)
    if timed > MOST:
        yield f"{timed - MOST} more benchmarks are in the file."
    for row in comparisons:
        if row.outcome != "timed":
            yield f"{row.benchmark}: {row.outcome}: {row.reason}"
