"""What has no speed and why, what was called on both sides, and the runs that a report is of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from gates.report.speed.inline import Marked, Table, Text, code, grade, joined, strong
from gates.report.speed.numbers import short
from gates.report.speed.recorded import WRONG, Kernel, Recorded, Trainer
from gates.results.records import EvidenceRecord
from gates.results.speed_file import SpeedResults

BUSY_PERCENT = 10.0
MOST = 18  # lines of rows without a speed
MOST_STATEMENTS = 18


def doubts(run: SpeedResults) -> list[str]:
    """Return why nothing should be concluded from a run."""
    found = ["a smoke test"] if run.header.quick else []
    if run.summary is None:
        found.append(run.state)
    if run.header.busy_percent > BUSY_PERCENT:
        found.append(f"others used {run.header.busy_percent:.0f}% of the processors")
    if run.header.dirty:
        found.append("tracked files differed from the commit")
    return found


def runs(recorded: Recorded) -> Table:
    """Return a row for each run: what was timed, where, and whether to doubt it."""
    rows: list[list[Text]] = []
    for run in recorded.runs:
        h = run.header
        doubted = doubts(run)
        state: Text = strong(f"{'; '.join(doubted)}: conclude nothing") if doubted else run.state
        threads = f"{h.threads} thread{'s' if h.threads != 1 else ''} each"
        machine = f"{h.machine.cpu}, {h.machine.cores} cores, {h.machine.system.split('-with-')[0]}, Python {h.python}"
        when = f"{h.started[:10]}, commit {(h.commit or 'none')[:8]}"
        rows.append([code(run.path.name), h.kind, when, machine, threads, f"{h.busy_percent:.0f}%", _rates(run), state])
    head = ["run", "of", "when", "machine", "threads", "used by others", "rates (read/copied GB/s; GFLOP/s)", "state"]
    return Table(head, rows, "Runs")


def _rates(run: SpeedResults) -> str:
    """Return the best rates that were measured, with all threads."""
    every = [b for line in run.rooflines for b in line.bandwidth]
    if not every:
        return "–"
    threads = max(b.threads for b in every)
    levels = []
    for level in dict.fromkeys(b.level for b in every):
        found = [b for b in every if b.level == level and b.threads == threads]
        best = max(b.reading for b in found), max(b.copying for b in found)
        levels.append(f"{level} {best[0] / 1e9:.0f}/{best[1] / 1e9:.0f}")
    peaks = [p for line in run.rooflines for p in line.peak if p.threads == threads]
    flops = (
        f"; {max(p.float32 for p in peaks) / 1e9:.0f} float32, {max(p.float64 for p in peaks) / 1e9:.0f} float64"
        if peaks
        else ""
    )
    return ", ".join(levels) + flops


def without_speed(recorded: Recorded) -> list[Text]:
    """Return a line for each peer, op and reason of rows without a speed, those that are wrong first."""
    absent = sorted({name for run in recorded.runs if run.summary for name in run.summary.absent})
    lines: list[Text] = []
    if absent:
        lines.append(f"Without an environment on this machine: {', '.join(absent)}.")
    groups: dict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    for kernel in recorded.kernels:
        if not kernel.shown:
            place, reason = _place(kernel)
            groups[place, kernel.row.peer or "ours", kernel.title, reason].append(kernel.row.shape)
    for trainer in recorded.trainers:
        if not trainer.shown:
            place, reason = _place(trainer)
            groups[place, trainer.row.target, "trainer", reason].append(f"{trainer.row.workload} ({trainer.row.model})")
    found = sorted(groups.items(), key=lambda item: (item[0][0] != WRONG, item[0][0] == "absent"))
    for (place, who, what, reason), shapes in found[:MOST]:
        name: Text = grade(place) if place == WRONG else strong(place)
        rows = shapes[0] if len(shapes) == 1 else f"{len(shapes)} {'shapes' if what != 'trainer' else 'workloads'}"
        lines.append(
            [
                f"{who}, ",
                what if what == "trainer" else code(what),
                f", {rows}: ",
                name,
                f": {reason}" if reason else "",
            ]
        )
    if len(found) > MOST:
        lines.append(f"{len(found) - MOST} more are in the files.")
    return lines


def _place(one: Kernel | Trainer) -> tuple[str, str]:
    """Return the grade or outcome, and the reason with the evidence that does not hold."""
    row = one.row
    refuted = [] if isinstance(one, Trainer) else [_evidence(item) for item in one.row.evidence if not item.holds]
    reason = "; ".join(part for part in (row.reason, *refuted[:1]) if part)
    if row.conformance == WRONG:
        said = "the conformance report calls what it computes wrong, so its speed is that of another op"
        return WRONG, f"{said}{f'; {reason}' if reason else ''}"
    return row.outcome, reason


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
    """Return what was called for each op on both sides, and where the sides differ."""
    lines: list[Text] = []
    for title, kernels in recorded.ops.items():
        calls: dict[str, list[str]] = defaultdict(list)
        notes: dict[str, str] = {}
        ours: list[str] = []
        for kernel in kernels:
            if not kernel.shown or kernel.row.ours is None:
                continue
            ours.append(kernel.row.ours.statement)
            if kernel.row.theirs:
                calls[kernel.row.peer].append(kernel.row.theirs.statement)
            if kernel.row.note:
                notes[kernel.row.peer] = kernel.row.note
        if ours:
            peers: list[Text] = [
                [f"{peer} ", code(found[0]), _note(notes.get(peer, ""))] for peer, found in calls.items()
            ]
            lines.append([code(title), ": ours ", code(ours[0]), *([" · ", joined(peers)] if peers else [])])
    if len(lines) > MOST_STATEMENTS:
        lines = [*lines[:MOST_STATEMENTS], f"{len(lines) - MOST_STATEMENTS} more are in the files."]
    return lines


def _note(note: str) -> str:
    return f" ({note})" if note else ""


def accuracy(recorded: Recorded) -> Iterator[Text]:
    """Yield the largest share of its limit that each side's error took before the clock started."""
    worst: dict[str, float] = {}
    for item in _held(recorded):
        side = item.quantity.partition(":")[0] if ":" in item.quantity else "all"
        worst[side] = max(worst.get(side, 0.0), item.observed / item.limit)
    if worst:
        shares = ", ".join(f"{side} {short(share)}" for side, share in sorted(worst.items()))
        yield f"Largest error over its limit before timing: {shares}."


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
