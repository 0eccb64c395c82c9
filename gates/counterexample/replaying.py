"""Judges a recorded counterexample again: does the gate still fail on that input, for this subject?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gates.counterexample.asking import Answer, Asker
from gates.counterexample.file import Counterexample, read
from gates.model import ConfigurationError, Subject
from gates.protocol import WorkerError
from gates.registry import Registry, load
from gates.subjects import catalogue


def replay(found: Counterexample, registry: Registry, subject: Subject) -> Answer:
    """Return what the gate says of the subject on the recorded input.

    Raises:
        ConfigurationError: the gate or the case is no longer there.
    """
    if found.gate not in registry.gates:
        raise ConfigurationError(
            f"gate {found.gate!r} of the counterexample does not exist here; `gates list` has those that do"
        )
    gate = registry.gates[found.gate]
    for case in gate.cases:
        if case.name == found.case:
            break
    else:
        raise ConfigurationError(f"gate {found.gate!r} has no case {found.case!r} any more; run `gates check` again")
    asker = Asker(subject, quick=found.quick)
    try:
        return asker.ask(gate, case, found.inputs)
    except WorkerError as error:
        if error.kind == "absent":
            remedy = f"; {subject.remedy}" if subject.remedy else ""
            raise ConfigurationError(f"{subject.name} is not here: {error}{remedy}") from None
        return Answer("fails", "start", f"subject did not start: {error}")
    finally:
        asker.close()


def subject_of(found: Counterexample, registry: Registry, name: str | None, python: str | None) -> Subject:
    """Return the subject that is judged: the one asked for, else the one that failed.

    A file of data must not choose which program runs: a subject's file is taken from it only where it lies below the
    current folder.
    """
    if name is None:
        known = registry.subjects.get(found.subject)
        if known is not None and str(known.entry) == found.entry:
            return replace(known, ops=None)
        if not Path(found.entry).is_file():
            raise ConfigurationError(
                f"{found.subject} failed here as {found.entry}, which is not there; name it with --subject"
            )
        if not Path(found.entry).resolve().is_relative_to(Path.cwd().resolve()):
            raise ConfigurationError(f"{found.entry} is not below this folder; to run it name it with --subject")
        return catalogue.from_file(found.entry, python)
    return catalogue.choose(registry, (name,), python)[0]


def judge_file(path: str | Path, subject: str | None = None, python: str | None = None) -> Answer:
    """Judge a file again; for tests that `gates replay --emit-test` writes."""
    found, registry = read(Path(path)), load()
    return replay(found, registry, subject_of(found, registry, subject, python))
