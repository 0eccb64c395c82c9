"""Gather the data of the HTML page line by line, holding what the page shows instead of the records."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from gates.model import FAILURES, NOT_JUDGED
from gates.report import outcome
from gates.report.failures import severity
from gates.report.grades import Grades
from gates.report.labels import shown
from gates.report.outcome import Outcome
from gates.report.plain import judged, left
from gates.report.screen import by_op
from gates.report.smallest import Entry, entries
from gates.report.statuses import BEST_FIRST, FAILED, SHOWN_WORST_FIRST, SYMBOLS
from gates.results.escape import visible
from gates.results.jsonl import Results, records
from gates.results.records import (
    CounterexampleRecord,
    EvidenceRecord,
    HeaderRecord,
    Record,
    SensitivityRecord,
    VerdictRecord,
)
from gates.run.settle import settled_records

Claim = tuple[str, str, float, str, bool, str]  # evidence without what was observed, and where
QUOTED = json.JSONEncoder(ensure_ascii=False).encode


@dataclass(slots=True)
class Run(Results):
    """The records of one file that the head of the page shows; of its verdicts only the numbers."""

    count: int = 0
    counts: Counter[str] = field(default_factory=Counter)  # of verdicts without a mutant
    grades: Grades = field(default_factory=Grades)  # of a check
    failed: dict[tuple[str, str, str], str] = field(default_factory=dict)  # op by gate, subject and case

    @property
    def name(self) -> str:
        """Return the name of the file."""
        return self.path.name

    @property
    def outcome(self) -> Outcome:
        """Return what came out of it."""
        return outcome.of(self, self.counts)

    @property
    def smallest(self) -> dict[tuple[str, str], CounterexampleRecord]:
        """Return for each subject and op an input on which it fails: a shrunk one, else one as it was drawn."""
        return by_op(self.counterexamples, self.failed)


@dataclass(slots=True)
class Strings:
    """Numbers strings, so that each is stored once."""

    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, text: str) -> int:
        """Return the number of a string."""
        return self.numbers.setdefault(text, len(self.numbers))


@dataclass
class Page:
    """The data of the page."""

    runs: list[Run] = field(default_factory=list)
    strings: Strings = field(default_factory=Strings)
    claims: dict[Claim, int] = field(default_factory=dict)  # numbered: most cases of a gate repeat them
    rows: dict[tuple[str, str], list[tuple[str, int, str]]] = field(default_factory=lambda: defaultdict(list))
    counts: dict[tuple[str, str], Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    reasons: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)  # subject, gate, status, first reason
    holes: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    mutants: dict[tuple[str, str, str], Counter[bool]] = field(default_factory=lambda: defaultdict(Counter))
    sensitivities: list[SensitivityRecord] = field(default_factory=list)
    worst: dict[tuple[str, str, str], tuple[float, str, int, int, str]] = field(default_factory=dict)

    def add(self, path: Path) -> None:
        """Add one file."""
        lines = records(path)
        header = next(lines)
        assert isinstance(header, HeaderRecord)  # `records` guarantees it
        run = Run(path, header)
        self.runs.append(run)
        wrong: list[VerdictRecord] = []  # until the diagnoses, which follow the verdicts
        for record in lines:
            self._take(run, record, wrong)
        for verdict in settled_records(run, wrong):
            self._verdict(len(self.runs) - 1, verdict)

    def _take(self, run: Run, record: Record, wrong: list[VerdictRecord]) -> None:
        match record:
            case VerdictRecord():
                run.count += 1
                if record.status == "wrong":
                    wrong.append(record)
                else:
                    self._verdict(len(self.runs) - 1, record)
            case SensitivityRecord():
                self.sensitivities.append(record)
            case _:
                run.add(record)

    def _verdict(self, run: int, v: VerdictRecord) -> None:
        if v.mutant:
            self.mutants[v.mutant, v.subject, v.gate][v.status in FAILURES] += 1
            return
        status = shown(v)
        self.runs[run].counts[status] += 1
        if self.runs[run].header.verb != "check" and v.status not in {*FAILURES, "error"}:
            return  # of an unmutated baseline run the page shows only what fails
        if self.runs[run].header.verb == "check":
            self.runs[run].grades.add(v, self.runs[run].header.mutants)
        if v.status in FAILURES:
            self.runs[run].failed[v.gate, v.subject, v.case] = v.op
        self.counts[v.gate, v.subject][status] += 1
        if v.status in NOT_JUDGED:
            self.holes[v.subject, status, v.reason] += 1
        elif status != "correct":
            key = (v.subject, v.gate, status)
            entry = (-severity(v), v.case, v.seed, run, v.reason)
            self.worst[key] = min(self.worst.get(key, entry), entry)
        number = self.strings.number
        row: list[float | str] = [number(v.case), BEST_FIRST.index(status), number(v.reason), v.seed, v.seconds, run]
        row.append(self._evidence(v.evidence))
        if v.waived:
            w = v.waived
            row.append(number(f"{w.status}, waived until {w.expires} by {w.owner}, {w.issue}: {w.reason}"))
        self.rows[v.gate, v.subject].append((v.case, run, f"[{','.join(map(str, row))}]"))

    def _evidence(self, items: Iterable[EvidenceRecord]) -> str:
        """Return a list of JSON, written as text: a large run has a million of its rows."""
        claims, rows = self.claims, []
        for item in items:
            claim = (item.quantity, item.relation, item.limit, item.role, item.holds, item.because)
            number = claims.setdefault(claim, len(claims))
            rows.append(f'[{number},"{item.observed:.6g}",{QUOTED(visible(item.where))}]')
        return f"[{','.join(rows)}]"

    def _claim(self, claim: Claim) -> list[str | int]:
        quantity, relation, limit, role, holds, because = claim
        number = self.strings.number
        return [number(quantity), f"{relation} {limit:.6g}", role, int(holds), number(because)]

    @property
    def gates(self) -> list[str]:
        """Return the gates that have verdicts, sorted."""
        return sorted({gate for gate, _ in self.counts})

    @property
    def subjects(self) -> list[str]:
        """Return the subjects that have verdicts, sorted."""
        return sorted({subject for _, subject in self.counts})

    @property
    def families(self) -> dict[str, list[str]]:
        """Return the gates by the first word of their id."""
        found: dict[str, list[str]] = defaultdict(list)
        for gate in self.gates:
            found[gate.partition(".")[0]].append(gate)
        return dict(found)

    @property
    def idle(self) -> set[str]:
        """Return the gates that judged nothing."""
        return set(self.gates) - {gate for (gate, _), counts in self.counts.items() if counts.keys() - {*NOT_JUDGED}}

    def cell(self, gate: str, subject: str) -> tuple[str, str, int]:
        """Return the worst status of a gate for a subject, its text, and how many more cases were not judged."""
        counts = self.counts.get((gate, subject), Counter())
        worst, words = judged(counts)
        return (worst, words, left(counts)) if worst else ("", "", 0)

    def place(self, gate: str, subject: str) -> str:
        """Return row and column of a table cell with verdicts."""
        return self.places.get((gate, subject), "")

    @cached_property
    def places(self) -> dict[tuple[str, str], str]:
        """Return row and column of each table cell, after all files were added."""
        rows, columns = ({name: str(at) for at, name in enumerate(names)} for names in (self.gates, self.subjects))
        return {(gate, subject): f"{rows[gate]}/{columns[subject]}" for gate, subject in self.counts}

    @cached_property
    def smallest(self) -> list[Entry]:
        """Return the smallest inputs, after all files were added."""
        return entries([run.counterexamples for run in self.runs], self.places)

    def counted(self) -> Counter[str]:
        """Return how many verdicts there are of each status."""
        return sum(self.counts.values(), Counter())

    def as_json(self) -> str:
        """Return the evidence of every table cell as JSON, escaped so that it cannot end its script element."""
        cells = (
            f'"{self.places[key]}":[{",".join(row for _, _, row in sorted(rows))}]'
            for key, rows in sorted(self.rows.items())
        )
        claims = [self._claim(claim) for claim in self.claims]  # before the strings, to which it adds
        named = json.dumps(
            {
                "statuses": BEST_FIRST,
                "worst_first": SHOWN_WORST_FIRST,
                "broken": [*FAILED, "waived"],
                "symbols": SYMBOLS,
                "claims": claims,
                "strings": [*map(visible, self.strings.numbers)],
                "runs": [visible(run.name) for run in self.runs],
                "gates": [*map(visible, self.gates)],
                "subjects": [*map(visible, self.subjects)],
                "smallest": [entry.as_row() for entry in self.smallest],
            },
            ensure_ascii=False,
            separators=(",", ":"),
        )
        text = f'{named[:-1]},"cells":{{{",".join(cells)}}}}}'
        for character in "<>&\u2028\u2029":
            text = text.replace(character, f"\\u{ord(character):04x}")
        return text


def gather(paths: Iterable[Path]) -> Page:
    """Return the page of one or more files."""
    page = Page()
    for path in paths:
        page.add(path)
    return page
