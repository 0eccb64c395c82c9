"""Judge a recorded counterexample again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gates.errors import FaultError
from gates.model import Case, ConfigurationError, Gate, Recipe, Subject
from gates.registry import Registry, load
from gates.run import inputs as drawing
from gates.run.inputs import with_model
from gates.run.plan import cases_of
from gates.shrink.file import Counterexample, read
from gates.shrink.flatten import flat, last, models
from gates.shrink.probe import Answer, Asker
from gates.shrink.rollout_cut import PLAIN, STYLE
from gates.subjects import catalogue
from gates.worker.process import WorkerError


def replay(
    recorded: Counterexample,
    registry: Registry,
    subject: Subject,
    model: str | None = None,
    *,
    time_limit: float | None = None,
    time_limit_option: str = "",
) -> Answer:
    """Judge the subject on the recorded input.

    Args:
        recorded: the input, and what failed on it.
        registry: the gates.
        subject: whom to judge.
        model: replaces the tiny model.
        time_limit: the seconds of each call; None: those of its case.
        time_limit_option: the option that sets it, for the message of a timeout.

    Raises:
        ConfigurationError: the gate or the case no longer exists, or the file sets values that the case does not.
    """
    if recorded.gate not in registry.gates:
        raise ConfigurationError(
            f"gate {recorded.gate!r} of the counterexample does not exist here; `gates list` shows the gates"
        )
    gate = registry.gates[recorded.gate]
    # files of version 0.1 use the names of tiny models
    for case in (*cases_of(gate, _model(recorded.inputs)), *gate.cases):
        if case.name == recorded.case:
            break
    else:
        raise ConfigurationError(
            f"gate {recorded.gate!r} has no case {recorded.case!r} any more; run `gates check` again"
        )
    inputs = with_model(recorded.inputs, model)
    _vet(recorded, gate, case, inputs, model)
    asker = Asker(subject, quick=recorded.quick, time_limit=time_limit, time_limit_option=time_limit_option)
    try:
        return asker.ask(gate, case, inputs, recorded.cut)
    except WorkerError as error:
        if error.kind == "absent":
            remedy = f"; {subject.remedy}" if subject.remedy else ""
            raise ConfigurationError(f"{subject.name} is not installed: {error}{remedy}") from None
        if error.kind == "scarce":
            raise FaultError(f"{subject.name} did not start: {error}") from None
        return Answer("fails", "start", f"subject did not start: {error}")
    finally:
        asker.close()


def _model(inputs: Mapping[str, Any]) -> str | None:
    """Return the `--model` of the recorded run, which names its cases."""
    specs = (value.spec for value in inputs.values() if isinstance(value, Recipe) and value.kind == "model")
    return next((str(spec["path"]) for spec in specs if "path" in spec), None)


def _vet(recorded: Counterexample, gate: Gate, case: Case, inputs: Mapping[str, Any], model: str | None) -> None:
    """Refuse a file that changes a model or a text such as a reward function: data must not choose code to load."""
    if not any(isinstance(value, Recipe) for value in inputs.values()):
        return
    own = flat(with_model(drawing.inputs(gate, case, recorded.seed), model))
    table = flat(inputs)
    for path in sorted(models(table) ^ models(own)):
        if last(path) == "path":
            raise ConfigurationError(f"it failed with the model {table[path]!r}; pass it with --model")
    for path, value in table.items():
        if path not in models(table) and _numbers(value):
            continue  # numbers may have been simplified
        plainer = last(path) == STYLE and value == PLAIN
        same = path in own and type(value) is type(own[path]) and (value == own[path] or plainer)
        if not same and not _part(value, own.get(path)):
            raise ConfigurationError(
                f"`{path}` of the file is not that of case {recorded.case!r}; run `gates check` again"
            )


def _numbers(value: Any) -> bool:
    """Return whether a value is numeric, None included."""
    if isinstance(value, list):
        return all(isinstance(item, np.ndarray) for item in value)
    return isinstance(value, np.ndarray | int | float | None)


def _part(value: Any, whole: Any) -> bool:
    """Return whether a list is a subset of another."""
    return isinstance(value, list) and isinstance(whole, list) and all(item in whole for item in value)


def subject_of(recorded: Counterexample, registry: Registry, name: str | None, python: str | None) -> Subject:
    """Return the subject to judge: the named one, else the one in the file.

    Data must not choose a program to run, so the subject file that it names must be below the current folder.
    """
    if name is None:
        known = registry.subjects.get(recorded.subject)
        if known is not None and str(known.entry) == recorded.entry:
            return replace(known, ops=None)
        if not Path(recorded.entry).is_file():
            raise ConfigurationError(
                f"the file of {recorded.subject}, {recorded.entry}, does not exist here; name it with --subject"
            )
        if not Path(recorded.entry).resolve().is_relative_to(Path.cwd().resolve()):
            raise ConfigurationError(f"{recorded.entry} is not below this folder; to run it name it with --subject")
        return catalogue.from_file(recorded.entry, python)
    return catalogue.choose(registry, (name,), python)[0]


def judge_file(
    path: str | Path,
    subject: str | None = None,
    python: str | None = None,
    model: str | None = None,
    time_limit: float | None = None,
) -> Answer:
    """Judge a file again; called by the tests that `gates replay --emit-test` writes."""
    recorded, registry = read(Path(path)), load()
    return replay(recorded, registry, subject_of(recorded, registry, subject, python), model, time_limit=time_limit)
