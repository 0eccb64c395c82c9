"""Choose the format of a report: by `--format`, by the name of the file that it goes to, or the usual one of its data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from gates.model import ConfigurationError

Kind = Literal["verdicts", "conformance", "speeds", "curves"]
Form = Literal["text", "md", "json", "jsonl", "junit", "sarif", "github", "html", "svg"]
FORMS: dict[Kind, tuple[Form, ...]] = {  # of each kind of recorded data, the usual one first
    "verdicts": ("md", "html", "json", "jsonl", "junit", "sarif", "text", "github"),
    "conformance": ("md", "html", "json", "jsonl", "text"),
    "speeds": ("text", "md", "html"),
    "curves": ("svg",),
}
NAMES: dict[Kind, str] = {
    "verdicts": "verdicts",
    "conformance": "grades of a library",
    "speeds": "speeds",
    "curves": "learning curves",
}
SUFFIXES: dict[str, tuple[Form, ...]] = {  # the first is written unless --format names the other
    ".md": ("md",),
    ".html": ("html",),
    ".htm": ("html",),
    ".json": ("json",),
    ".jsonl": ("jsonl",),
    ".xml": ("junit",),
    ".sarif": ("sarif",),
    ".txt": ("text", "github"),
    ".svg": ("svg",),
}
SECOND = ".htm"  # another name of a suffix that is listed


def chosen(kind: Kind, file: Path, form: Form | None, out: Path | None) -> Form:
    """Return the format of a report on recorded data of this kind.

    Args:
        kind: of the data.
        file: the first of the recorded files, which messages name.
        form: `--format`.
        out: where the report goes; None for the terminal.

    Raises:
        ConfigurationError: the data has no such format, or the two contradict each other.
    """
    possible = FORMS[kind]
    if form is not None and form not in possible:
        raise ConfigurationError(
            f"{file} holds {NAMES[kind]}, to which --format {form} does not apply; it can be {_either(possible)}"
        )
    if out is None or (form is not None and not out.suffix):
        return form or possible[0]
    named = tuple(name for name in SUFFIXES.get(out.suffix.lower(), ()) if name in possible)
    if str(out) == "-":
        raise ConfigurationError("--out - is no file; leave it out, and the report is printed")
    if not named:
        raise ConfigurationError(
            f"--out {out}: {file} holds {NAMES[kind]}, so the name must end in {_either(suffixes(kind))}"
        )
    if form is not None and form not in named:
        raise ConfigurationError(
            f"--format {form} contradicts --out {out}, whose name says {named[0]}: leave out --format"
        )
    return form or named[0]


def suffixes(kind: Kind) -> list[str]:
    """Return the endings of names that a report on this kind of data may have."""
    return [
        suffix for suffix, forms in SUFFIXES.items() if suffix != SECOND and any(form in FORMS[kind] for form in forms)
    ]


def _either(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else names[0]
