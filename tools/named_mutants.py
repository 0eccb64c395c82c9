"""Catalogued mistakes that the diagnosis names, with part of the words that each must be named by: kept by hand."""

from __future__ import annotations

from collections.abc import Mapping

NAMES: Mapping[str, str] = {}


def problems(words: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the mutants, with their words by op, that have another name than this table's, or a name that it does not know."""
    found = []
    for mutant, by_op in words.items():
        for op, name in by_op.items():
            if NAMES.get(mutant) is None:
                found.append(f"{mutant}: {op} is named “{name}”; read it and add it to tools/named_mutants.py")
            elif NAMES[mutant] not in name:
                found.append(f"{mutant}: {op} is named “{name}”, must hold “{NAMES[mutant]}”")
    return found
