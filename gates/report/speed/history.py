"""What asv recorded over the last commits, and the newest comparison of two revisions."""

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

COMMITS = 5  # columns
MOST = 12  # rows of a comparison
BENCHMARK = "kernels.Kernels.time_call"  # its one parameter is the call
#: Of each of these ops the last call, which has the largest inputs.
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
    """One commit that asv timed, with seconds by benchmark."""

    name: str
    when: float
    machine: str
    found: dict[str, float]


def parts(folder: Path | None, comparisons: Sequence[ComparisonRecord]) -> Iterator[Part]:
    """Yield the history that asv recorded, and the newest comparison."""
    commits = read_asv(folder) if folder else []
    if commits:
        newest = commits[-1].machine
        yield from _table([commit for commit in commits if commit.machine == newest][-COMMITS:])
    else:
        yield Paragraph(["asv has recorded nothing; ", code("make bench"), " does."])
    if comparisons:
        yield _compared(comparisons)
        if left := list(_without(comparisons)):
            yield Items(left)
    else:
        yield Paragraph(["No two revisions are compared; ", code("gates bench compare A B"), " does."])


def read_asv(folder: Path) -> list[Commit]:
    """Return what asv recorded under a folder, oldest first; files of another form are passed over."""
    found: dict[tuple[str, str], Commit] = {}
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
            found[machine, name] = Commit(name, when, machine, times)
    return sorted(found.values(), key=lambda commit: (commit.when, commit.name))


def _times(row: dict[str, Any]) -> dict[str, float]:
    """Return the seconds of the last known call of each named op."""
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
    """Yield a row for each commit and a column for each benchmark that the newest one has."""
    titles = list(commits[-1].found)
    rows: list[list[Text]] = []
    for commit in commits:
        cells = [seconds(commit.found[title]) if title in commit.found else "–" for title in titles]
        rows.append([f"{commit.name}, {datetime.fromtimestamp(commit.when / 1000, UTC):%Y-%m-%d}", *cells])
    if len(commits) == 1:
        rows[0][0] = [rows[0][0], ", one commit recorded"]
    yield Table([f"asv on {commits[-1].machine}", *(code(titled(title)) for title in titles)], rows, "History")


def _compared(found: Sequence[ComparisonRecord]) -> Table:
    rows: list[list[Text]] = []
    for row in [row for row in found if row.outcome == "timed" and row.ratio][:MOST]:
        counts = (
            f"{short(row.left_instructions)} → {short(row.right_instructions)}"
            if row.left_instructions and row.right_instructions
            else ""
        )
        verdict = strong(row.verdict) if row.verdict in {"slower", "undecided"} else row.verdict or ""
        times = " → ".join(short(us) if us is not None else "–" for us in (row.left_us, row.right_us))
        ratio, control = (interval(one) if one else "–" for one in (row.ratio, row.control))
        rows.append([code(row.benchmark), times, ratio, control, verdict, counts])
    left, right = found[0].left[:12], found[0].right[:12]
    head = [
        "compared",
        f"µs, {left} → {right}",
        "B over A",
        "control",
        f"floor {100 * found[0].floor:g}%",
        "instructions",
    ]
    return Table(head, rows, "Newest comparison")


def _without(found: Sequence[ComparisonRecord]) -> Iterator[str]:
    timed = sum(row.outcome == "timed" for row in found)
    if timed > MOST:
        yield f"{timed - MOST} more benchmarks are in the file."
    for row in found:
        if row.outcome != "timed":
            yield f"{row.benchmark}: {row.outcome}: {row.reason}"
