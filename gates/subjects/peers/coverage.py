"""Compare the declared rows of a peer with the public names of its installed package."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from gates.subjects.peers import declared, public_names
from gates.subjects.peers.declared import Conformance, Finding
from gates.subjects.peers.discovery import Peer
from gates.subjects.peers.environments import PeerEnv


@dataclass(frozen=True, slots=True)
class CoverageRow:
    """The declared status of one public name."""

    source: str
    name: str
    status: str  # one of scope.STATUSES, or "" without a declared row
    reason: str


@dataclass(frozen=True, slots=True)
class Covered:
    """The rows of a peer, and the problems of its declaration."""

    rows: tuple[CoverageRow, ...]
    problems: tuple[str, ...]

    def count(self, status: str) -> int:
        """Return how many names have this status."""
        return sum(row.status == status for row in self.rows)


def site_packages(environment: PeerEnv) -> Path:
    """Return the site-packages folder of an environment."""
    folders = sorted(environment.path.glob("lib/python*/site-packages"))
    return folders[0] if folders else environment.path / "Lib" / "site-packages"


def covered(peer: Peer, environment: PeerEnv) -> Covered:
    """Return a row for every public name of a peer's sources, and a problem for each unlisted or stale one.

    Raises:
        PeerError: the declaration is malformed, or the package lacks a source.
    """
    known, packages = declared.conformance(peer), site_packages(environment)
    rows, problems = [], []
    for source in known.coverage:
        names = public_names.names(source.source, packages)
        for name in names:
            row = source.row(name)
            rows.append(CoverageRow(source.source, name, *(row or ("", ""))))
            if row is None:
                problems.append(f"{source.source}: {name} has no row; give it one in {declared.file_of(peer).name}")
        problems += [
            f"{source.source}: the row {glob!r} matches no name of this version; remove it"
            for glob in source.rows
            if not any(name == glob or fnmatchcase(name, glob) for name in names)
        ]
    problems += _moved(known, packages)
    return Covered(tuple(rows), tuple(problems))


def _moved(known: Conformance, packages: Path) -> Iterator[str]:
    """Yield a problem for each finding whose quoted line moved in this version."""
    for finding in known.finding:
        problem = _line_problem(finding, packages)
        if problem:
            yield f"{finding.id}: {problem}"


def _line_problem(finding: Finding, packages: Path) -> str:
    name, _, number = finding.where.rpartition(":")
    try:
        lines = (packages / name).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return f"this version has no file {name}"
    if int(number) > len(lines):
        return f"{name} has {len(lines)} lines, not {number}"
    return "" if finding.quote in lines[int(number) - 1] else f"{finding.where} does not hold {finding.quote!r}"
