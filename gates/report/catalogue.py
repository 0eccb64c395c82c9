"""Render the catalogue of mutants: each mutation, its symptom, where it was reported, which gates catch it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from gates.model import THEMES, ConfigurationError, Mutant
from gates.registry import Registry, matching

THREAD = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)#(?P<number>\d+): (?P<words>.+)")


class Report(NamedTuple):
    """A place where a bug was reported: `thread` is "owner/repo#7" with its `url`; both are empty for a release."""

    words: str
    thread: str = ""
    url: str = ""


def reports(source: str) -> list[Report]:
    """Return the reports that `Mutant.source` names, one for each part between "; "."""
    return [_report(part) for part in source.split("; ") if part]


def _report(part: str) -> Report:
    if (match := THREAD.fullmatch(part)) is None:
        return Report(part)
    repository, number = match["repository"], match["number"]
    # GitHub redirects the address of an issue to the pull request of that number
    return Report(match["words"], f"{repository}#{number}", f"https://github.com/{repository}/issues/{number}")


def is_public(mutant: Mutant) -> bool:
    """Return whether a public thread reports the bug."""
    return any(report.thread for report in reports(mutant.source))


def chosen(registry: Registry, patterns: Iterable[str]) -> list[Mutant]:
    """Return the mutants that a pattern selects: a theme, a mutant's or a gate's name, a prefix of one, or a glob.

    Raises:
        ConfigurationError: a pattern selects none.
    """
    selected: dict[str, Mutant] = {}
    patterns = list(patterns)
    known = dict.fromkeys(name for mutant in registry.mutants.values() for name in _names(mutant))
    for pattern in patterns:
        named = set(matching(pattern, known))
        matches = {
            m.name: m for m in registry.mutants.values() if m.theme == pattern or not named.isdisjoint(_names(m))
        }
        if not matches:
            raise ConfigurationError(
                f"no mutant matches {pattern!r}; name a mutant, a gate, a prefix or glob of one, or a theme: {', '.join(THEMES)}"
            )
        selected |= matches
    return list(selected.values()) if patterns else list(registry.mutants.values())


def _names(mutant: Mutant) -> tuple[str, ...]:
    return (mutant.name, *mutant.caught_by)


def as_item(mutant: Mutant) -> dict[str, Any]:
    """Return a mutant as data for JSON."""
    return {
        "name": mutant.name,
        "theme": mutant.theme,
        "mistake": mutant.mistake,
        "symptom": mutant.symptom,
        "seen_in": [report._asdict() for report in reports(mutant.source)],
        "arises": mutant.arises,
        "host": mutant.host,
        "seam": mutant.target,
        "caught_by": list(mutant.caught_by),
        "prove": [f"gates prove {gate}" for gate in mutant.caught_by],
    }


def page(mutants: Iterable[Mutant]) -> str:
    """Return the page as markdown, sorted by theme and name."""
    known = sorted(mutants, key=lambda m: m.name)
    themes = {theme: [m for m in known if m.theme == theme] for theme in THEMES}
    lines = [
        "# Mutants that the gates catch",
        "",
        "Written by `make generate`; edit the mutants in `gates/families`, not this page.",
        "",
        _summary(known),
        "",
        *(
            f"- [{theme}](#{theme.replace(' ', '-').lower()}): {len(members)}"
            for theme, members in themes.items()
            if members
        ),
        "",
    ]
    for theme, members in themes.items():
        if members:
            lines += [f"## {theme}", ""]
            lines += [*map(_entry, members), ""]
    return "\n".join(lines).rstrip() + "\n"


def _summary(mutants: list[Mutant]) -> str:
    return (
        f"{len(mutants)} mutations of working implementations, each caught by the gates that it names. "
        f"{sum(map(is_public, mutants))} were reported in a public thread that shows the same formula or the same bug; it is "
        "linked. The others say how they arise. `gates prove GATE` applies a gate's mutations and shows that the gate "
        "fails."
    )


def _entry(mutant: Mutant) -> str:
    """Return one item of the list: mutation, symptom, source and the gates that catch it."""
    parts = [f"- **{mutant.name}**: {mutant.mistake}.", f"In training: {mutant.symptom}"]
    if mutant.source:
        parts.append(f"Reported in {'; '.join(map(_link, reports(mutant.source)))}.")
    if mutant.arises:
        parts.append(f"Arises from: {mutant.arises}.")
    gates = ", ".join(f"`{gate}`" for gate in mutant.caught_by)
    parts.append(f"Applied to `{mutant.host}`, target `{mutant.target}`; caught by {gates}.")
    return " ".join(parts)


def _link(report: Report) -> str:
    return f"[{report.thread}]({report.url}): {report.words}" if report.thread else report.words
