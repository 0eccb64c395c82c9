"""Choose the seed of a run: a number, or `random`, which draws one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import typer

RANDOM = "random"
SeedSetting = int | Literal["random"]


class Drawn(int):
    """A seed that was drawn for this run instead of given by the user."""


def draw() -> Drawn:
    """Return 32 random bits."""
    return Drawn(int.from_bytes(os.urandom(4), "little"))


def parse(text: str) -> int:
    """Read `--seed`.

    Raises:
        BadParameter: it is neither a number nor `random`.
    """
    if text == RANDOM:
        return draw()
    if not (text.isascii() and text.isdigit()):
        raise typer.BadParameter(f"{text!r} must be a number from 0 on, or {RANDOM}")
    return int(text)


def chosen(named: int | None, project: SeedSetting, *, resume: Path | None = None, shard: str | None = None) -> int:
    """Return the seed of the command line, else the project's; a resumed run reuses the seed that it drew.

    Raises:
        ConfigurationError: a shard asks for a random seed, but all shards must share one.
    """
    from gates.model import ConfigurationError

    seed = named if named is not None else draw() if project == RANDOM else int(project)
    if not isinstance(seed, Drawn):
        return seed
    if shard is not None:
        raise ConfigurationError(
            f"--shard {shard} with a random seed: the parts must agree; draw one for all, such as --seed {seed}"
        )
    return recorded(resume) if resume else seed


def recorded(path: Path) -> int:
    """Return the seed in the header of a results file."""
    from gates.results.jsonl import records
    from gates.results.records import HeaderRecord

    header = next(records(path))
    assert isinstance(header, HeaderRecord)  # `records` guarantees it
    return header.seed


def command(arguments: list[str], seed: int) -> list[str]:
    """Return the arguments that repeat the run, the verb first; a drawn seed is added."""
    from gates.run.shards import without

    if not isinstance(seed, Drawn):
        return arguments
    verb, *rest = without(arguments, "--seed")
    return [verb, "--seed", str(seed), *rest]  # not at the end, where it might follow a `--`
