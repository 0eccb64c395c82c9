"""Render a calibration as tables and text: pure functions of its lines, of one run or of the summary."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache

from gates.model import STATUSES, Status
from gates.results.calibration_records import CalibrationRecord, FalsePositiveRecord, seeds_of
from gates.results.escape import code, in_table, one_line
from gates.results.jsonl import Results
from gates.run.calibration_summary import counts

CONFIDENCE = 0.95
DTYPES = re.compile(r"(?:^|-)(float64|float32|float16|bfloat16|uint32|int32)(?:-|$)")
Name = tuple[str, ...]  # key of a rate: a family, a gate, or a gate with backend, BLAS, dtype and draws


@dataclass(slots=True)
class Rate:
    """How often a gate, or a family of gates, refused a correct subject.

    A seed with several refused cases counts once: cases of one seed share inputs, seeds are independent.
    """

    judged: dict[tuple[str, str, str], frozenset[int]] = field(default_factory=dict)  # gate, subject, case
    refused: set[int] = field(default_factory=set)
    commits: dict[str, None] = field(default_factory=dict)

    @property
    def seeds(self) -> int:
        """Return the number of seeds at which every case was judged."""
        return len(frozenset.intersection(*self.judged.values())) if self.judged else 0

    @property
    def verdicts(self) -> int:
        """Return the number of verdicts."""
        return sum(map(len, self.judged.values()))

    @property
    def bound(self) -> float | None:
        """Return the 95% upper bound of the rate; None if no seed was judged in every case."""
        return upper_bound(len(self.refused), max(self.seeds, len(self.refused))) if self.seeds else None

    @property
    def label(self) -> str:
        """Format the bound, or the reason for its absence."""
        if (bound := self.bound) is not None:
            return f"{bound:.2g}"
        return "no seed was judged in every case" if self.judged else "nothing was judged"


def upper_bound(refused: int, seeds: int, confidence: float = CONFIDENCE) -> float:
    """Return the exact one-sided upper bound of a rate (Clopper and Pearson, 1934).

    At this rate, the probability of at most as many false positives is 1 − confidence. Without a false positive it is
    1 − (1 − confidence)^(1/n), at 95% just below the rule of three, 3/n.

    Raises:
        ValueError: there are no seeds, or more false positives than seeds.
    """
    if not 0 <= refused <= seeds or seeds < 1:
        raise ValueError(
            f"{refused} of {seeds} seeds: expected at least one seed, and at most as many false positives as seeds"
        )
    if refused == seeds:
        return 1.0
    if refused == 0:
        return float(-math.expm1(math.log1p(-confidence) / seeds))
    low, high = refused / seeds, 1.0
    for _ in range(60):  # bisection to the last bit of a float64
        middle = (low + high) / 2
        low, high = (middle, high) if _at_most(refused, seeds, middle) > 1 - confidence else (low, middle)
    return high


def _at_most(refused: int, seeds: int, rate: float) -> float:
    """Return the binomial probability of at most `refused` false positives."""
    if rate >= 1.0:
        return 0.0
    log_factorial = math.lgamma(seeds + 1)
    logs = (
        log_factorial
        - math.lgamma(k + 1)
        - math.lgamma(seeds - k + 1)
        + k * math.log(rate)
        + (seeds - k) * math.log1p(-rate)
        for k in range(refused + 1)
    )
    return math.fsum(map(math.exp, logs))


def family(line: CalibrationRecord, _case: str) -> Name:
    """Return the family: the first part of the gate's id."""
    return (line.gate.partition(".")[0],)


def gate(line: CalibrationRecord, _case: str) -> Name:
    """Return the gate."""
    return (line.gate,)


def platform(line: CalibrationRecord, case: str) -> Name:
    """Return the gate, the backend, the BLAS, the dtype in the case's name, and a mark if all draws were judged."""
    dtype = DTYPES.search(case)
    return line.gate, line.backend, line.blas, dtype[1] if dtype else "", "(all draws)" * line.full


@cache
def _seeds(text: str) -> frozenset[int]:
    return frozenset(seeds_of(text))


def rates(lines: Iterable[CalibrationRecord], name: Callable[[CalibrationRecord, str], Name]) -> dict[Name, Rate]:
    """Return the rate of each name, sorted by name."""
    by_name: dict[Name, Rate] = defaultdict(Rate)
    for line in lines:
        for kind, cases in line.seeds.items():
            for case, text in cases.items():
                rate = by_name[name(line, case)]
                if kind == "judged":
                    key = (line.gate, line.subject, case)
                    rate.judged[key] = rate.judged.get(key, frozenset()) | _seeds(text)
                    rate.commits |= dict.fromkeys(line.commits)
        for item in line.false_positives:
            by_name[name(line, item.case)].refused.add(item.seed)
    return dict(sorted(by_name.items()))


def nearest(lines: Iterable[CalibrationRecord]) -> dict[str, tuple[float, str]]:
    """Return the largest share of a limit at each gate, and where; exact claims have no share."""
    shares: dict[str, tuple[float, str]] = {}
    for line in lines:
        for item in line.nearest:
            if item.share is not None:
                share = math.inf if math.isnan(item.share) else item.share
                where = f"{item.quantity}: {line.subject}, {item.case}, seed {item.seed}"
                shares[line.gate] = max(shares.get(line.gate, (-math.inf, "")), (share, where))
    return shares


def share_label(share: float | None) -> str:
    """Format a share of a limit."""
    if share is None:
        return "exact"
    return "not finite" if math.isinf(share) else f"{share:.2g}"


def refused(lines: Iterable[CalibrationRecord]) -> list[tuple[CalibrationRecord, FalsePositiveRecord, str]]:
    """Return every false positive with its line and the command that reproduces it."""
    items = [(line, item, _command(line, item)) for line in lines for item in line.false_positives]
    return sorted(items, key=lambda entry: (entry[0].gate, entry[0].subject, entry[1].case, entry[1].seed))


def _command(line: CalibrationRecord, item: FalsePositiveRecord) -> str:
    draws = "--full" if line.full else "--quick"
    return f"gates check {line.gate} --seed {item.seed} --subject {line.subject} {draws}"


def summary(run: Results) -> list[str]:
    """Return the false positives, and the rate of each family."""
    return [*_refused(run), *_families(run.calibrations)]


def markdown(run: Results) -> list[str]:
    """Return the tables of a calibration: false positives, and the rates by family, gate and platform."""
    lines = run.calibrations
    result = [
        *_refused(run),
        "A seed counts if every case was judged at it, and counts once if several of its cases have a false positive. The",
        "bound is the exact 95% upper bound of the rate per seed (Clopper and Pearson); without a false positive it is",
        "1 − 0.05^(1/n), just below the rule of three, 3/n.",
        "",
        "### False positives by family",
        "",
        *_families(lines),
        "### False positives by gate",
        "",
        "| gate | seeds | verdicts | seeds with a false positive | upper bound of the rate (95%) | largest share of a limit | where |",
        "|---|---|---|---|---|---|---|",
    ]
    shares = nearest(lines)
    for (name,), rate in rates(lines, gate).items():
        share, where = shares.get(name, (None, ""))
        result.append(f"| {code(name, cell=True)} | {_numbers(rate)} | {share_label(share)} | {in_table(where)} |")
    result += [
        "",
        "### False positives by backend, BLAS and dtype",
        "",
        "| gate | backend | BLAS | dtype | seeds | verdicts | seeds with a false positive | upper bound of the rate (95%) | commits |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_row(name, rate) for name, rate in rates(lines, platform).items() if rate.judged or rate.refused),
        "",
    ]
    if unjudged := _unjudged(lines):
        result += ["### Not judged", "", *unjudged, ""]
    if run.header.beside:
        names = ", ".join(map(code, run.header.beside))
        result += [f"The run skipped the seeds that {names} had at its start.", ""]
    return result


def _refused(run: Results) -> list[str]:
    """Return the false positives of a calibration."""
    result = []
    if false_positives := refused(run.calibrations):
        result += ["### False positives", ""]
        for line, item, command in false_positives:
            description = f"{line.subject} {item.case}, seed {item.seed}: {item.status} ({item.cause}): {item.reason}"
            result.append(f"- **{code(line.gate)}** {in_table(description)}; {code(command)}")
        result.append("")
    return result


def _families(lines: Iterable[CalibrationRecord]) -> list[str]:
    return [
        "| family | seeds | verdicts | seeds with a false positive | upper bound of the rate (95%) |",
        "|---|---|---|---|---|",
        *(f"| {in_table(name[0])} | {_numbers(rate)} |" for name, rate in rates(lines, family).items()),
        "",
    ]


def _numbers(rate: Rate) -> str:
    refused_ = f"**{len(rate.refused)}**" if rate.refused else "0"
    return f"{rate.seeds} | {rate.verdicts} | {refused_} | {rate.label}"


def _row(name: Name, rate: Rate) -> str:
    gate_, backend, blas, dtype, draws = name
    names = " | ".join((f"{code(gate_, cell=True)} {draws}".rstrip(), in_table(backend), in_table(blas), dtype or "–"))
    return f"| {names} | {_numbers(rate)} | {in_table(', '.join(rate.commits))} |"


def _unjudged(lines: Iterable[CalibrationRecord]) -> list[str]:
    cases: Counter[tuple[str, str]] = Counter()
    for line in lines:
        cases.update({(kind, line.subject): len(texts) for kind, texts in line.seeds.items() if kind != "judged"})
    return [f"- {in_table(f'{kind}: {subject}: {count} cases')}" for (kind, subject), count in sorted(cases.items())]


def text(run: Results) -> list[str]:
    """Return the lines that a terminal shows after a calibration, the total last."""
    lines = run.calibrations
    result = [""]
    for (name,), rate in rates(lines, family).items():
        bound = f"a rate of at most {rate.label} (95%)"
        result_of_family = (
            f"{len(rate.refused)} of {rate.seeds} seeds with a false positive: {bound}" if rate.seeds else rate.label
        )
        result.append(one_line(f"{name:12} {result_of_family}"))
    for line, item, command in refused(lines):
        where = f"{line.subject} · {line.gate} · {item.case}"
        result.append(one_line(f"FALSE POSITIVE {where}: {item.reason}; {command}"))
    totals = sum(map(counts, lines), Counter[Status]())
    parts = [f"{totals['correct']} correct, {totals['wrong']} wrong"]
    parts += [
        f"{totals[status]} {status}" for status in STATUSES if status not in ("correct", "wrong") and totals[status]
    ]
    return [*result, "", one_line(f"results: {run.path}"), ", ".join(parts)]
