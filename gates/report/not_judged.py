"""Summarise what was not judged, with each cause once: a case that was not judged is never counted as a pass."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from gates.model import NOT_JUDGED, Verdict
from gates.results.records import VerdictRecord

# parts of the judge's own reasons (`gates.run.judge.lacking`), before or after which an op or a value stands
UNDEFINED = " is not defined by "
OTHER = ", not "


def reasons(verdicts: Iterable[Verdict | VerdictRecord]) -> list[tuple[str, str, str]]:
    """Return status, subject and cause of what was not judged, each cause with its number of cases."""
    return condensed(Counter((v.subject, v.status, v.reason) for v in verdicts if v.status in NOT_JUDGED))


def condensed(found: Mapping[tuple[str, str, str], int]) -> list[tuple[str, str, str]]:
    """Return status, subject and cause with its count, given the counts by subject, status and reason.

    Reasons that differ only in the op or in the expected value are joined: `not defined by mine: kl (3), loss (2)`.
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
            cause = f"{parts[0][1]} ({parts[0][2]})"
        else:
            cause = before + ", ".join(f"{part} ({count})" for part, _, count in parts)
        lines.append((status, subject, cause))
    return lines
