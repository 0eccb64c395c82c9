"""Summarise what was not judged, with each cause once: a case that was not judged is never counted as a pass."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from gates.model import NOT_JUDGED, Verdict
from gates.results.records import VerdictRecord

# parts of the judge's own reasons (`gates.run.judge.lacking`), before or after which an op or a value stands
UNDEFINED = " is not defined by "
OTHER = ", not "
UNDECLARED = " does not declare "
OF_PRESETS = " is asked of presets only"  # part of a reason of `gates.run.choices`
IMPOSSIBLE = " cannot be asked: "  # part of another
GIVEN_UP = "after "  # begins the reason of `gates.run.time_limits`: after 3 timeouts of an op
FEW = 2  # causes up to which each is quoted


def reasons(verdicts: Iterable[Verdict | VerdictRecord]) -> list[tuple[str, str, str]]:
    """Return status, subject and cause of what was not judged, each cause with its number of cases."""
    return condensed(Counter((v.subject, v.status, v.reason) for v in verdicts if v.status in NOT_JUDGED))


def condensed(counts: Mapping[tuple[str, str, str], int]) -> list[tuple[str, str, str]]:
    """Return status, subject and cause with its count, given the counts by subject, status and reason.

    Reasons that differ only in the op or in the expected value are joined: `not defined by mine: kl (3), loss (2)`.
    """
    groups: dict[tuple[str, str, str], list[tuple[str, str, int]]] = defaultdict(list)
    for (subject, status, reason), count in sorted(counts.items()):
        op, undefined, whom = reason.partition(UNDEFINED)
        head, is_choice, value = reason.rpartition(OTHER)
        if undefined:
            groups[status, subject, f"not defined by {whom}: "].append((op, reason, count))
        elif is_choice:
            groups[status, subject, head + is_choice].append((value, reason, count))
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


def counted(counts: Mapping[tuple[str, str, str], int], subject: str) -> list[str]:
    """Return how much of a subject was not judged, in a few words for each type of cause; few causes are quoted."""
    mine = {reason: (status, count) for (name, status, reason), count in counts.items() if name == subject}
    ops = sorted({reason.partition(UNDEFINED)[0] for reason in mine if reason.endswith(f"{UNDEFINED}{subject}")})
    choices = sorted(reason for reason in mine if UNDEFINED not in reason and (OTHER in reason or UNDECLARED in reason))
    unasked = {reason: count for reason, (status, count) in mine.items() if status == "not asked"}
    given_up = sorted(reason for reason in unasked if reason.startswith(GIVEN_UP))
    refuted = sum(count for reason, count in unasked.items() if reason not in given_up)
    of_presets = {reason.partition(OF_PRESETS)[0] for reason in mine if OF_PRESETS in reason}
    together = {reason: count for reason, (_, count) in mine.items() if IMPOSSIBLE in reason}
    impossible, few = sum(together.values()), len(together) <= 1
    parts = []
    others = sorted(
        (
            reason
            for reason, (status, _) in mine.items()
            if status != "not asked"
            and reason not in choices
            and OF_PRESETS not in reason
            and (IMPOSSIBLE not in reason or few)
            and not reason.endswith(f"{UNDEFINED}{subject}")
        ),
        key=lambda reason: (IMPOSSIBLE not in reason, reason),
    )
    if impossible and not few:
        parts.append(f"{impossible} cases that do not go with what it declares (-v)")
    if ops:
        words = ", ".join(ops) if len(ops) <= FEW else "gates ops"
        parts.append(f"{len(ops)} {'op' if len(ops) == 1 else 'ops'} that {subject} does not have ({words})")
    if of_presets:
        parts.append(
            f"{len(of_presets)} {'gate' if len(of_presets) == 1 else 'gates'} of presets, without other choices (-v)"
        )
    if len(choices) > FEW:
        parts.append(f"{len(choices)} conventions that it does not declare (-v)")
    if refuted:
        parts.append(f"{refuted} {'case' if refuted == 1 else 'cases'} not asked of ops whose definition does not hold")
    parts += [f"{unasked[why]} {'case' if unasked[why] == 1 else 'cases'} not asked {why}" for why in given_up]
    parts += choices if len(choices) <= FEW else []
    parts += others[:FEW]
    if len(others) > FEW:
        left = len(others) - FEW
        parts.append(f"{left} other {'cause' if left == 1 else 'causes'} (-v)")
    return parts
