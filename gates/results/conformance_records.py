"""The lines of results/conformance/PEER.jsonl: how one library was graded, what of it is covered, and what was found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from gates.model import ConfigurationError
from gates.results.atomic_write import write_whole
from gates.results.read_lines import first_object, whole_lines
from gates.results.record_types import Number, StrictRecord
from gates.results.records import Machine

FORMAT = 1


class ConformanceHeader(StrictRecord):
    """The first line: which version was judged, where and how."""

    record: Literal["conformance-header"] = "conformance-header"
    format: int = FORMAT
    peer: str
    version: str
    versions: dict[str, str] = Field(description="as the adapter reports them")
    started: str
    commit: str | None
    dirty: bool | None
    definitions: str = Field(description="the version of the definitions")
    machine: Machine
    quick: bool
    seconds: Number


class GradeRecord(StrictRecord):
    """The grade of one op of the library or of one of its variants."""

    record: Literal["grade"] = "grade"
    subject: str
    op: str
    grade: str
    cases: int
    of_this_grade: int
    not_judged: int
    hardening: int = Field(0, description="cases that fail on input that no pipeline produces; they cost no grade")
    gate: str
    case: str
    reason: str
    computes: str = Field(description="what it computes instead, as the diagnosis names it")
    findings: list[str] = Field(description="that explain the grade")
    settings: list[str] = Field(default_factory=list, description="chosen for the library, and not its default")


class BlankRecord(StrictRecord):
    """An op that the library has, or whose name it takes, without a grade."""

    record: Literal["blank"] = "blank"
    op: str
    kind: str = Field(description="`not judged` or `refused`")
    why: str


class CoverageRecord(StrictRecord):
    """What is known of one public name of the library."""

    record: Literal["coverage"] = "coverage"
    source: str
    name: str
    status: str
    reason: str


class FindingRecord(StrictRecord):
    """One difference, and what its program printed in the library's own environment."""

    record: Literal["finding"] = "finding"
    id: str
    kind: str
    grade: str
    use: str = Field("", description="`default`, `option` or `direct`; records from before it have none")
    departures: list[str] = Field(default_factory=list, description="the same words in every library that departs so")
    ops: list[str]
    where: str
    says: str
    computes: str
    number: str
    consequence: str
    rows: list[str] = Field(default_factory=list, description="of the matrix, where neither ops nor departures say it")
    repro: str
    reproduced: bool | None = Field(description="None: its program was not run")
    output: str


ConformanceLine = Annotated[
    ConformanceHeader | GradeRecord | BlankRecord | CoverageRecord | FindingRecord, Field(discriminator="record")
]
LINE: TypeAdapter[ConformanceLine] = TypeAdapter(ConformanceLine)


@dataclass(slots=True)
class ConformanceResults:
    """The records of one file, by type."""

    header: ConformanceHeader
    grades: list[GradeRecord] = field(default_factory=list)
    coverage: list[CoverageRecord] = field(default_factory=list)
    findings: list[FindingRecord] = field(default_factory=list)
    blanks: list[BlankRecord] = field(default_factory=list)

    def lines(self) -> Iterable[str]:
        """Yield the lines of the file."""
        for record in (self.header, *self.grades, *self.blanks, *self.findings, *self.coverage):
            yield record.model_dump_json() + "\n"

    def document(self) -> dict[str, Any]:
        """Return the records by type, as JSON values."""
        lists: dict[str, Sequence[StrictRecord]] = {
            "grades": self.grades,
            "blanks": self.blanks,
            "findings": self.findings,
            "coverage": self.coverage,
        }
        records = {name: [record.model_dump(mode="json") for record in items] for name, items in lists.items()}
        return {"header": self.header.model_dump(mode="json"), **records}

    def write(self, path: Path) -> None:
        """Replace the file in one step."""
        write_whole(path, self.lines())


def is_conformance_file(path: Path) -> bool:
    """Return whether the first line is that of a conformance file."""
    return first_object(path).get("record") == "conformance-header"


def read_conformance(path: Path) -> ConformanceResults:
    """Read a conformance file.

    Raises:
        ConfigurationError: a line is no record of it; the message names the line.
    """
    results: ConformanceResults | None = None
    for number, line in whole_lines(path):
        try:
            record = LINE.validate_json(line)
        except ValidationError as error:
            raise ConfigurationError(f"{path}:{number} is no conformance record: {error.errors()[0]['msg']}") from None
        if isinstance(record, ConformanceHeader):
            if results is not None:
                raise ConfigurationError(f"{path}:{number} is a second header; one file holds one library")
            results = ConformanceResults(record)
        elif results is None:
            raise ConfigurationError(f"{path}:1 must be a conformance-header, is a {record.record}")
        elif isinstance(record, GradeRecord):
            results.grades.append(record)
        elif isinstance(record, BlankRecord):
            results.blanks.append(record)
        elif isinstance(record, CoverageRecord):
            results.coverage.append(record)
        else:
            results.findings.append(record)
    if results is None:
        raise ConfigurationError(f"{path} has no complete line; it must start with a conformance-header")
    return results
