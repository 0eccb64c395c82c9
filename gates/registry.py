"""Register gates, mutants and subjects; duplicate and unknown names are configuration errors."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib.metadata import entry_points
from types import MappingProxyType

from gates.model import (
    THEMES,
    Bound,
    Case,
    ConfigurationError,
    Draw,
    Evidence,
    Gate,
    Level,
    Mutant,
    Op,
    Probe,
    Subject,
    Trial,
    nothing_required,
)

FAMILIES = (
    "advantages",
    "kl",
    "logprobs",
    "sampling",
    "philox",
    "packing",
    "isa",
    "loss",
    "preference",
    "rollout",
    "ratio",
    "scoring",
    "trainer",
    "tokenizer",
)
FRAMEWORKS = ("mlx", "mlx_lm", "torch", "jax", "tensorflow", "transformers")

Check = Callable[[Trial], Iterator[Evidence]]
Requires = Callable[[Draw], Iterator[Evidence]]


@dataclass(slots=True)
class Registry:
    """All gates, mutants and subjects, by name."""

    gates: dict[str, Gate] = field(default_factory=dict)
    mutants: dict[str, Mutant] = field(default_factory=dict)
    subjects: dict[str, Subject] = field(default_factory=dict)

    def gate(  # noqa: PLR0913  the fields of a gate
        self,
        id_: str,
        *,
        level: Level,
        question: str,
        why: str,
        ops: tuple[Op, ...],
        cases: tuple[Case, ...],
        bounds: Mapping[str, Bound],
        requires: Requires = nothing_required,
        name: str = "",
        probes: tuple[Probe, ...] = (),
        needs: Mapping[str, float] = MappingProxyType({}),
        together: str = "",
    ) -> Callable[[Check], Check]:
        """Register the decorated check as a gate; `requires` yields the preconditions of its inputs."""

        def register(check: Check) -> Check:
            self.add_gate(
                Gate(id_, question, why, ops, cases, bounds, check, requires, level, name, probes, needs, together)
            )
            return check

        return register

    def add_gate(self, gate: Gate) -> None:
        """Add a gate, which must have a new id and cases with distinct names."""
        if gate.id in self.gates:
            raise ConfigurationError(f"gate {gate.id!r} is registered twice; ids must be unique")
        names = [case.name for case in gate.cases]
        if not names or len(set(names)) != len(names):
            raise ConfigurationError(f"gate {gate.id!r} must have cases with distinct names, has {names}")
        self.gates[gate.id] = gate

    def add_mutant(self, mutant: Mutant) -> None:
        """Add a mutant with source, theme and symptom; `check_names` checks its gates when all are loaded."""
        if not (mutant.source or mutant.arises):
            raise ConfigurationError(
                f"mutant {mutant.name!r} has neither source nor arises; name where it was reported, or say how it arises"
            )
        if mutant.theme not in THEMES:
            raise ConfigurationError(
                f"mutant {mutant.name!r} has theme {mutant.theme!r}, must have one of: {', '.join(THEMES)}"
            )
        if not mutant.symptom.endswith("."):
            raise ConfigurationError(
                f"mutant {mutant.name!r} has symptom {mutant.symptom!r}, must be a sentence with a full stop: what "
                "the mistake looks like in training, or 'No curve shows it: …'"
            )
        if mutant.name in self.mutants:
            raise ConfigurationError(f"mutant {mutant.name!r} is registered twice; names must be unique")
        self.mutants[mutant.name] = mutant

    def add_subject(self, subject: Subject) -> None:
        """Add a subject, which must have a new name."""
        if subject.name in self.subjects:
            raise ConfigurationError(f"subject {subject.name!r} is registered twice; names must be unique")
        self.subjects[subject.name] = subject

    def check_names(self) -> None:
        """Check that gates and hosts of all mutants are registered, and that every gate has a mutant.

        Raises:
            ConfigurationError: otherwise; the message names them.
        """
        for mutant in self.mutants.values():
            known = {case.name for gate in mutant.caught_by if gate in self.gates for case in self.gates[gate].cases}
            if unknown := sorted(set(mutant.cases) - known):
                raise ConfigurationError(
                    f"mutant {mutant.name!r} is tried in case {unknown[0]!r}, which its gates lack"
                )
            for gate in mutant.caught_by:
                if gate not in self.gates:
                    raise ConfigurationError(f"mutant {mutant.name!r} names gate {gate!r}, which does not exist")
            if mutant.host not in self.subjects:
                raise ConfigurationError(f"mutant {mutant.name!r} names host {mutant.host!r}, which does not exist")
        caught = {gate for mutant in self.mutants.values() for gate in mutant.caught_by}
        if idle := sorted(set(self.gates) - caught):
            raise ConfigurationError(f"gates without a mutant: {', '.join(idle)}; declare one for each in mutants.py")

    def select(self, patterns: tuple[str, ...]) -> tuple[Gate, ...]:
        """Return the gates that match a pattern: an id, a prefix of ids, or a glob."""
        if not patterns:
            return tuple(self.gates.values())
        chosen: dict[str, Gate] = {}
        for pattern in patterns:
            hits = matching(pattern, self.gates)
            if not hits:
                raise ConfigurationError(f"no gate matches {pattern!r}; `gates list` shows the gates there are")
            chosen |= {id_: self.gates[id_] for id_ in hits}
        return tuple(chosen.values())


REGISTRY = Registry()
gate = REGISTRY.gate


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names that a pattern selects: the exact name, a prefix up to a dot, or a glob; else any prefix.

    `loss.gspo` selects loss.gspo.* and not loss.gspo-token.*; `loss.gs` selects both.
    """
    names = list(names)
    selected = [
        name for name in names if name == pattern or name.startswith(f"{pattern}.") or fnmatchcase(name, pattern)
    ]
    return selected or [name for name in names if pattern and name.startswith(pattern)]


def selects(pattern: str, gate: str) -> bool:
    """Return whether a pattern selects this gate, given all registered gates."""
    if not gate.startswith(pattern) and not fnmatchcase(gate, pattern):  # rejects most gates cheaply
        return False
    return gate in matching(pattern, {*REGISTRY.gates, gate})


def load() -> Registry:
    """Load the built-in gates, mutants and subjects, then plugins; later calls return the same registry."""
    if REGISTRY.subjects:
        return REGISTRY
    for family in FAMILIES:
        for module in _declarations(family):
            importlib.import_module(module)
    importlib.import_module("gates.subjects.catalogue").register(REGISTRY)
    before = _frameworks()
    for entry in entry_points(group="gates.plugins"):
        entry.load()(REGISTRY)
        if new := _frameworks() - before:
            raise ConfigurationError(
                f"plugin {entry.name!r} imports {', '.join(sorted(new))} in the judge; "
                "declare the subject here and import the framework in its worker file"
            )
    REGISTRY.check_names()
    return REGISTRY


def _declarations(family: str) -> Iterator[str]:
    """Yield the modules of a family that declare gates and mutants: `gates`, `mutants` and their submodules.

    `patches` may import frameworks, so only workers load it.
    """
    package = importlib.import_module(f"gates.families.{family}")
    for name in ("gates", "mutants"):
        module = importlib.import_module(f"{package.__name__}.{name}")
        yield module.__name__
        for submodule in pkgutil.iter_modules(getattr(module, "__path__", ())):
            yield f"{module.__name__}.{submodule.name}"


def _frameworks() -> set[str]:
    return {name for name in FRAMEWORKS if name in sys.modules}
