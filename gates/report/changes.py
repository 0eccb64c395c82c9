"""Render what changed since a recorded run, as text, markdown and JSON."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import asdict
from typing import Any

from gates.report.baseline import KINDS, Change, Changes
from gates.results.escape import code, in_table, one_line

IN_FULL = (
    "new failure",
    "newly visible",
    "worse",
    "better",
    "fixed",
    "changed",
)  # the others, often hundreds, are counted by subject and gate

MOST = 100  # lines that may precede the results of the run itself


def changes_text(changes: Changes) -> str:
    """Return lines for a terminal; the last one has the counts."""
    lines = [one_line(f"changes since {changes.since} ({when(changes)}):")]
    lines += [one_line(f"  {words}") for words in settings(changes)]
    lines += [f"  {words}" for words in listed(changes)]
    return "\n".join([*lines, f"  {count(changes)}"])


def changes_markdown(changes: Changes) -> str:
    """Return a section of a document."""
    lines = [
        f"## Changes since {code(changes.since)}",
        "",
        f"Recorded {when(changes)}. {count(changes).capitalize()}.",
        "",
    ]
    changed = settings(changes) + listed(changes)
    more = [f"- {len(changed) - MOST} more are in the JSON form"] if len(changed) > MOST else []
    return "\n".join([*lines, *(f"- {in_table(words)}" for words in changed[:MOST]), *more, ""] if changed else lines)


def changes_document(changes: Changes) -> dict[str, Any]:
    """Return the changes as a JSON value."""
    return asdict(changes)


def settings(changes: Changes) -> list[str]:
    """Return a sentence for each setting in which the runs differ, and for a changed version of the definitions."""
    lines = [f"{name.replace('_', ' ')} was {then}, is {now}" for name, then, now in changes.settings]
    if changes.definitions is None:
        return lines
    then, now = (version or "an unknown version" for version in changes.definitions)
    return [f"the definitions changed from {then} to {now}: a changed verdict may come from them", *lines]


def count(changes: Changes) -> str:
    """Return how many changes of each type there are, and how many cases did not change."""
    plural = {"new failure": "new failures"}
    counts = [(len(changes.of(kind)), kind) for kind in KINDS]
    words = [f"{number} {plural.get(kind, kind) if number != 1 else kind}" for number, kind in counts if number]
    beside = f"; {changes.elsewhere} of gates or subjects that this run does not have" if changes.elsewhere else ""
    unknown = f"; {changes.unjudged} judged in one run only" if changes.unjudged else ""
    why = f" ({' and '.join(changes.parts)})" if changes.parts else ""
    return f"{', '.join(words) or 'no changes'}, {changes.same} as before{beside}{unknown}{why}"


def listed(changed: Changes) -> list[str]:
    """Return a line for each important change, and for each group of the others."""
    lines = []
    groups: dict[tuple[str, str, str], list[Change]] = defaultdict(list)
    for change in changed.changes:
        if change.kind in IN_FULL:
            reason = f": {change.reason}" if change.reason else ""
            turned = f"{change.before or 'not judged'} → {change.after}"
            lines.append(one_line(f"{change.kind}: {change.subject} · {change.gate} · {change.case}: {turned}{reason}"))
        else:
            groups[change.kind, change.subject, change.gate].append(change)
    for (kind, subject, gate), changes in groups.items():
        statuses = Counter(change.after or change.before for change in changes)
        counts = ", ".join(f"{number} {status}" for status, number in sorted(statuses.items()))
        lines.append(one_line(f"{kind}: {subject} · {gate}: {counts}"))
    return lines


def when(changes: Changes) -> str:
    """Return date and commit of the baseline."""
    return changes.started + (f", commit {changes.commit[:12]}" if changes.commit else "")
