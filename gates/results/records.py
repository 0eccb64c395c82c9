"""The records of a results file; the published JSON Schema is made from these models."""

from __future__ import annotations

from dataclasses import asdict
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter
from pydantic.dataclasses import dataclass

from gates.model import Grade, Level, Relation, Role, Status, Verdict
from gates.results.calibration_records import CalibrationRecord
from gates.results.record_types import STRICT, Number, Repeated, StrictRecord

FORMAT = 2
MOST_SHARDS = 10_000  # above any CI matrix, below a typo


class Machine(StrictRecord):
    """Where the judge ran."""

    system: str
    cpu: str
    cores: int
    features: list[str]


class PlanRecord(StrictRecord):
    """The whole plan, and which shard of it a run judges; 1 of 1 is all of it."""

    digest: str = Field(description="sha256 of the names of all cases (gate, subject, case), sorted, as JSON lines")
    cells: int = Field(ge=0)
    shard: int = Field(default=1, ge=1)
    shards: int = Field(default=1, ge=1, le=MOST_SHARDS)


class PartRecord(StrictRecord):
    """Where one shard of a merged run was judged."""

    file: str
    started: str
    machine: Machine
    python: str
    numpy: str
    blas: str


class Waiver(StrictRecord):
    """One entry of gates.toml: which failure of which subject is waived, why, and until when."""

    id: str = Field(min_length=1, description="a gate's id, or a glob")
    case: str = Field(default="*", min_length=1, description="a case, or a glob")
    subject: str = Field(min_length=1)
    reason: str = Field(min_length=1)
    issue: str = Field(min_length=1)
    owner: str = Field(min_length=1)
    expires: date = Field(description="the last day, in UTC, on which it holds")
    grade: Grade | None = Field(None, description="the grade that is waived; null: every failure")


class WaiverRecord(Waiver):
    """A waiver that a run took into account."""

    whole: bool = Field(description="the run (if sharded, all shards) judges all that it names, so it must be needed")


class WaivedRecord(StrictRecord):
    """What a verdict would be without its waiver."""

    status: Status
    reason: str = Field(description="the waiver's; that of the verdict stands in the verdict")
    issue: str
    owner: str
    expires: str


class HeaderRecord(StrictRecord):
    """The first line: the request, the judge, the machine, and how many verdicts the run will have."""

    record: Literal["header"] = "header"
    format: int = FORMAT
    verb: Literal["check", "prove", "calibrate"]
    command: list[str]
    started: str
    tool: str
    commit: str | None
    dirty: bool | None = Field(description="tracked files differ from the commit")
    machine: Machine
    python: str
    numpy: str
    blas: str
    jobs: int
    threads: int
    seed: int
    quick: bool
    full: bool = False
    fail_on: Grade = Field("wrong", description="the mildest grade that fails the run")
    time_limit: float | None = Field(None, description="seconds of each call; null: those of its case")
    definitions: str = Field("", description="the version of docs/definitions.md that was judged by")
    model: str | None
    gates: list[str]
    subjects: list[str]
    planned: int = Field(ge=0)
    engine: str = "local"
    plan: PlanRecord | None = Field(default=None, description="null: a proof, or a file from before there were shards")
    merged: list[PartRecord] = Field(default=[], description="the shards that `gates merge` joined, in order")
    waivers: list[WaiverRecord] = Field(default=[])
    subject_files: dict[str, str] = Field(
        default={}, description="of a check: of each subject that is a file of one's own, a digest of it"
    )
    seeds: int | None = Field(None, description="of a calibration: how many, from `seed` on")
    mutants: dict[str, list[str]] = Field(
        default={}, description="of a check: of each gate the mutants of the catalogue that it must catch"
    )
    codes: dict[str, str] = Field(
        default={}, description="of a calibration: a digest of what decides each gate's verdicts"
    )
    beside: list[str] = Field(
        default=[], description="recorded calibrations whose seeds are not judged again, so not planned"
    )


class Location(StrictRecord):
    """Where a function is defined: a path, relative to the judge's working directory if it is below that, and a line."""

    file: str
    line: int = Field(ge=1)


class SubjectRecord(StrictRecord):
    """The handshake of a subject."""

    record: Literal["subject"] = "subject"
    subject: str
    provides: list[str]
    versions: dict[str, str]
    locations: dict[str, Location] = Field({}, description="of each op the file and the line of its function, if known")


class ModelRecord(StrictRecord):
    """The content hash of a model that was judged."""

    record: Literal["model"] = "model"
    spec: dict[str, Any]
    hash: str


# A large run has a million of these; as pydantic models, each with a dictionary and a set, they take three times the memory.
@dataclass(frozen=True, slots=True, config=STRICT)
class EvidenceRecord:
    """One measured number with its limit."""

    quantity: Repeated
    observed: Number
    relation: Relation
    limit: Number
    because: Repeated
    where: str
    role: Role
    holds: bool
    level: Level = "definition"  # a speed file has no levels


class VerdictRecord(StrictRecord):
    """One gate × subject × case."""

    record: Literal["verdict"] = "verdict"
    gate: str
    subject: str
    case: str
    seed: int
    op: str = Field(description="what is graded: an op, with the choices that name it, such as policy_loss[grpo]")
    level: Level = Field(description="of the claim that decided, or of the case")
    status: Status
    cause: str
    reason: str
    evidence: list[EvidenceRecord]
    seconds: Number
    mutant: str | None = None
    waived: WaivedRecord | None = None


class MutantRecord(StrictRecord):
    """The result of one mutant, after the verdicts of the gates that must catch it."""

    record: Literal["mutant"] = "mutant"
    mutant: str
    mistake: str
    host: str
    seam: str
    caught_by: list[str]
    source: str
    arises: str
    theme: str = ""
    symptom: str = ""
    state: Literal["caught", "missed", "equivalent", "error"]
    reason: str
    level: Level | None = Field(None, description="at which it was caught, in the case that shows it best")
    distance: Number | None = Field(
        None, description="from the definition there, in textbook limits; null: counted exactly"
    )
    outputs: list[str] = Field(
        [],
        description="the outputs that lie at least 100 limits away in some case; the gradient alone: it shows only there",
    )


class SensitivityRecord(StrictRecord):
    """The least relative error of a gate's outputs that it notices."""

    record: Literal["sensitivity"] = "sensitivity"
    gate: str
    subject: str
    case: str
    noticed: Number | None = Field(description="null: no disturbance that was tried is noticed, or none applies")


class CounterexampleRecord(StrictRecord):
    """The smallest input found on which a failing gate still fails, or the one that was drawn, and why it is no smaller."""

    record: Literal["counterexample"] = "counterexample"
    gate: str
    subject: str
    case: str
    seed: int
    file: str | None = Field(description="from the folder of the results file; null: none was made")
    words: str = Field(description="the failure on that input in words; without sizes, why it is no smaller")
    elements_before: int | None
    elements_after: int | None = Field(description="null: the file, if there is one, holds the input as it was drawn")
    unit: str = Field("numbers", description="what the elements are: numbers, or tokens where a model runs")
    finished: bool | None = Field(description="nothing that was tried makes it smaller; false: the time was over")
    python: str | None = Field(None, description="the interpreter that the subject asks for; null: the judge's")
    model: str | None = Field(None, description="what --model named, where the input holds a model")
    subject_file: str | None = Field(None, description="of a user's subject, from the folder of the results file")
    time_limit: Number | None = Field(
        None, description="seconds of each call that the run set; null: those of its case"
    )


class DiagnosisRecord(StrictRecord):
    """What a subject computes instead of an op's definition, from its answers to designed inputs."""

    record: Literal["diagnosis"] = "diagnosis"
    subject: str
    op: str = Field(description="what is graded, such as policy_loss[grpo]")
    gate: str
    case: str = Field(description="whose settings and layout the designed inputs have")
    kind: Literal[
        "as asked", "convention", "mistake", "scaled", "constant", "lower precision", "ambiguous", "nothing known"
    ]
    computes: str = Field(description="in words; empty where nothing is known")
    declare: str = Field("", description="of another known choice: the declaration with which it is what is asked")
    where: str = Field("", description="where it differs, if nothing is known")
    rho: Number = Field(description="the largest error of what is named, in its own limits")
    next_rho: Number = Field(description="that of the nearest other definition, or a number that it is not below")
    tried: int = Field(description="definitions that were compared")
    inputs: int = Field(description="designed calls that the subject answered")
    seconds: Number


class SettledRecord(StrictRecord):
    """What the `wrong` cases of an op are after its diagnosis: another choice, or waived as such."""

    record: Literal["settled"] = "settled"
    subject: str
    op: str = Field(description="what is graded, such as policy_loss[grpo]")
    status: Status = Field(description="of these cases, instead of the `wrong` of their lines: differs, or waived")
    cases: dict[str, list[str]] = Field(description="of each gate the cases")


class ResumeRecord(StrictRecord):
    """The point where an interrupted run was resumed."""

    record: Literal["resume"] = "resume"
    started: str
    judged: int = Field(description="verdicts before this line")


class SummaryRecord(StrictRecord):
    """The last line. A file without it is incomplete."""

    record: Literal["summary"] = "summary"
    counts: dict[Status, int]
    seconds: Number
    exit_code: int
    problems: list[str] = Field(default=[], description="what fails the run beside its verdicts")
    unasked: list[str] = Field(
        default=[], description="ops that a subject provides and no case judged, with the reason"
    )


Record = Annotated[
    HeaderRecord
    | SubjectRecord
    | ModelRecord
    | VerdictRecord
    | MutantRecord
    | SensitivityRecord
    | ResumeRecord
    | CounterexampleRecord
    | DiagnosisRecord
    | SettledRecord
    | CalibrationRecord
    | SummaryRecord,
    Field(discriminator="record"),
]
RECORD: TypeAdapter[Record] = TypeAdapter(Record)


def verdict_record(verdict: Verdict, mutant: str | None = None) -> VerdictRecord:
    """Return a verdict as its line."""
    evidence = [EvidenceRecord(**asdict(item), holds=item.holds) for item in verdict.evidence]
    fields = {name: value for name, value in asdict(verdict).items() if name != "gave"}
    return VerdictRecord(**{**fields, "evidence": evidence}, mutant=mutant)


def schema() -> dict[str, Any]:
    """Return the JSON Schema of one line."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "One line of a Gates results file",
        **RECORD.json_schema(mode="serialization"),
    }
