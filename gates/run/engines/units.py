"""A cell as small JSON, which another process finds again by its names, and its verdict on the way back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from gates.model import ConfigurationError, Provided, Subject
from gates.registry import Registry
from gates.results.records import VerdictRecord, verdict_record
from gates.run import machine, session
from gates.run.resume import verdict
from gates.run.runner import Judged, Options, PlannedCase
from gates.subjects import catalogue
from gates.worker.process import Hello


@dataclass(frozen=True, slots=True)
class Unit:
    """What one process asks of another: names, options, and the version of Gates whose names they are."""

    gate: str
    subject: str
    case: str
    file: str | None  # of a subject that no registry has
    python: str | None
    options: Options
    version: str
    seed: int | None = None
    memory_limit: int | None = None  # bytes, of the subject's worker; None: not watched

    def text(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, job: PlannedCase, options: Options, registry: Registry) -> Unit:
        """Return a cell's unit."""
        known = registry.subjects.get(job.subject.name)
        file = None if known is not None and known.entry == job.subject.entry else str(job.subject.entry)
        names = (job.gate.id, job.subject.name, job.case.name)
        python = job.subject.python if file else None
        return cls(*names, file, python, options, version(), job.seed, job.subject.memory_limit)

    @classmethod
    def read(cls, text: str) -> Unit:
        """Return what `text` wrote."""
        fields = json.loads(text)
        return cls(**{**fields, "options": Options(**fields["options"])})

    def find(self, registry: Registry) -> PlannedCase:
        """Return the cell; one that is not here, or is another version's, is a ConfigurationError."""
        if self.version != (mine := version()):
            raise ConfigurationError(f"a node has {mine}, the run is of {self.version}; install the same on every node")
        gate = registry.gates.get(self.gate)
        if gate is None or self.case not in (cases := {case.name: case for case in gate.cases}):
            raise ConfigurationError(f"a node has no {self.gate} · {self.case}; install the same plugins on every node")
        subject = replace(self._subject(registry), memory_limit=self.memory_limit)
        return PlannedCase(gate, subject, cases[self.case], self.seed)

    def _subject(self, registry: Registry) -> Subject:
        if self.file is not None:
            return replace(catalogue.from_file(self.file, self.python), name=self.subject)
        if self.subject not in registry.subjects:
            raise ConfigurationError(f"a node has no subject {self.subject}; install the same plugins on every node")
        return registry.subjects[self.subject]


def version() -> str:
    """Return the version and commit of Gates here: units of others are refused."""
    commit, _ = machine.commit()
    return f"{session.tool_version()}{f' at {commit}' if commit else ''}"


def judged_text(judged: Judged) -> str:
    """Return a verdict, and what goes with it, as JSON."""
    hello = asdict(judged.hello) if judged.hello else None
    return json.dumps(
        {
            "verdict": verdict_record(judged.verdict).model_dump(mode="json"),
            "hello": hello,
            "patched_calls": judged.patched_calls,
            "models": {digest: dict(spec) for digest, spec in judged.models.items()},
        }
    )


def read_judged(text: str) -> Judged:
    """Return what `judged_text` wrote."""
    found = json.loads(text)
    hello = _hello(found["hello"]) if found["hello"] else None
    told = verdict(VerdictRecord.model_validate_json(json.dumps(found["verdict"])))
    return Judged(told, hello, found["patched_calls"], found["models"])


def _hello(fields: Mapping[str, Any]) -> Hello:
    provides = {
        op: Provided(op, {name: tuple(values) for name, values in told["conventions"].items()})
        for op, told in fields["provides"].items()
    }
    return Hello(provides, fields["documented"], fields["versions"])
