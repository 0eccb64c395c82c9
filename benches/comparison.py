"""Conduct `gates bench compare`: build both revisions, run the pairs, write and print the records."""

from __future__ import annotations

import contextlib
import time

from benches import compare
from benches.header import header, writer

COLUMNS = ("benchmark", "A µs", "B µs", "B over A", "95% interval", "control", "verdict")


def run(left, right, *, names, pairs, seconds, floor, count, record, as_json, echo):
    """Compare two revisions; return 1 if a benchmark is slower, else 0.

    Args:
        left: revision A.
        right: revision B; "." is the build in .venv.
        names: of calls.CALLS; none for the default ones.
        pairs: of processes, even.
        seconds: of sampling per call and process.
        floor: the least relative effect that counts.
        count: also count instructions with valgrind.
        record: write to results/bench.
        as_json: print records as JSON lines.
        echo: prints a line; `echo(line, err=True)` one of progress.

    Raises:
        CompareError: a revision is unknown or does not build, or too few pairs are to be recorded.
    """
    from gates.results.speed_records import SpeedSummary

    started = time.monotonic()
    if record and pairs < compare.PAIRS:
        raise compare.CompareError(
            f"--record is given with --pairs {pairs}, must be given with at least {compare.PAIRS}"
        )
    names = compare.known(names)
    sides = [compare.build(revision, lambda line: echo(line, err=True)) for revision in (left, right)]
    out = writer("comparison", record=record)
    out.write(header("comparison", threads=1, quick=pairs < compare.PAIRS, planned=len(names)))
    records = []
    with contextlib.closing(out):
        for name in names:
            echo(f"{name}: {pairs} pairs of processes, about {pairs * 2 * (0.2 + seconds):.0f} s", err=True)
            compared = _one(name, sides, pairs=pairs, seconds=seconds, floor=floor, count=count)
            out.write(compared)
            records.append(compared)
            if as_json:
                echo(compared.model_dump_json())
        counts = {outcome: sum(r.outcome == outcome for r in records) for outcome in {r.outcome for r in records}}
        out.write(SpeedSummary(counts=counts, seconds=round(time.monotonic() - started, 1)))
    if not as_json:
        _print(sides, records, floor, echo)
        echo(f"written to {out.path}")
    slower = [compared.benchmark for compared in records if compared.verdict == "slower"]
    return 1 if slower else 0


def _one(name, sides, *, pairs, seconds, floor, count):
    from gates.results.speed_records import ComparisonRecord, Interval

    taken = compare.in_pairs(*sides, [name], pairs=pairs, seconds=seconds)[name]
    ratio, control, verdict = compare.judged(*taken, floor)
    counted = {}
    if count:
        left, right = (compare.instructions(side, name) for side in sides)
        counted = {"left_instructions": left, "right_instructions": right}
    return ComparisonRecord(
        benchmark=name,
        left=sides[0].name,
        right=sides[1].name,
        outcome="timed",
        pairs=pairs,
        left_us=1e6 * sorted(taken[0])[pairs // 2],
        right_us=1e6 * sorted(taken[1])[pairs // 2],
        ratio=Interval(value=ratio.value, low=ratio.low, high=ratio.high),
        control=Interval(value=control.value, low=control.low, high=control.high),
        floor=floor,
        verdict=verdict,
        **counted,
    )


def _print(sides, records, floor, echo):
    from rich.console import Console
    from rich.table import Table

    table = Table(*COLUMNS, box=None, pad_edge=False)
    counted = any(compared.left_instructions for compared in records)
    if counted:
        table.add_column("instructions")
    for compared in records:
        cells = [
            compared.benchmark,
            f"{compared.left_us:.3g}",
            f"{compared.right_us:.3g}",
            f"{compared.ratio.value:.3f}",
            f"{compared.ratio.low:.3f} to {compared.ratio.high:.3f}",
            f"{compared.control.value:.3f}",
            compared.verdict,
        ]
        if counted and compared.left_instructions:
            cells.append(f"{compared.right_instructions / compared.left_instructions:.4f}")
        table.add_row(*cells)
    echo(f"A is {sides[0].name}, B is {sides[1].name}")
    Console(soft_wrap=True).print(table)
    slower = [compared.benchmark for compared in records if compared.verdict == "slower"]
    verdict = f"slower in B: {', '.join(slower)}" if slower else "nothing is slower in B"
    echo(f"{verdict} (an interval without 1 and an effect above {floor:.0%}); control: one build over itself")
