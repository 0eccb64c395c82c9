"""Read a peer's declaration NAME.toml: which of its public names are judged, and the findings.

The file lies next to the adapter. The report, `gates peers repro` and the tests read its findings.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from gates.subjects.peers import scope
from gates.subjects.peers.discovery import Peer, PeerError
from gates.subjects.peers.scope import Status

MOST_LINES = 20  # lines of a reproduction
EVERY = "*"  # names all ops: of a setting such as a shim

Use = Literal["default", "option", "direct"]
Row = tuple[Status, str]  # status, and the reason or the id of a finding


class Declared(BaseModel):
    """A model without undeclared fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Source(Declared):
    """The public names of one module or class of the peer's package, with a row for each."""

    source: str = Field(description="such as `fields trl.trainer.grpo_config:GRPOConfig`; see `public_names`")
    rows: dict[str, Row] = Field(description="by name, or by a glob for a family of names")

    @field_validator("rows")
    @classmethod
    def _checkable(cls, rows: dict[str, Row]) -> dict[str, Row]:
        for name, row in rows.items():
            if problem := scope.problem(*row):
                raise ValueError(f"{name}: {problem}")
        return rows

    def row(self, name: str) -> Row | None:
        """Return the row of a name, or that of the first matching glob."""
        if name in self.rows:
            return self.rows[name]
        return next((row for glob, row in self.rows.items() if fnmatchcase(name, glob)), None)


def named(subject: str, op: str, ops: Collection[str]) -> bool:
    """Return whether ops, each of the peer and its variants, `SUBJECT: op` or `*`, name an op of a subject."""
    return op in ops or f"{subject}: {op}" in ops or EVERY in ops


class Finding(Declared):
    """One difference between a peer and the definitions, with a program that reproduces it."""

    id: str
    kind: Literal["bug", "convention", "trap", "numeric"] = Field(alias="class")
    grade: Literal["wrong", "differs", "raises", "fragile", "imprecise", "hardening", "departs", "correct"]
    use: Use = Field(
        description="holds in a default run, with a documented option, or for a direct call of a function only"
    )
    departures: tuple[str, ...] = Field((), description="the same words in every library that departs so")
    ops: tuple[str, ...] = Field(
        description="the ops that a check grades so, of the peer and its variants, or `SUBJECT: op`; empty where none shows it"
    )
    where: str = Field(description="file, relative to site-packages, and line", pattern=r"^[\w./-]+:\d+$")
    quote: str = Field(description="text of that line, so that a new version is noticed")
    says: str
    computes: str
    number: str
    consequence: str
    rows: tuple[str, ...] = Field(
        (), description="rows of the matrix that it is about, where neither ops nor departures say it"
    )
    repro: str = Field(description="a program for the peer's own environment; it ends with 0 if the finding holds")

    @field_validator("repro")
    @classmethod
    def _short(cls, program: str) -> str:
        lines = program.strip().splitlines()
        if len(lines) > MOST_LINES:
            raise ValueError(f"has {len(lines)} lines, must have at most {MOST_LINES}")
        if "assert" not in program:
            raise ValueError("asserts nothing, so that it would hold for any version")
        return program.strip() + "\n"

    @model_validator(mode="after")
    def _class_and_grade_agree(self) -> Self:
        if self.kind == "numeric" and self.grade in {"wrong", "departs"}:
            raise ValueError(f"{self.id} is numeric and {self.grade}: lost digits or a rare input are no other formula")
        return self


class Setting(Declared):
    """A setting that the adapter chooses for the library, and that is not the library's default."""

    ops: tuple[str, ...] = Field(description="ops as in findings")
    chosen: str = Field(description="the setting with its value, and the default in brackets")


class Blank(Declared):
    """Ops that the library has, or whose name it takes, and that no grade is of; any other op without a grade is absent."""

    ops: tuple[str, ...]
    kind: Literal["not judged", "refused"]
    why: str


class Conformance(Declared):
    """The declaration of one peer."""

    coverage: tuple[Source, ...] = ()
    setting: tuple[Setting, ...] = ()
    blank: tuple[Blank, ...] = ()
    finding: tuple[Finding, ...] = ()

    def named(self, finding: str) -> Finding | None:
        """Return the finding of this id."""
        return next((entry for entry in self.finding if entry.id == finding), None)


def file_of(peer: Peer) -> Path:
    """Return the path of a peer's declaration, which may not exist."""
    return peer.requirements.with_suffix(".toml")


def conformance(peer: Peer) -> Conformance:
    """Return the declaration of a peer; it is empty without a file.

    Raises:
        PeerError: the file is malformed; the message names file and field.
    """
    path = file_of(peer)
    if not path.is_file():
        return Conformance()
    try:
        declared = Conformance.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        first = error.errors()[0]
        location = ".".join(map(str, first["loc"]))
        raise PeerError(f"{path}: {location}: {first['msg']}") from None
    except ValueError as error:  # not TOML, or not UTF-8
        raise PeerError(f"{path}: {error}") from None
    _consistent(path, declared)
    return declared


def _consistent(path: Path, declared: Conformance) -> None:
    ids = [finding.id for finding in declared.finding]
    twice = sorted({id_ for id_ in ids if ids.count(id_) > 1})
    if twice:
        raise PeerError(f"{path}: finding {twice[0]} stands there twice")
    for source in declared.coverage:
        for name, (status, reason) in source.rows.items():
            if status == "departs" and reason not in ids:
                raise PeerError(
                    f"{path}: {source.source}: {name} departs by {reason!r}, which is no finding of the file"
                )
