"""Complete the names of gates, ops and subjects in a shell; `gates --install-completion` sets it up."""

from __future__ import annotations

from collections.abc import Iterator


def gates(incomplete: str) -> Iterator[str]:
    """Yield the ids of gates, and their prefixes up to a dot, that begin so."""
    from gates.cli import selection, setup

    yield from (name for name in selection.names(setup.registry()) if name.startswith(incomplete))


def ops(incomplete: str) -> Iterator[str]:
    """Yield the ops that begin so."""
    from gates.cli import setup
    from gates.report.ops import ops_of

    yield from (name for name in ops_of(list(setup.registry().gates.values())) if name.startswith(incomplete))


def subjects(incomplete: str) -> Iterator[str]:
    """Yield the shipped subjects and peers that begin so; a shell adds the files."""
    from gates.cli import setup

    yield from (name for name in setup.registry().subjects if name.startswith(incomplete))
