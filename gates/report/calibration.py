"""A calibration as tables: pure functions of its blocks."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gates.calibration_rate import upper_bound
from gates.results.escape import code, in_table
from gates.results.jsonl import Results
from gates.results.records import AlarmRecord, BlockRecord, ShareRecord

MEASURED = frozenset(("pass", "fail", "error"))


@dataclass(frozen=True, slots=True)
class Rate:
    """How often a gate, or a family of gates, refused a correct subject.

    A seed counts once, however many of its cells raised an alarm: cells of one seed share their inputs, seeds share nothing.
    """

    name: str
    seeds: int  # at which every cell was judged
    verdicts: int
    alarms: int  # seeds with one at least
    bound: float | None  # of the rate, with 95% confidence; None: there is no such seed

    @property
    def told(self) -> str:
        """Return the bound in words, or why there is none."""
        if self.bound is not None:
            return f"{self.bound:.2g}"
        return "no seed was judged in every cell" if self.verdicts else "nothing was judged"


@dataclass(frozen=True, slots=True)
class Point:
    """What a plot shows of one claim: the largest share of its limit over the seeds of a cell."""

    gate: str
    subject: str
    case: str
    quantity: str
    share: float | None  # of what is no number, infinity; None: no limit is recorded yet
    seed: int
    seeds: int


def rates(blocks: Iterable[BlockRecord], *, families: bool = False) -> list[Rate]:
    """Return the rate of each gate, or of each family, in the order of their names."""
    cells: dict[str, dict[tuple[str, str, str], set[int]]] = defaultdict(lambda: defaultdict(set))
    verdicts: dict[str, int] = defaultdict(int)
    alarms: dict[str, set[int]] = defaultdict(set)
    for block in blocks:
        name = block.gate.partition(".")[0] if families else block.gate
        count = sum(number for status, number in block.counts.items() if status in MEASURED)
        verdicts[name] += count
        if count:
            cells[name][block.gate, block.subject, block.case] |= seeds_of(block)
        alarms[name].update(alarm.seed for alarm in block.alarms)
    found = []
    for name in sorted(verdicts):
        seeds = len(set.intersection(*cells[name].values())) if cells[name] else 0
        seen = len(alarms[name])
        bound = upper_bound(seen, max(seeds, seen)) if seeds else None
        found.append(Rate(name, seeds, verdicts[name], seen, bound))
    return found


def seeds_of(block: BlockRecord) -> set[int]:
    """Return the seeds at which a block measured something; a mixed block does not say which, so none."""
    measured = sum(count for status, count in block.counts.items() if status in MEASURED)
    return set(range(block.first_seed, block.first_seed + block.seeds)) if measured == block.seeds else set()


def points(blocks: Iterable[BlockRecord]) -> list[Point]:
    """Return every claim of every cell with its largest share, blocks of one cell together."""
    worst: dict[tuple[str, str, str, str], tuple[float | None, int]] = {}
    seeds: dict[tuple[str, str, str], int] = defaultdict(int)
    for block in blocks:
        seeds[block.gate, block.subject, block.case] += block.seeds
        for item in block.shares:
            key = (block.gate, block.subject, block.case, item.quantity)
            share = math.inf if item.share is not None and math.isnan(item.share) else item.share
            before = worst[key][0] if key in worst else None
            if key not in worst or (share is not None and (before is None or share > before)):
                worst[key] = (share, item.seed)
    return [Point(g, s, c, q, share, seed, seeds[g, s, c]) for (g, s, c, q), (share, seed) in sorted(worst.items())]


def flaky(blocks: Iterable[BlockRecord]) -> list[tuple[BlockRecord, AlarmRecord]]:
    """Return every false alarm with its block, by gate, subject, case and seed."""
    found = [(block, alarm) for block in blocks for alarm in block.alarms]
    return sorted(found, key=lambda pair: (pair[0].gate, pair[0].subject, pair[0].case, pair[1].seed))


def reproduces(block: BlockRecord, alarm: AlarmRecord, *, full: bool) -> str:
    """Return the command that shows an alarm again."""
    return f"gates check {block.gate} --seed {alarm.seed} --subject {block.subject}{' --full' if full else ' --quick'}"


def lines(run: Results) -> list[str]:
    """Return the tables of one calibration: alarms, families, gates."""
    result = []
    if run.summary and run.summary.problems:
        result += ["### What else fails the run", "", *(f"- {in_table(words)}" for words in run.summary.problems), ""]
    if alarms := flaky(run.blocks):
        result += ["### False alarms", ""]
        for block, alarm in alarms:
            words = f"{block.subject} {block.case}, seed {alarm.seed}: {alarm.status} ({alarm.cause}): {alarm.reason}"
            again = code(reproduces(block, alarm, full=run.header.full))
            result.append(f"- **{code(block.gate)}** {in_table(words)}; {again}")
        result.append("")
    result += [
        "A seed with an alarm counts once, however many cells it touches. The bound is the exact 95% upper bound of the",
        "rate per seed (Clopper and Pearson); without an alarm it is 1 − 0.05^(1/n), just below the rule of three, 3/n.",
        "",
        "### False alarms by family",
        "",
        "| family | seeds | verdicts | seeds with an alarm | rate at most (95%) |",
        "|---|---|---|---|---|",
        *(f"| {_counts(rate)} |" for rate in rates(run.blocks, families=True)),
        "",
        "### False alarms by gate",
        "",
        "| gate | seeds | verdicts | seeds with an alarm | rate at most (95%) | largest share of a limit | where |",
        "|---|---|---|---|---|---|---|",
    ]
    worst = _worst(points(run.blocks))
    for rate in rates(run.blocks):
        point = worst.get(rate.name)
        share = "exact" if point is None or point.share is None else share_words(point.share)
        where = (
            ""
            if point is None
            else f"{in_table(f'{point.quantity}: {point.subject}, {point.case}')}, seed {point.seed}"
        )
        result.append(f"| {_counts(rate, gate=True)} | {share} | {where} |")
    result.append("")
    if unlimited := _unlimited(run.blocks):
        result += ["### Claims without a recorded limit", ""]
        result += [
            f"- {code(gate)} {in_table(f'{subject} {case}: {quantity}')}" for gate, subject, case, quantity in unlimited
        ] + [""]
    holes = _holes(run.blocks)
    if holes:
        result += ["### Not judged", "", *holes, ""]
    if run.summary and (elsewhere := _elsewhere(run)):
        result += ["### Judged in other files", ""]
        result += [f"These gates have all their seeds in files that were recorded before: {', '.join(elsewhere)}.", ""]
    return result


def _elsewhere(run: Results) -> list[str]:
    """Return the gates of which nothing was left to judge."""
    here = {block.gate for block in run.blocks}
    return [code(gate) for gate in run.header.gates if run.header.beside and gate not in here]


def _counts(rate: Rate, *, gate: bool = False) -> str:
    name = code(rate.name, cell=True) if gate else in_table(rate.name)
    alarms = f"**{rate.alarms}**" if rate.alarms else "0"
    return f"{name} | {rate.seeds} | {rate.verdicts} | {alarms} | {rate.told}"


def share_words(share: float) -> str:
    """Return a share of a limit in words."""
    return "not finite" if math.isinf(share) else f"{share:.2g}"


def _worst(found: Sequence[Point]) -> dict[str, Point]:
    worst: dict[str, Point] = {}
    largest: dict[str, float] = {}
    for point in found:
        if point.share is not None and (point.gate not in worst or point.share > largest[point.gate]):
            worst[point.gate], largest[point.gate] = point, point.share
    return worst


def _unlimited(blocks: Iterable[BlockRecord]) -> list[tuple[str, str, str, str]]:
    def bare(block: BlockRecord) -> list[ShareRecord]:
        return [item for item in block.shares if item.share is None]

    return sorted({(b.gate, b.subject, b.case, item.quantity) for b in blocks for item in bare(b)})


def _holes(blocks: Iterable[BlockRecord]) -> list[str]:
    cells: dict[tuple[str, str], set[tuple[str, str]]] = defaultdict(set)
    for block in blocks:
        for status in block.counts:
            if status in {"skipped", "unsupported"}:
                cells[status, block.subject].add((block.gate, block.case))
    return [
        f"- {in_table(f'{status}: {subject}: {len(found)} cells')}"
        for (status, subject), found in sorted(cells.items())
    ]
