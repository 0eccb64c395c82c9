"""The node's end of a cluster: it finds a case by its names, judges it, and keeps the subjects' workers running."""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from gates.model import ConfigurationError, Subject
from gates.registry import Registry, load
from gates.results import machine
from gates.run import session
from gates.run.engines.subject_workers import SubjectWorkers
from gates.run.judge import Judged
from gates.run.plan import Options, PlannedCase, cases_of
from gates.subjects import catalogue

_LATEST: list[SubjectWorkers] = []  # of the latest options only: a mutant needs its own workers


@dataclass(frozen=True, slots=True)
class Unit:
    """One case to judge elsewhere: its names, the options, and the version of Gates that both sides must have."""

    gate: str
    subject: str
    case: str
    file: str | None  # of a subject that is not registered
    python: str | None
    options: Options
    version: str
    seed: int | None = None
    memory_limit: int | None = None  # bytes, of the subject's worker; None: not watched

    @classmethod
    def of(cls, planned: PlannedCase, options: Options, registry: Registry) -> Unit:
        """Return the unit of a planned case."""
        known = registry.subjects.get(planned.subject.name)
        file = None if known is not None and known.entry == planned.subject.entry else str(planned.subject.entry)
        python = planned.subject.python if file else None
        return cls(*planned.names, file, python, options, version(), planned.seed, planned.subject.memory_limit)

    def find(self, registry: Registry) -> PlannedCase:
        """Return the case of this registry.

        Raises:
            ConfigurationError: this node has another version of Gates, or lacks the gate, case or subject.
        """
        if self.version != (mine := version()):
            raise ConfigurationError(
                f"a node has {mine}, must have {self.version} as the judge does; install that on every node"
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

    def fields(self) -> dict[str, Any]:
        """Return this unit as plain data, which a node of another version can still read and refuse."""
        return asdict(self)


def version() -> str:
    """Return the version and commit of this Gates; `Unit.find` refuses units of any other."""
    commit, _ = machine.commit()
    return f"{session.tool_version()}{f' at {commit}' if commit else ''}"


def judge(fields: Mapping[str, Any]) -> Judged | str:
    """Judge one unit, or return the reason why this node cannot."""
    unit = Unit(**{**fields, "options": Options(**fields["options"])})
    try:
        planned = unit.find(load())
        return replace(_workers(unit.options).judge(planned), seed=planned.seed)
    except ConfigurationError as error:
        return str(error)


def _workers(options: Options) -> SubjectWorkers:
    if not _LATEST or _LATEST[0].options != options:
        _end()
        _LATEST.append(SubjectWorkers(options))
    return _LATEST[0]


def _end() -> None:
    while _LATEST:
        _LATEST.pop().close()


atexit.register(_end)  # workers end with their parent process anyway; this ends them in order
