"""What has no speed and why, what was called on both sides, and the runs that a report is of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from gates.report.speed.inline import Marked, Text, code, grade, joined, strong
from gates.report.speed.numbers import short
from gates.report.speed.recorded import WRONG, Kernel, Recorded, Trainer
from gates.results.records import EvidenceRecord
from gates.results.speed_file import SpeedResults

BUSY_PERCENT = 10.0
MOST = 12  # lines of rows without a speed


def doubts(run: SpeedResults) -> list[str]:
    """Return why nothing should be concluded from a run."""
    found = ["a smoke test"] if run.header.quick else []
    if run.summary is None:
        found.append(run.state)
    measured = [row.busy_percent for row in run.rows if row.busy_percent is not None]
    busy = sum(percent > BUSY_PERCENT for percent in measured)
    if 2 * busy > len(measured):
        found.append(f"others used more than {BUSY_PERCENT:g}% of the processors in {busy} of {len(measured)} rows")
    elif not measured and run.header.busy_percent > BUSY_PERCENT:
        found.append(f"others used {run.header.busy_percent:.0f}% of the processors")
    if run.header.dirty:
        found.append("tracked files differed from the commit")
    return found


def runs(recorded: Recorded) -> Iterator[Text]:
    """Yield a line for each run: what was timed, where, and whether to doubt it."""
    for run in recorded.runs:
        h = run.header
        doubted = doubts(run)
        state: Text = strong(f"{'; '.join(doubted)}: conclude nothing") if doubted else run.state
        pieces = [
            f"{h.kind}, {h.started[:10]}, commit {(h.commit or 'none')[:8]}",
            f"{h.machine.cpu}, {h.machine.cores} cores, {h.machine.system.split('-with-')[0]}, Python {h.python}",
            f"{h.threads} thread{'s' if h.threads != 1 else ''} each, others used {h.busy_percent:.0f}%",
            *_rates(run),
        ]
        yield [code(run.path.name), f": {'; '.join(pieces)}; ", state, "."]


def _rates(run: SpeedResults) -> Iterator[str]:
    """Yield the best rates that were measured, with all threads."""
    every = [b for line in run.rooflines for b in line.bandwidth]
    if not every:
        return
    threads = max(b.threads for b in every)
    levels = []
    for level in dict.fromkeys(b.level for b in every):
        found = [b for b in every if b.level == level and b.threads == threads]
        best = max(b.reading for b in found), max(b.copying for b in found)
        levels.append(f"{level} {best[0] / 1e9:.0f}/{best[1] / 1e9:.0f}")
    yield f"read/copied GB/s {', '.join(levels)}"
    peaks = [p for line in run.rooflines for p in line.peak if p.threads == threads]
    if peaks:
        single, double = (max(getattr(p, name) for p in peaks) / 1e9 for name in ("float32", "float64"))
        yield f"GFLOP/s {single:.0f} float32, {double:.0f} float64"


def without_speed(recorded: Recorded) -> list[Text]:
    """Return a line for each peer, op and reason of rows without a speed, those that are wrong first."""
    absent = sorted({name for run in recorded.runs if run.summary for name in run.summary.absent})
    lines: list[Text] = []
    groups: dict[tuple[str, str, str], list[tuple[str, str]]] = defaultdict(list)  # each row and its reason
    for kernel in recorded.kernels:
        if not kernel.shown:
            place, reason = _place(kernel)
            row = f"{kernel.row.variant} {kernel.row.shape}".strip()
            groups[place, kernel.row.peer or "ours", kernel.op].append((row, reason))
    for trainer in recorded.trainers:
        if not trainer.shown:
            place, reason = _place(trainer)
            row = f"{trainer.row.workload} {trainer.row.model}"
            groups[place, trainer.row.target, ""].append((row, reason))
    found = sorted(groups.items(), key=lambda item: (item[0][0] != WRONG, item[0][0] == "absent"))
    if any(place == WRONG for place, *_ in groups):
        lines.append(
            [
                "A time of what the conformance report calls ",
                grade(WRONG),
                " is that of another op, so it is not shown.",
            ]
        )
    for (place, who, op), where in found[:MOST]:
        name: Text = grade(place) if place == WRONG else strong(place)
        first, reason = where[0]
        rows = first if len(where) == 1 else f"{len(where)} rows"
        what: list[Text] = [code(op), f", {rows}: "] if op else [f"as a trainer, {rows}: "]
        more = f" ({first}; the others differ)" if len({why for _, why in where}) > 1 else ""
        lines.append([f"{who}, ", *what, name, f": {reason}{more}" if reason else ""])
    if len(found) > MOST:
        lines.append(f"{len(found) - MOST} more are in the files.")
    if absent:
        lines.append(f"Without an environment on this machine: {', '.join(absent)}.")
    return lines


def _place(one: Kernel | Trainer) -> tuple[str, str]:
    """Return the grade or outcome, and the reason with the evidence that does not hold."""
    row = one.row
    refuted = (
        []
        if isinstance(one, Trainer)
        else [_evidence(item) for item in one.row.evidence if not item.holds and item.quantity not in row.reason]
    )
    reason = "; ".join(part for part in (row.reason, *refuted[:1]) if part)
    return WRONG if row.conformance == WRONG else row.outcome, reason


def _evidence(item: EvidenceRecord) -> str:
    return f"{item.quantity} is {item.observed:.6g}, must be {item.relation} {item.limit:.6g} ({item.because})"


def without_count(recorded: Recorded) -> Text:
    """Return how many rows have no speed, by grade or outcome."""
    counts: dict[str, int] = defaultdict(int)
    every: list[Kernel | Trainer] = [*recorded.kernels, *recorded.trainers]
    for one in every:
        if not one.shown:
            counts[_place(one)[0]] += 1
    marks: dict[str, Marked] = {WRONG: grade(WRONG)}
    return joined([[f"{count} ", marks.get(name, strong(name))] for name, count in counts.items()], ", ")


def statements(recorded: Recorded) -> list[Text]:
    """Return what was called for each op on both sides, in which conventions, and where the sides differ."""
    lines: list[Text] = []
    for op, kernels in recorded.by_op.items():
        shown = [kernel for kernel in kernels if kernel.shown]
        peers: dict[str, Kernel] = {}
        for kernel in shown:
            peers.setdefault(kernel.row.peer, kernel)
        own = next((kernel.row.ours.statement for kernel in shown if kernel.row.ours), "")
        called = [
            _called(kernel, only=len({k.row.variant for k in kernels if k.row.peer == peer}) == 1)
            for peer, kernel in peers.items()
            if peer
        ]
        if own:
            lines.append([code(op), ": ", strong("ours"), " ", code(own), " · " if called else "", joined(called)])
    return lines


def _called(kernel: Kernel, *, only: bool) -> Text:
    """Return a peer's statement; its conventions too, where it has been timed in one set only."""
    row = kernel.row
    words = "; ".join(part for part in (row.variant if only else "", row.note) if part)
    statement: Text = code(row.theirs.statement) if row.theirs else ""
    return [strong(row.peer), " ", statement, f" ({words})" if words else ""]


def accuracy(recorded: Recorded) -> str:
    """Return the largest share of its limit that our error and a peer's took before the clock started."""
    worst: dict[str, float] = {}
    for item in _held(recorded):
        side = "ours" if item.quantity.startswith("ours") else "a peer's"
        worst[side] = max(worst.get(side, 0.0), item.observed / item.limit)
    shares = ", ".join(f"{side} {short(share)}" for side, share in sorted(worst.items(), reverse=True))
    return f" Largest error over its limit: {shares}." if worst else ""


def _held(recorded: Recorded) -> Iterable[EvidenceRecord]:
    for kernel in recorded.kernels:
        for item in kernel.row.evidence:
            if item.holds and item.relation == "<=" and item.limit:
                yield item


def versions(kernels: Sequence[Kernel]) -> str:
    """Return the versions in the peers' interpreters, each once."""
    found: dict[str, set[str]] = defaultdict(set)
    for kernel in kernels:
        for name, version in kernel.row.versions.items():
            found[name].add(version)
    return ", ".join(f"{name} {'/'.join(sorted(which))}" for name, which in sorted(found.items()))
