"""Select gates by id, prefix or glob, and tell files from them; for an unknown name, suggest similar gates or the gates of that op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gates.nearest import nearest

if TYPE_CHECKING:
    from gates.model import Gate
    from gates.registry import Registry

MOST = 3  # names in a hint


def chosen(registry: Registry, patterns: Sequence[str]) -> tuple[Gate, ...]:
    """Return the gates that match any pattern (id, prefix, glob); without patterns all.

    Raises:
        ConfigurationError: a pattern matches no gate; the message suggests others.
    """
    from gates.model import ConfigurationError

    for pattern in patterns:
        try:
            registry.select((pattern,))
        except ConfigurationError:
            raise ConfigurationError(
                f"no gate matches {pattern!r}; {_hint(pattern, registry)}`gates list` shows the gates there are"
            ) from None
    return registry.select(tuple(patterns))


def apart(select: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the subjects' files and the patterns of gates among the arguments; a name with a slash or `.py` is a file."""
    files = [name for name in select if name.endswith(".py") or "/" in name]
    return files, [name for name in select if name not in files]


def _hint(pattern: str, registry: Registry) -> str:
    asking = [id_ for id_, gate in registry.gates.items() if any(op.name == pattern for op in gate.ops)]
    if asking:
        return f"it is an op, and the gates that use it are {_listed(asking)}; "
    near = nearest(pattern, names(registry), MOST)
    return f"did you mean {_listed(near)}? " if near else ""


def names(registry: Registry) -> list[str]:
    """Return every id, and every prefix of one that ends at a dot."""
    ids = [id_.split(".") for id_ in registry.gates]
    return list(dict.fromkeys(".".join(parts[:n]) for parts in ids for n in range(1, len(parts) + 1)))


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MOST
    return ", ".join(names[:MOST]) + (f" and {more} more" if more > 0 else "")
