"""Find the peers of this folder: each is a requirements file NAME.txt, and an adapter NAME.py if the peer is judged.

A requirements file begins with three comment lines, its header; the rest is for the installer:

    # distribution: inductive-mlxrl
    # import: mlxrl
    # purpose: judged: advantages and losses of its algorithm objects

With a fourth line, `# dependencies: listed`, only the listed packages are installed, without their dependencies. A line
`-r base/torch.txt` includes a file of packages that several peers need.

An adapter's `VARIANTS` is read as a literal: only a worker in the peer's own environment can import the file.
"""

from __future__ import annotations

import ast
import contextlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KEYS = ("distribution", "import", "purpose")
DEPENDENCIES = "dependencies"  # an optional key of a header
LISTED = "listed"
HEADER_LINE = re.compile(r"# ([a-z]+): (\S.*)")
EXPECTED_VARIANTS = "{name: ((op, ...), {setting: value}), ...} written as a literal"

Variants = dict[str, tuple[tuple[str, ...], dict[str, Any]]]


class PeerError(Exception):
    """A peer's declaration is invalid or its environment cannot be made; the message has reason and remedy."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Another library: its names, its requirements, and its adapter if it is judged."""

    name: str
    distribution: str
    import_name: str
    requirements: Path
    subject: Path | None = None
    purpose: str = ""
    variants: Variants = field(
        default_factory=dict
    )  # ops and settings of each variant, by the part of its name after @
    listed: bool = False  # install only the listed requirements


def discover(folder: Path) -> dict[str, Peer]:
    """Return the peers of a folder by name, in the order of their names.

    Raises:
        PeerError: a header or an adapter's VARIANTS is malformed; the message names the file.
    """
    return {file.stem: _peer(file) for file in sorted(folder.glob("*.txt"))}


def split_header(text: str) -> tuple[dict[str, str], str]:
    """Return the header of a requirements file as a dict, and the text that follows it.

    Raises:
        ValueError: the file does not start with each key once.
    """
    lines = text.splitlines(keepends=True)
    pairs: list[tuple[str, str]] = []
    for line in lines:
        match = HEADER_LINE.fullmatch(line.rstrip())
        if match is None:
            break
        pairs.append((match[1], match[2]))
    keys = [key for key, _ in pairs if key != DEPENDENCIES]
    if any(key == DEPENDENCIES and value != LISTED for key, value in pairs):
        raise ValueError(f"`# {DEPENDENCIES}:` must be followed by {LISTED}, or left out")
    if sorted(keys) != sorted(KEYS):
        shown = ", ".join(keys) or "none of them"
        raise ValueError(f"must begin with a line `# KEY: VALUE` for each of {', '.join(KEYS)}; found {shown}")
    return dict(pairs), "".join(lines[len(pairs) :])


def _peer(requirements: Path) -> Peer:
    try:
        header, _ = split_header(requirements.read_text(encoding="utf-8"))
    except ValueError as error:  # including UnicodeDecodeError
        raise PeerError(f"{requirements}: {error}") from None
    name = requirements.stem
    adapter = requirements.with_name(f"{name.replace('-', '_')}.py")
    subject = adapter if adapter.is_file() else None
    variants = _variants(subject) if subject else {}
    return Peer(
        name,
        header["distribution"],
        header["import"],
        requirements,
        subject,
        header["purpose"],
        listed=DEPENDENCIES in header,
        variants=variants,
    )


def packages(requirements: Path) -> str:
    """Return the text of a requirements file without its header, with included files inserted."""
    text = requirements.read_text(encoding="utf-8")
    with contextlib.suppress(ValueError):  # an included file has no header
        _, text = split_header(text)
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    parts = (packages(requirements.parent / line[3:].strip()) if line.startswith("-r ") else line for line in lines)
    return "\n".join(parts)


def _variants(adapter: Path) -> Variants:
    """Return the adapter's VARIANTS, empty if it assigns none."""
    try:
        body = ast.parse(adapter.read_bytes()).body
    except (SyntaxError, ValueError) as error:
        raise PeerError(f"{adapter}: is not Python: {error}") from None
    for node in body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id="VARIANTS")], value=value)
                | ast.AnnAssign(target=ast.Name(id="VARIANTS"), value=ast.expr() as value)
            ):
                return _literal(value, f"{adapter}:{node.lineno}")
    return {}


def _literal(value: ast.expr, location: str) -> Variants:
    try:
        variants: Any = ast.literal_eval(value)
    except (ValueError, TypeError):  # it is not a literal
        variants = None
    if not _is_variants(variants):
        raise PeerError(f"{location}: VARIANTS must be {EXPECTED_VARIANTS}")
    literal: Variants = variants
    return literal


def _is_variants(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(name, str)
        and isinstance(variant, tuple)
        and len(variant) == 2
        and isinstance(variant[0], tuple)
        and all(isinstance(op, str) for op in variant[0])
        and isinstance(variant[1], dict)
        and all(isinstance(setting, str) for setting in variant[1])
        for name, variant in value.items()
    )
