"""Render what changed since a recorded run, as text, markdown and JSON."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import asdict
from typing import Any

from gates.report.baseline import KINDS, Change, Changes
from gates.results.escape import code, in_table, one_line

IN_FULL = (
    "new failure",
    "worse",
    "better",
    "fixed",
    "changed",
)  # the others, often hundreds, are counted by subject and gate

MOST = 100  # lines that may precede the results of the run itself


def changes_text(found: Changes) -> str:
    """Return lines for a terminal; the last one counts."""
    lines = [one_line(f"changes since {found.since} ({when(found)}):")]
    lines += [one_line(f"  {words}") for words in settings(found)]
    lines += [f"  {words}" for words in listed(found)]
    return "\n".join([*lines, f"  {count(found)}"])


def changes_markdown(found: Changes) -> str:
    """Return a section of a document."""
    lines = [
        f"## Changes since {code(found.since)}",
        "",
        f"Recorded {when(found)}. {count(found).capitalize()}.",
        "",
    ]
    changed = settings(found) + listed(found)
    more = [f"- {len(changed) - MOST} more are in the JSON form"] if len(changed) > MOST else []
    return "\n".join([*lines, *(f"- {in_table(words)}" for words in changed[:MOST]), *more, ""] if changed else lines)


def changes_document(found: Changes) -> dict[str, Any]:
    """Return the changes as a JSON value."""
    return asdict(found)


def settings(found: Changes) -> list[str]:
    """Return a sentence for each setting in which the runs differ, and for a changed version of the definitions."""
    lines = [f"{name.replace('_', ' ')} was {then}, is {now}" for name, then, now in found.settings]
    if found.definitions is None:
        return lines
    then, now = (version or "an unknown version" for version in found.definitions)
    return [f"the definitions changed from {then} to {now}: a changed verdict may come from them", *lines]


def count(found: Changes) -> str:
    """Return how many changes of each type there are, and how many cases did not change."""
    plural = {"new failure": "new failures"}
    counts = [(len(found.of(kind)), kind) for kind in KINDS]
    words = [f"{number} {plural.get(kind, kind) if number != 1 else kind}" for number, kind in counts if number]
    beside = f"; {found.elsewhere} of gates or subjects that this run does not have" if found.elsewhere else ""
    unknown = f"; {found.unjudged} judged in one run only" if found.unjudged else ""
    why = f" ({' and '.join(found.parts)})" if found.parts else ""
    return f"{', '.join(words) or 'no changes'}, {found.same} as before{beside}{unknown}{why}"


def listed(found: Changes) -> list[str]:
    """Return a line for each important change, and for each group of the others."""
    lines = []
    groups: dict[tuple[str, str, str], list[Change]] = defaultdict(list)
    for change in found.changes:
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


def when(found: Changes) -> str:
    """Return date and commit of the baseline."""
    return found.started + (f", commit {found.commit[:12]}" if found.commit else "")
