"""Render recorded speeds as markdown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from gates.results.records import EvidenceRecord
from gates.results.speed_file import SpeedResults, bound
from gates.results.speed_records import Interval, SpeedRecord

BUSY_PERCENT = 10.0
INTRODUCTION = """# Speed against the peers' own code

Rendered by `gates report` from the JSONL named below; every number is in it.

**How.** Both sides run in one process, in turns, on the same data and with the same number of threads, each from the
array type that is native to it (NumPy, torch or MLX), made beforehand. Before timing, both results are compared with
the float64 oracle of `reference`; a side that is wrong gets a verdict and no speed. A sample is the mean of so many
calls that it takes at least 0.2 ms, after a pause (in which the other side's threads go to sleep) and an untimed call.
The ratio is the baseline's median over ours, with a 95% interval by bootstrap over rounds; the control is ours over ours
in the same rounds and shows the noise. *met* and *missed* need the whole interval, widened by the
control's, on one side of the goal; otherwise the row is *undecided*. The roofline is the longer of moving the bytes that any implementation must move and doing the
operations that it must do, at the best rates that `benches/versus/roofline.rs` reaches before or after the rows, by the
level of cache that the data fits in; calling from Python is not in it, so tiny jobs stay far below.

**Our bias.** We wrote the kernels, chose the shapes and chose the machine. Peers do more than the op in places, and we
take the part that is the op: TRL's advantages and packing are timed as TRL's own statements, cut from the installed
source at run time, without the bookkeeping around them. rlox packs only whole sequences, so its time holds the copying
of tokens, which ours does not do. torch and MLX are general frameworks that also run on accelerators, where these
ratios say nothing. Our results are float64-accurate, theirs often are not; that is not credited here.
"""


def render_speed(runs: Iterable[SpeedResults]) -> str:
    """Return one document over all runs, in the order given."""
    parts = [INTRODUCTION]
    for run in runs:
        parts += _run(run)
    return "\n".join(parts).rstrip() + "\n"


def _run(run: SpeedResults) -> list[str]:
    lines = _head(run)
    families: dict[str, list[SpeedRecord]] = defaultdict(list)
    for row in run.rows:
        families[row.op].append(row)
    for op, rows in families.items():
        lines += [f"### {op}", "", *_table(rows, run), *_remarks(rows)]
    if run.summary:
        goals = ", ".join(f"{n} {name}" for name, n in run.summary.goals.items())
        lines += [f"Goals: {goals}. {run.summary.seconds:.0f} s in all.", ""]
    return lines


def _head(run: SpeedResults) -> list[str]:
    h = run.header
    commit = f"{h.commit[:12]}{' (dirty)' if h.dirty else ''}" if h.commit else "no checkout"
    build = ", ".join(f"{k} {_plain(v)}" for k, v in h.build.items())
    rows = [
        ("state", run.state + _doubts(run)),
        ("command", f"`{' '.join(h.command)}`"),
        ("started", f"{h.started}, commit {commit}"),
        ("machine", f"{h.machine.cpu}, {h.machine.cores} cores, {h.machine.system}: {' '.join(h.machine.features)}"),
        ("instruction set", h.isa or "the best of the machine"),
        ("rlkernels", build),
        ("versions", ", ".join(f"{k} {v}" for k, v in h.versions.items())),
        ("threads", ", ".join(f"{k} {v}" for k, v in h.threads.items())),
        ("used by others", f"{h.busy_percent:.0f}% of the processors, in the second before the rows"),
    ]
    for line in run.rooflines:
        most = max(b.threads for b in line.bandwidth)
        levels = [f"{b.level} {b.reading / 1e9:.0f}/{b.copying / 1e9:.0f}" for b in line.bandwidth if b.threads == most]
        peak = next(p for p in line.peak if p.threads == most)
        rates = f"read/copied GB/s {', '.join(levels)}; GFLOP/s {peak.float32 / 1e9:.0f} float32, {peak.float64 / 1e9:.0f} float64"
        rows.append((f"rates {line.when}", f"{most} threads: {rates}"))
    return [f"## {run.path.stem}", "", "| | |", "|---|---|", *(f"| {k} | {_escape(v)} |" for k, v in rows), ""]


def _doubts(run: SpeedResults) -> str:
    doubts = ["a smoke test"] if run.header.quick else []
    if run.header.busy_percent > BUSY_PERCENT:
        doubts.append("the machine was busy, and peers that wait for their threads look slower than they are")
    return f" ({'; '.join(doubts)}: conclude nothing)" if doubts else ""


def _table(rows: list[SpeedRecord], run: SpeedResults) -> list[str]:
    lines = [
        "| shape | against | ours µs | theirs µs | times faster | goal | control | rounds | roofline |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        ours = _time(row.ours.median_us) if row.ours else ""
        theirs = _time(row.theirs.median_us) if row.theirs else ""
        outcome = _interval(row.ratio) if row.ratio else "" if row.outcome == "timed" else f"**{row.outcome}**"
        cells = [
            row.shape,
            row.baseline or "–",
            ours,
            theirs,
            outcome,
            _goal(row),
            _interval(row.control),
            str(row.rounds or ""),
        ]
        lines.append("| " + " | ".join([*cells, _roofline(row, run)]) + " |")
    return [*lines, ""]


def _goal(row: SpeedRecord) -> str:
    if row.goal is None:
        return ""
    wanted = f"≥ {row.goal:g}" if row.baseline else f"≤ {row.goal:g} µs"
    if row.goal_met is None:
        return wanted
    return f"{wanted} {row.goal_met}" if row.goal_met == "met" else f"{wanted} **{row.goal_met}**"


def _roofline(row: SpeedRecord, run: SpeedResults) -> str:
    limit = bound(row, run.rooflines)
    if limit is None or row.ours is None:
        return ""
    share = limit.microseconds / row.ours.median_us
    wanted = "" if row.roofline_goal is None else f", ≥ {row.roofline_goal:g}"
    if row.roofline_goal is not None:
        wanted += " met" if share >= row.roofline_goal else " **missed**"
    return f"{share:.2f} of {_time(limit.microseconds)} µs ({limit.limited_by}, {limit.threads} thr){wanted}"


def _remarks(rows: list[SpeedRecord]) -> list[str]:
    lines = [line for row in rows for line in _statements(row)] + [line for row in rows for line in _refusals(row)]
    worst: dict[str, float] = {}
    for item in (item for row in rows for item in row.evidence):
        if item.holds and item.relation == "<=" and item.limit:
            worst[item.quantity] = max(worst.get(item.quantity, 0.0), item.observed / item.limit)
    if worst:
        shares = ", ".join(f"{_escape(name)} {share:.2g}" for name, share in sorted(worst.items()))
        lines.append(f"- verified before timing, largest share of the limit: {shares}")
    return [*dict.fromkeys(lines), ""]  # each line once, in order


def _statements(row: SpeedRecord) -> list[str]:
    lines = [
        f"- {who}: `{times.statement}`" for who, times in (("ours", row.ours), (row.baseline, row.theirs)) if times
    ]
    return [*lines, f"- {row.baseline or 'alone'}: {_escape(row.note)}"] if row.note else lines


def _refusals(row: SpeedRecord) -> list[str]:
    who = f"- {row.baseline or row.op} {row.shape}"
    lines = [f"{who}: {_evidence(item)}" for item in row.evidence if not item.holds]
    return lines if row.outcome == "timed" else [*lines, f"{who}: {row.outcome}: {_escape(row.reason)}"]


def _evidence(item: EvidenceRecord) -> str:
    return _escape(f"{item.quantity} is {item.observed:.6g}, must be {item.relation} {item.limit:.6g} ({item.because})")


def _interval(found: Interval | None) -> str:
    return "" if found is None else f"{found.value:.3g} ({found.low:.3g}–{found.high:.3g})"


def _time(microseconds: float) -> str:
    return f"{microseconds:.3g}" if microseconds < 1000 else f"{microseconds:,.0f}"


def _plain(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
