"""Notes on declarations of a subject that have no effect, such as a misspelt op or convention."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from gates.model import Gate, Wire
from gates.nearest import hint, nearest
from gates.provided import Provided
from gates.report.ops import conventions_of, ops_of
from gates.run.engines.subject_workers import MODEL_HASH

PROMISES = frozenset(("arithmetic",))  # conventions that have an effect without a case that asks for them


def unasked(subject: str, provides: Mapping[str, Provided], gates: Iterable[Gate]) -> Iterator[str]:
    """Yield a sentence for each op, convention and choice of a subject that no case of any gate uses.

    A subject may have more than gates use, so these are notes and no verdicts. Choices of a convention are noted if no
    declared one is used by any case, for then every case would be `unsupported`; not where all cases use the same single
    choice, since declaring another is how a subject opts out. A single choice is noted if it resembles a missing one:
    "K2" for "k2".
    """
    gates = list(gates)
    ops = ops_of(gates)
    for name, provided in sorted(provides.items()):
        if name not in ops:
            if name != MODEL_HASH:
                yield f"{subject} provides {name!r}, which no gate asks for{_nearest(name, ops)}"
            continue
        asked, any_number = conventions_of(name, gates), _changeable(name, gates)
        for convention, choices in provided.conventions.items():
            effective = (convention in PROMISES and convention not in asked) or (
                convention in any_number and any(isinstance(choice, float) for choice in choices)
            )
            if not effective:
                where = f"the conventions of {name} of {subject}"
                yield from _without_effect(where, convention, choices, asked)


def _without_effect(
    where: str, convention: str, choices: Sequence[Wire], asked: Mapping[str, Sequence[Wire]]
) -> Iterator[str]:
    """Yield the sentences on one convention, given the choices of each that cases request."""
    if convention not in asked:
        yield f"{where} name {convention!r}, which no case asks for{_nearest(convention, asked)}"
    elif len(asked[convention]) > 1 and not any(choice in asked[convention] for choice in choices):
        has, wanted = _words(choices), _words(asked[convention])
        meant = hint(str(choices[0]), map(str, asked[convention])) if len(choices) == 1 else ""
        yield f"{where} have {convention} {has}, which no case asks for; cases ask for {wanted}{meant}"
    else:
        missing = {str(choice): choice for choice in asked[convention] if choice not in choices}
        for choice in choices:
            if choice not in asked[convention] and (meant := _all_but(str(choice), missing)):
                yield f"{where} have {convention} {choice!r}, which no case asks for; did you mean {missing[meant]!r}?"


def _changeable(name: str, gates: Iterable[Gate]) -> set[str]:
    """Return the conventions that a case of an op can be asked with instead of its own."""
    of_op = (gate for gate in gates if gate.main.name == name)
    return {convention for gate in of_op for case in gate.cases for convention in case.changeable}


def misspelt(subject: str, provides: Mapping[str, Provided], gates: Iterable[Gate]) -> list[str]:
    """Return the sentences of `unasked` about conventions and choices that resemble a known one."""
    sentences = unasked(subject, provides, gates)
    return [words for words in sentences if words.startswith("the conventions of") and words.endswith("?")]


def undeparted(subject: str, documented: Iterable[str], gates: Iterable[Gate]) -> Iterator[str]:
    """Yield a sentence for each documented deviation whose name no gate has, so that it has no effect."""
    names = {gate.name: None for gate in gates if gate.name}
    for name in sorted(documented):
        if name not in names:
            yield f"DEPARTURES_DOCUMENTED of {subject} names {name!r}, which is the name of no gate{_nearest_few(name, names)}"


def _nearest_few(name: str, known: Collection[str]) -> str:
    return hint(name, known, 3) or "; `gates explain GATE` says the name of each"


def _all_but(choice: str, known: Collection[str]) -> str:
    """Return the known name that differs only in case or by one letter; empty if there is none."""
    return next(iter(nearest(choice, known, cutoff=0.8)), "")


def _nearest(name: str, known: Collection[str]) -> str:
    return hint(name, known) or (f"; known are {', '.join(known)}" if known else "; its cases name none")


def _words(choices: Iterable[Wire]) -> str:
    return ", ".join(map(repr, choices)) or "nothing"
