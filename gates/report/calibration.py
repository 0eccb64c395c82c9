"""A calibration as tables and text: pure functions of its lines, be they of one run or of the summary of all."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache

from gates.model import STATUSES, Status
from gates.results.escape import code, in_table, one_line
from gates.results.jsonl import Results
from gates.results.records import CalibrationRecord, FalsePositiveRecord, seeds_of
from gates.run.calibration_summary import counts

CONFIDENCE = 0.95
DTYPES = re.compile(r"(?:^|-)(float64|float32|float16|bfloat16|uint32|int32)(?:-|$)")
Name = tuple[str, ...]  # what a rate is of: a family, a gate, or a gate with backend, BLAS, dtype and draws


@dataclass(slots=True)
class Rate:
    """How often a gate, or a family of gates, refused a correct subject.

    A seed counts once, however many of its cases were refused: cases of one seed share their inputs, seeds share nothing.
    """

    judged: dict[tuple[str, str, str], frozenset[int]] = field(default_factory=dict)  # gate, subject, case
    refused: set[int] = field(default_factory=set)
    commits: dict[str, None] = field(default_factory=dict)

    @property
    def seeds(self) -> int:
        """Return how many seeds every case was judged at."""
        return len(frozenset.intersection(*self.judged.values())) if self.judged else 0

    @property
    def verdicts(self) -> int:
        """Return how many verdicts there are."""
        return sum(map(len, self.judged.values()))

    @property
    def bound(self) -> float | None:
        """Return the upper bound of the rate with 95% confidence; None where no seed was judged in every case."""
        return upper_bound(len(self.refused), max(self.seeds, len(self.refused))) if self.seeds else None

    @property
    def words(self) -> str:
        """Return the bound in words, or why there is none."""
        if (bound := self.bound) is not None:
            return f"{bound:.2g}"
        return "no seed was judged in every case" if self.judged else "nothing was judged"


def upper_bound(refused: int, seeds: int, confidence: float = CONFIDENCE) -> float:
    """Return the exact one-sided upper bound of a rate (Clopper and Pearson, 1934).

    It is the rate at which so few false positives or fewer have a chance of 1 − confidence. Without any that is
    1 − (1 − confidence)^(1/n), at 95% just below the rule of three, 3/n.

    Raises:
        ValueError: if there were no seeds, or more false positives than seeds.
    """
    if not 0 <= refused <= seeds or seeds < 1:
        raise ValueError(f"{refused} of {seeds} seeds: there must be seeds, and no more false positives than seeds")
    if refused == seeds:
        return 1.0
    if refused == 0:
        return float(-math.expm1(math.log1p(-confidence) / seeds))
    low, high = refused / seeds, 1.0
    for _ in range(60):  # to the last bit of a float64
        middle = (low + high) / 2
        low, high = (middle, high) if _at_most(refused, seeds, middle) > 1 - confidence else (low, middle)
    return high


def _at_most(refused: int, seeds: int, rate: float) -> float:
    """Return the chance of at most so many false positives."""
    if rate >= 1.0:
        return 0.0
    every = math.lgamma(seeds + 1)
    logs = (
        every - math.lgamma(k + 1) - math.lgamma(seeds - k + 1) + k * math.log(rate) + (seeds - k) * math.log1p(-rate)
        for k in range(refused + 1)
    )
    return math.fsum(map(math.exp, logs))


def family(line: CalibrationRecord, _case: str) -> Name:
    """Return the first word of the gate's id."""
    return (line.gate.partition(".")[0],)


def gate(line: CalibrationRecord, _case: str) -> Name:
    """Return the gate."""
    return (line.gate,)


def place(line: CalibrationRecord, case: str) -> Name:
    """Return the gate, the backend, the BLAS, the dtype that the case's name says, and whether all draws were judged."""
    dtype = DTYPES.search(case)
    return line.gate, line.backend, line.blas, dtype[1] if dtype else "", "(all draws)" * line.full


@cache
def _seeds(text: str) -> frozenset[int]:
    return frozenset(seeds_of(text))


def rates(lines: Iterable[CalibrationRecord], name: Callable[[CalibrationRecord, str], Name]) -> dict[Name, Rate]:
    """Return the rate of each name, in order."""
    found: dict[Name, Rate] = defaultdict(Rate)
    for line in lines:
        for kind, cases in line.seeds.items():
            for case, text in cases.items():
                rate = found[name(line, case)]
                if kind == "judged":
                    key = (line.gate, line.subject, case)
                    rate.judged[key] = rate.judged.get(key, frozenset()) | _seeds(text)
                    rate.commits |= dict.fromkeys(line.commits)
        for item in line.false_positives:
            found[name(line, item.case)].refused.add(item.seed)
    return dict(sorted(found.items()))


def nearest(lines: Iterable[CalibrationRecord]) -> dict[str, tuple[float, str]]:
    """Return the largest share of a limit that each gate saw, and where; a claim without a limit has none."""
    found: dict[str, tuple[float, str]] = {}
    for line in lines:
        for item in line.nearest:
            if item.share is not None:
                share = math.inf if math.isnan(item.share) else item.share
                where = f"{item.quantity}: {line.subject}, {item.case}, seed {item.seed}"
                found[line.gate] = max(found.get(line.gate, (-math.inf, "")), (share, where))
    return found


def share_words(share: float | None) -> str:
    """Return a share of a limit in words."""
    if share is None:
        return "exact"
    return "not finite" if math.isinf(share) else f"{share:.2g}"


def refused(lines: Iterable[CalibrationRecord]) -> list[tuple[CalibrationRecord, FalsePositiveRecord, str]]:
    """Return every false positive with its line and the command that shows it again."""
    found = [(line, item, _again(line, item)) for line in lines for item in line.false_positives]
    return sorted(found, key=lambda one: (one[0].gate, one[0].subject, one[1].case, one[1].seed))


def _again(line: CalibrationRecord, item: FalsePositiveRecord) -> str:
    draws = "--full" if line.full else "--quick"
    return f"gates check {line.gate} --seed {item.seed} --subject {line.subject} {draws}"


def summary(run: Results) -> list[str]:
    """Return what is not in order, and the rate of each family."""
    return [*_refused(run), *_families(run.calibrations)]


def markdown(run: Results) -> list[str]:
    """Return the tables of a calibration: false positives, families, gates, places."""
    lines = run.calibrations
    result = [
        *_refused(run),
        "A seed with a false positive counts once, however many cases it touches, and a seed counts where every case was",
        "judged at it. The bound is the exact 95% upper bound of the rate per seed (Clopper and Pearson); without a false",
        "positive it is 1 − 0.05^(1/n), just below the rule of three, 3/n.",
        "",
        "### False positives by family",
        "",
        *_families(lines),
        "### False positives by gate",
        "",
        "| gate | seeds | verdicts | seeds with a false positive | rate at most (95%) | largest share of a limit | where |",
        "|---|---|---|---|---|---|---|",
    ]
    near = nearest(lines)
    for (name,), rate in rates(lines, gate).items():
        share, where = near.get(name, (None, ""))
        result.append(f"| {code(name, cell=True)} | {_numbers(rate)} | {share_words(share)} | {in_table(where)} |")
    result += [
        "",
        "### False positives by backend, BLAS and dtype",
        "",
        "| gate | backend | BLAS | dtype | seeds | verdicts | seeds with a false positive | rate at most (95%) | commits |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_row(name, rate) for name, rate in rates(lines, place).items() if rate.judged or rate.refused),
        "",
    ]
    if holes := _holes(lines):
        result += ["### Not judged", "", *holes, ""]
    if run.header.beside:
        names = ", ".join(map(code, run.header.beside))
        result += [f"Seeds that {names} had when the run began were not judged again.", ""]
    return result


def _refused(run: Results) -> list[str]:
    """Return the false positives of a calibration."""
    result = []
    if found := refused(run.calibrations):
        result += ["### False positives", ""]
        for line, item, again in found:
            words = f"{line.subject} {item.case}, seed {item.seed}: {item.status} ({item.cause}): {item.reason}"
            result.append(f"- **{code(line.gate)}** {in_table(words)}; {code(again)}")
        result.append("")
    return result


def _families(lines: Iterable[CalibrationRecord]) -> list[str]:
    return [
        "| family | seeds | verdicts | seeds with a false positive | rate at most (95%) |",
        "|---|---|---|---|---|",
        *(f"| {in_table(name[0])} | {_numbers(rate)} |" for name, rate in rates(lines, family).items()),
        "",
    ]


def _numbers(rate: Rate) -> str:
    refused_ = f"**{len(rate.refused)}**" if rate.refused else "0"
    return f"{rate.seeds} | {rate.verdicts} | {refused_} | {rate.words}"


def _row(name: Name, rate: Rate) -> str:
    gate_, backend, blas, dtype, draws = name
    names = " | ".join((f"{code(gate_, cell=True)} {draws}".rstrip(), in_table(backend), in_table(blas), dtype or "–"))
    return f"| {names} | {_numbers(rate)} | {in_table(', '.join(rate.commits))} |"


def _holes(lines: Iterable[CalibrationRecord]) -> list[str]:
    cases: Counter[tuple[str, str]] = Counter()
    for line in lines:
        cases.update({(kind, line.subject): len(found) for kind, found in line.seeds.items() if kind != "judged"})
    return [f"- {in_table(f'{kind}: {subject}: {count} cases')}" for (kind, subject), count in sorted(cases.items())]


def text(run: Results) -> list[str]:
    """Return what a terminal shows in the end of a calibration, the full count last."""
    lines = run.calibrations
    result = [""]
    for (name,), rate in rates(lines, family).items():
        bound = f"a rate of at most {rate.words} (95%)"
        words = (
            f"{len(rate.refused)} of {rate.seeds} seeds with a false positive: {bound}" if rate.seeds else rate.words
        )
        result.append(one_line(f"{name:12} {words}"))
    for line, item, again in refused(lines):
        where = f"{line.subject} · {line.gate} · {item.case}"
        result.append(one_line(f"FALSE POSITIVE {where}: {item.reason}; {again}"))
    found = sum(map(counts, lines), Counter[Status]())
    ends = [f"{found['correct']} correct, {found['wrong']} wrong"]
    ends += [f"{found[status]} {status}" for status in STATUSES if status not in {"correct", "wrong"} and found[status]]
    return [*result, "", one_line(f"results: {run.path}"), ", ".join(ends)]
