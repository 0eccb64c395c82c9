"""Serialise a planned case for another process as JSON, and its verdict on the way back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from gates.model import ConfigurationError, Provided, Subject
from gates.registry import Registry
from gates.results import machine
from gates.results.records import VerdictRecord, verdict_record
from gates.run import session
from gates.run.judge import Judged
from gates.run.plan import Options, PlannedCase, cases_of
from gates.run.resume import verdict
from gates.subjects import catalogue
from gates.worker.process import Hello


@dataclass(frozen=True, slots=True)
class Unit:
    """One case to judge elsewhere: its names, the options, and the required version of Gates."""

    gate: str
    subject: str
    case: str
    file: str | None  # of an unregistered subject
    python: str | None
    options: Options
    version: str
    seed: int | None = None
    memory_limit: int | None = None  # bytes, of the subject's worker; None: not watched

    def text(self) -> str:
        """Return this unit as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, planned: PlannedCase, options: Options, registry: Registry) -> Unit:
        """Return the unit of a planned case."""
        known = registry.subjects.get(planned.subject.name)
        file = None if known is not None and known.entry == planned.subject.entry else str(planned.subject.entry)
        python = planned.subject.python if file else None
        return cls(*planned.names, file, python, options, version(), planned.seed, planned.subject.memory_limit)

    @classmethod
    def read(cls, text: str) -> Unit:
        """Read a unit from the JSON of `text`."""
        fields = json.loads(text)
        return cls(**{**fields, "options": Options(**fields["options"])})

    def find(self, registry: Registry) -> PlannedCase:
        """Return the case of this registry.

        Raises:
            ConfigurationError: this node has another version of Gates, or lacks the gate, case or subject.
        """
        if self.version != (own := version()):
            raise ConfigurationError(
                f"a node has {own}, must have {self.version} as the judge does; install that on every node"
            )
        gate = registry.gates.get(self.gate)
        if gate is None or self.case not in (cases := {case.name: case for case in cases_of(gate, self.options.model)}):
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
    """Return the version and commit of this Gates; `Unit.find` refuses units of any other."""
    commit, _ = machine.commit()
    return f"{session.tool_version()}{f' at {commit}' if commit else ''}"


def judged_text(judged: Judged) -> str:
    """Return a verdict and the worker's report as JSON."""
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
    """Read a verdict from the JSON of `judged_text`."""
    fields = json.loads(text)
    hello = _hello(fields["hello"]) if fields["hello"] else None
    judged = verdict(VerdictRecord.model_validate_json(json.dumps(fields["verdict"])))
    return Judged(judged, hello, fields["patched_calls"], fields["models"])


def _hello(fields: Mapping[str, Any]) -> Hello:
    provides = {
        op: Provided(op, {name: tuple(values) for name, values in provided["conventions"].items()})
        for op, provided in fields["provides"].items()
    }
    return Hello(provides, fields["documented"], fields["versions"])
