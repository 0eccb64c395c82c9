"""What was not judged and why, each cause once: silence is never success, but nobody reads a hundred lines of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

# how the judge's own causes read (`gates.run.judge.lacking`): what stands before or after differs by op or by value
UNDEFINED = " is not defined by "
OTHER = ", not "


def condensed(found: Mapping[tuple[str, str, str], int]) -> list[tuple[str, str, str]]:
    """Return status, subject and cause with its count, of (subject, status, reason) and how many cases each has.

    Causes that differ in the op or in the wanted value alone are one: `not defined by mine: kl (3), loss (2)`.
    """
    groups: dict[tuple[str, str, str], list[tuple[str, str, int]]] = defaultdict(list)
    for (subject, status, reason), count in sorted(found.items()):
        op, undefined, whom = reason.partition(UNDEFINED)
        head, other, wanted = reason.rpartition(OTHER)
        if undefined:
            groups[status, subject, f"not defined by {whom}: "].append((op, reason, count))
        elif other:
            groups[status, subject, head + other].append((wanted, reason, count))
        else:
            groups[status, subject, reason].append(("", reason, count))
    lines = []
    for (status, subject, before), parts in sorted(groups.items()):
        if len(parts) == 1:
            told = f"{parts[0][1]} ({parts[0][2]})"
        else:
            told = before + ", ".join(f"{part} ({count})" for part, _, count in parts)
        lines.append((status, subject, told))
    return lines
