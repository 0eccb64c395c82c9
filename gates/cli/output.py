"""What `gates check` prints besides the verdicts as they come: the end of a run, in the form that was asked for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gates.report.format_names import CheckFormat

if TYPE_CHECKING:
    from gates.report.text import Screen
    from gates.session import Tally


def chosen(form: CheckFormat | None, *, as_json: bool) -> CheckFormat:
    """Return the form: what was asked for, else `github` where GitHub Actions runs us, else `text`."""
    from gates.model import ConfigurationError

    if as_json and form not in {None, "jsonl"}:
        raise ConfigurationError(f"--json is --format jsonl, and --format {form} is asked for: give one of them")
    if as_json:
        return "jsonl"
    return form or ("github" if os.environ.get("GITHUB_ACTIONS") == "true" else "text")


def end(screen: Screen, path: Path, tally: Tally) -> None:
    """Print the rest of a finished run: a document is rendered from the file that was written, and from nothing else."""
    from gates.report import github, markdown
    from gates.report.formats import render
    from gates.report.jsonl import read

    screen.summary(tally)
    if screen.form == "github":
        runs = [read(path)]
        for line in github.commands(runs):
            typer.echo(line)
        github.append_summary(markdown.render(runs))
    elif screen.form in {"md", "json", "junit"}:
        typer.echo(render(screen.form, [read(path)]), nl=False)
    screen.end(path, tally)
