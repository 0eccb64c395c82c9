"""The remarks of the speed report: its runs, rows without a time and their reasons, and the calls that were timed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from gates.report.speed.inline import Marked, Text, code, grade, joined, strong
from gates.report.speed.numbers import short
from gates.report.speed.recorded import WRONG, Kernel, Recorded, Trainer
from gates.results.records import EvidenceRecord
from gates.results.speed_file import SpeedResults

BUSY_PERCENT = 10.0
MOST = 12  # lines for rows without a time


def doubts(run: SpeedResults) -> list[str]:
    """Return the reasons to distrust a run."""
    reasons = ["a smoke test"] if run.header.quick else []
    if run.summary is None:
        reasons.append(run.state)
    measured = [row.busy_percent for row in run.rows if row.busy_percent is not None]
    busy = sum(percent > BUSY_PERCENT for percent in measured)
    if 2 * busy > len(measured):
        reasons.append(f"other processes used more than {BUSY_PERCENT:g}% of the CPU in {busy} of {len(measured)} rows")
    elif not measured and run.header.busy_percent > BUSY_PERCENT:
        reasons.append(f"other processes used {run.header.busy_percent:.0f}% of the CPU")
    if run.header.dirty:
        reasons.append("tracked files differed from the commit")
    return reasons


def runs(recorded: Recorded) -> Iterator[Text]:
    """Yield a line for each run: its kind, commit and machine, and the reasons to distrust it."""
    for run in recorded.runs:
        h = run.header
        reasons = doubts(run)
        state: Text = strong(f"{'; '.join(reasons)}: conclude nothing") if reasons else run.state
        pieces = [
            f"{h.kind}, {h.started[:10]}, commit {(h.commit or 'none')[:8]}",
            f"{h.machine.cpu}, {h.machine.cores} cores, {h.machine.system.split('-with-')[0]}, Python {h.python}",
            f"{h.threads} thread{'s' if h.threads != 1 else ''} each, other processes used {h.busy_percent:.0f}% of the CPU",
            *_rates(run),
        ]
        yield [code(run.path.name), f": {'; '.join(pieces)}; ", state, "."]


def _rates(run: SpeedResults) -> Iterator[str]:
    """Yield the best rates measured with all threads."""
    bandwidths = [b for line in run.rooflines for b in line.bandwidth]
    if not bandwidths:
        return
    threads = max(b.threads for b in bandwidths)
    levels = []
    for level in dict.fromkeys(b.level for b in bandwidths):
        parallel = [b for b in bandwidths if b.level == level and b.threads == threads]
        best = max(b.reading for b in parallel), max(b.copying for b in parallel)
        levels.append(f"{level} {best[0] / 1e9:.0f}/{best[1] / 1e9:.0f}")
    yield f"bandwidth in GB/s, read/copy: {', '.join(levels)}"
    peaks = [p for line in run.rooflines for p in line.peak if p.threads == threads]
    if peaks:
        single, double = (max(getattr(p, name) for p in peaks) / 1e9 for name in ("float32", "float64"))
        yield f"peak in GFLOP/s: {single:.0f} float32, {double:.0f} float64"


def without_time(recorded: Recorded) -> list[Text]:
    """Return a line for each peer, op and outcome of rows without a time, wrong ones first."""
    absent = sorted({name for run in recorded.runs if run.summary for name in run.summary.absent})
    lines: list[Text] = []
    groups: dict[tuple[str, str, str], list[tuple[str, str]]] = defaultdict(list)  # each row and its reason
    for kernel in recorded.kernels:
        if not kernel.shown:
            outcome, reason = _outcome(kernel)
            row = f"{kernel.row.variant} {kernel.row.shape}".strip()
            groups[outcome, kernel.row.peer or "ours", kernel.op].append((row, reason))
    for trainer in recorded.trainers:
        if not trainer.shown:
            outcome, reason = _outcome(trainer)
            row = f"{trainer.row.workload} {trainer.row.model}"
            groups[outcome, trainer.row.target, ""].append((row, reason))
    ordered = sorted(groups.items(), key=lambda item: (item[0][0] != WRONG, item[0][0] == "absent"))
    if any(outcome == WRONG for outcome, *_ in groups):
        lines.append(
            [
                "An op that the conformance report grades ",
                grade(WRONG),
                " computes something else, so its time is not shown.",
            ]
        )
    for (outcome, peer, op), rows in ordered[:MOST]:
        label: Text = grade(outcome) if outcome == WRONG else strong(outcome)
        first, reason = rows[0]
        count = first if len(rows) == 1 else f"{len(rows)} rows"
        task: list[Text] = [code(op), f", {count}: "] if op else [f"as a trainer, {count}: "]
        example = f" (in {first}; other rows have other values)" if len({text for _, text in rows}) > 1 else ""
        lines.append([f"{peer}, ", *task, label, f": {reason}{example}" if reason else ""])
    if len(ordered) > MOST:
        lines.append(f"{len(ordered) - MOST} more are in the files.")
    if absent:
        lines.append(f"Peers without an environment on this machine: {', '.join(absent)}.")
    return lines


def _outcome(measurement: Kernel | Trainer) -> tuple[str, str]:
    """Return the grade or outcome, and the reason with the first evidence that does not hold."""
    row = measurement.row
    refuted = (
        []
        if isinstance(measurement, Trainer)
        else [
            _evidence(item) for item in measurement.row.evidence if not item.holds and item.quantity not in row.reason
        ]
    )
    reason = "; ".join(part for part in (row.reason, *refuted[:1]) if part)
    return WRONG if row.conformance == WRONG else row.outcome, reason


def _evidence(item: EvidenceRecord) -> str:
    return f"{item.quantity} is {item.observed:.6g}, must be {item.relation} {item.limit:.6g} ({item.because})"


def untimed_counts(recorded: Recorded) -> Text:
    """Return the number of rows without a time, by grade or outcome."""
    counts: dict[str, int] = defaultdict(int)
    measurements: list[Kernel | Trainer] = [*recorded.kernels, *recorded.trainers]
    for measurement in measurements:
        if not measurement.shown:
            counts[_outcome(measurement)[0]] += 1
    marks: dict[str, Marked] = {WRONG: grade(WRONG)}
    return joined([[f"{count} ", marks.get(name, strong(name))] for name, count in counts.items()], ", ")


def statements(recorded: Recorded) -> list[Text]:
    """Return the timed call of each op on both sides, with its conventions and the differences between the sides."""
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
            lines.append([code(op), ": ", strong("rlkernels"), " ", code(own), " · " if called else "", joined(called)])
    return lines


def _called(kernel: Kernel, *, only: bool) -> Text:
    """Return a peer's call, with its conventions if it was timed with only one set of them."""
    row = kernel.row
    remark = "; ".join(part for part in (row.variant if only else "", row.note) if part)
    statement: Text = code(row.theirs.statement) if row.theirs else ""
    return [strong(row.peer), " ", statement, f" ({remark})" if remark else ""]


def accuracy(recorded: Recorded) -> str:
    """Return the largest error of each side as a share of its limit, measured before timing."""
    worst: dict[str, float] = {}
    for item in _held(recorded):
        side = "rlkernels" if item.quantity.startswith("ours") else "a peer"
        worst[side] = max(worst.get(side, 0.0), item.observed / item.limit)
    shares = ", ".join(f"{short(share)} for {side}" for side, share in sorted(worst.items(), reverse=True))
    return f" The largest error, as a share of its limit, is {shares}." if worst else ""


def _held(recorded: Recorded) -> Iterable[EvidenceRecord]:
    for kernel in recorded.kernels:
        for item in kernel.row.evidence:
            if item.holds and item.relation == "<=" and item.limit:
                yield item


def versions(kernels: Sequence[Kernel]) -> str:
    """Return the distinct versions of the packages in the peers' interpreters."""
    packages: dict[str, set[str]] = defaultdict(set)
    for kernel in kernels:
        for name, version in kernel.row.versions.items():
            packages[name].add(version)
    return ", ".join(f"{name} {'/'.join(sorted(numbers))}" for name, numbers in sorted(packages.items()))
