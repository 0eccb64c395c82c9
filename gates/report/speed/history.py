"""What asv recorded over the last commits, and the newest comparison of two revisions."""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict
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
OURS = "'rlkernels'"
#: One benchmark of each, the one with the largest inputs that are not left to a class of their own.
NAMED = (
    "time_group_advantages",
    "time_k3",
    "time_token_kl",
    "time_selective_log_softmax",
    "time_sample_tokens",
    "time_policy_loss",
    "time_pack_sequences",
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
        yield Items(list(_without(comparisons)) or ["Every benchmark of the comparison was timed."])
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
        times = {
            title: value
            for benchmark, row in results.items()
            if isinstance(row, list)
            for title, value in _values(benchmark, dict(zip(columns, row, strict=False)))
        }
        found[machine, name] = Commit(name, when, machine, times)
    return sorted(found.values(), key=lambda commit: (commit.when, commit.name))


def _values(benchmark: str, row: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the last combination of parameters that is ours, with its time in seconds."""
    values, params = row.get("result"), row.get("params") or []
    if not benchmark.endswith(NAMED) or not isinstance(values, list):
        return
    combinations = list(itertools.product(*params))
    if len(combinations) != len(values):
        return
    ours = [(c, v) for c, v in zip(combinations, values, strict=True) if OURS in c or all("numpy" not in p for p in c)]
    known = [(c, v) for c, v in ours if isinstance(v, int | float) and math.isfinite(v)]
    if known:
        chosen, value = known[-1]
        words = ", ".join(p.strip("'") for p in chosen if p != OURS)
        yield f"{benchmark.rpartition('.')[2].removeprefix('time_')} {words}".strip(), value


def _table(commits: Sequence[Commit]) -> Iterator[Part]:
    first, last = commits[0], commits[-1]
    times: dict[str, list[str]] = defaultdict(list)
    for title in last.found:
        for commit in commits:
            times[title].append(seconds(commit.found[title]) if title in commit.found else "–")
    rows: list[list[Text]] = [[code(titled(title)), *found] for title, found in sorted(times.items())]
    days = [f"{commit.name}, {datetime.fromtimestamp(commit.when / 1000, UTC):%Y-%m-%d}" for commit in commits]
    if rows:
        yield Table(["asv benchmark", *days], rows, "History")
    words = "One commit is recorded" if len(commits) == 1 else f"{len(commits)} commits are recorded"
    same = "" if first.machine != last.machine else f" on {last.machine}"
    yield Paragraph(f"{words}{same}, one thread. Times of different days are no verdict; a comparison is.")


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
