"""A calibration in lines of text: the rate of each family, every false alarm with the command that shows it again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from gates.model import STATUSES, Status
from gates.report.calibration import Rate, flaky, rates, reproduces
from gates.results.escape import one_line
from gates.results.jsonl import Results


def lines(results: Results, problems: Iterable[str]) -> list[str]:
    """Return what a terminal shows in the end of a calibration, the full count last."""
    found = ["", *map(_bound, rates(results.blocks, families=True))]
    for block, alarm in flaky(results.blocks):
        again = reproduces(block, alarm, full=results.header.full)
        found.append(one_line(f"FALSE ALARM {block.subject} · {block.gate} · {block.case}: {alarm.reason}; {again}"))
    found += [one_line(f"NO SEPARATION {problem}") for problem in problems]
    counts: Counter[Status] = Counter()
    for block in results.blocks:
        counts.update(block.counts)
    said = [f"{counts['pass']} passed, {counts['fail']} failed"]
    said += [f"{counts[status]} {status}" for status in STATUSES if status not in {"pass", "fail"} and counts[status]]
    return [*found, "", one_line(f"results: {results.path}"), ", ".join(said)]


def _bound(rate: Rate) -> str:
    name = one_line(rate.name)
    if rate.bound is None:
        return f"{name:12} {rate.told}"
    return f"{name:12} {rate.alarms} of {rate.seeds} seeds with a false alarm: a rate of at most {rate.told} (95%)"
