"""Check that the lines of a results file can come from one run; an error names the line."""

from __future__ import annotations

import operator as op
from collections import Counter
from collections.abc import Callable, Mapping
from math import inf

from gates.model import GRADES, STATUSES, ConfigurationError, Relation, Status, failing
from gates.results.records import HeaderRecord, Record, SettledRecord, SummaryRecord, VerdictRecord

Key = tuple[str, str, str, int, str | None]
HELD_BY: tuple[Status, ...] = (*GRADES, "waived")  # statuses of cases that were measured
RELATIONS: Mapping[Relation, Callable[[float, float], bool]] = {
    "<=": op.le, "<": op.lt, ">=": op.ge, ">": op.gt, "==": op.eq,
    "!=": lambda a, b: a < b or a > b,  # false for NaN
}  # fmt: skip


class Integrity:
    """Checks every line after the header, in order."""

    def __init__(self, header: HeaderRecord) -> None:
        self._header = header
        self._judged: dict[Key, str] = {}
        self._counts: Counter[str] = Counter()
        self._wrong: set[tuple[str, str, str]] = set()  # gate, subject and case
        self._ended = ""

    def see(self, record: Record, location: str) -> None:
        """Raise a ConfigurationError if this line cannot follow the ones before."""
        if isinstance(record, HeaderRecord):
            raise ConfigurationError(f"{location} is a second header; one file holds one run")
        if self._ended:
            raise ConfigurationError(f"{location} follows the summary in {self._ended}; a run writes that last")
        if isinstance(record, VerdictRecord | SummaryRecord) and not 0.0 <= record.seconds < inf:
            raise ConfigurationError(f"{location} took {record.seconds:g} s, which is no time")
        if isinstance(record, VerdictRecord):
            self._verdict(record, location)
        if isinstance(record, SettledRecord):
            self._settled(record, location)
        if isinstance(record, SummaryRecord):
            self._summary(record, location)
            self._ended = location

    def _verdict(self, record: VerdictRecord, location: str) -> None:
        key = (record.gate, record.subject, record.case, record.seed, record.mutant)
        if key in self._judged:
            raise ConfigurationError(
                f"{location} judges {record.subject} · {record.gate} · {record.case} again, after {self._judged[key]}"
            )
        self._judged[key] = location
        self._counts[record.status] += 1
        if record.status == "wrong":
            self._wrong.add((record.gate, record.subject, record.case))
        if len(self._judged) > self._header.planned:
            raise ConfigurationError(
                f"{location} is a verdict more than the {self._header.planned} of the header's plan"
            )
        for item in record.evidence:
            if item.holds is not holds(item.observed, item.relation, item.limit):
                raise ConfigurationError(
                    f"{location} says of {item.quantity} that {item.observed:g} {item.relation} {item.limit:g} "
                    f"{'holds' if item.holds else 'does not hold'}; the numbers say otherwise"
                )

    def _settled(self, record: SettledRecord, location: str) -> None:
        for gate, cases in record.cases.items():
            for case in cases:
                if (gate, record.subject, case) not in self._wrong:
                    raise ConfigurationError(
                        f"{location} settles {record.subject} · {gate} · {case}, which no line before it calls wrong"
                    )

    def _summary(self, record: SummaryRecord, location: str) -> None:
        if self._header.verb != "check":  # a proof's summary counts the unmutated baseline only
            return
        if len(self._judged) != self._header.planned:
            raise ConfigurationError(
                f"{location} ends a run of {self._header.planned} verdicts after {len(self._judged)} of them"
            )
        for status in STATUSES:
            claimed, counted = record.counts.get(status, 0), self._counts[status]
            if claimed != counted:
                raise ConfigurationError(f"{location} counts {claimed} {status}, the lines before it have {counted}")
        if record.exit_code not in (legal := _exit_codes(record, self._header)):
            raise ConfigurationError(
                f"{location} says exit code {record.exit_code}; after these verdicts and problems it is "
                f"{' or '.join(map(str, legal))}"
            )


def _exit_codes(record: SummaryRecord, header: HeaderRecord) -> tuple[int, ...]:
    """Return the possible exit codes, by the rules of `gates.run.session.Tally`."""
    fail_on = header.fail_on
    if record.problems or any(record.counts.get(status) for status in failing(fail_on) - {"wrong"}):
        return (1,)
    if record.counts.get("wrong"):
        choices_may_pass = fail_on == "wrong" or any(waiver.grade == "differs" for waiver in header.waivers)
        return (1, 0, 3, 4) if choices_may_pass else (1,)  # wrong ops may make another known choice
    if record.counts.get("error"):
        return (4,)
    measured = any(record.counts.get(status) for status in HELD_BY)
    return (3,) if record.unasked or not measured else (0,)


def holds(a: float, relation: Relation, b: float) -> bool:
    """Return `Evidence.holds` without the cost of an Evidence object for each of a million numbers."""
    return RELATIONS[relation](a, b)
