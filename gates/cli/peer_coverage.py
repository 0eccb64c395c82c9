"""Renew what the record of a library says about its public names; grades and findings stay as they were judged."""

from __future__ import annotations

from pathlib import Path

from gates.model import ConfigurationError
from gates.results.conformance_records import CoverageRecord, read_conformance
from gates.subjects.peers import environments
from gates.subjects.peers.coverage import Covered
from gates.subjects.peers.discovery import Peer


def record(peer: Peer, covered: Covered, folder: Path) -> Path:
    """Write the rows of a peer into its recorded file, and return that file.

    Raises:
        ConfigurationError: there is none yet, or it is of another version.
    """
    path = folder / f"{peer.name}.jsonl"
    if not path.is_file():
        raise ConfigurationError(f"no {path} to renew; `gates peers check {peer.name} --record` writes it")
    results, version = read_conformance(path), environments.pinned(peer)
    if results.header.version != version:
        raise ConfigurationError(
            f"{path} is of {peer.name} {results.header.version}, {version} is pinned; "
            f"`gates peers check {peer.name} --record` judges that"
        )
    results.coverage = [
        CoverageRecord(source=row.source, name=row.name, status=row.status, reason=row.reason) for row in covered.rows
    ]
    results.write(path)
    return path
