"""Print the end of a `gates check` run in the chosen format."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gates.config.format_names import CheckFormat

if TYPE_CHECKING:
    from collections.abc import Callable

    from gates.cli.counterexamples import Failures
    from gates.cli.diagnoses import WrongOps
    from gates.errors import FaultError
    from gates.registry import Registry
    from gates.report.text import Screen
    from gates.results.jsonl import Results
    from gates.run.session import Tally
    from gates.worker.process import Hello


def chosen(form: CheckFormat | None, *, as_json: bool) -> CheckFormat:
    """Return the format: the chosen one, else `github` in GitHub Actions, else `text`."""
    from gates.model import ConfigurationError

    if as_json and form not in {None, "jsonl"}:
        raise ConfigurationError(f"--json means --format jsonl, but --format {form} is given too: give one of them")
    if as_json:
        return "jsonl"
    return form or ("github" if os.environ.get("GITHUB_ACTIONS") == "true" else "text")


def ended_early(error: FaultError | OSError, path: Path, command: Callable[[Path], str]) -> FaultError:
    """Return the error of a run that stopped early: the cause, the verdicts that are kept, and the command that resumes it.

    Args:
        error: the cause.
        path: the results file.
        command: gives the command that resumes a file.
    """
    from gates.errors import FaultError, FullDiskError, sentence
    from gates.model import ConfigurationError
    from gates.results.jsonl import read

    message = str(error) if isinstance(error, FaultError) else sentence("cannot write the output", error)
    try:
        kept = f"{read(path).state}; they are in {path}"
    except ConfigurationError:
        elsewhere = "\nwith a folder ELSEWHERE on another disk: the same command and --out ELSEWHERE"
        return FaultError(f"{message}{elsewhere if isinstance(error, FullDiskError) else ''}")  # the file is gone
    if isinstance(error, FullDiskError):
        copy = f"cp {shlex.quote(str(path))} ELSEWHERE/ && {command(Path('ELSEWHERE', path.name))}"
        return FaultError(f"{message}\n{kept}\nwith a folder ELSEWHERE on another disk go on with: {copy}")
    return FaultError(f"{message}\n{kept}\ngo on with: {command(path)}")


def since(baseline: Path | None, form: CheckFormat) -> Results | None:
    """Read the baseline before the run, so that an unusable file is reported at once."""
    from gates.report.formats import refuse
    from gates.results.jsonl import read

    refuse(form, changed=baseline is not None)
    return read(baseline) if baseline else None


def refuse_misspelt(registry: Registry, name: str, hello: Hello) -> None:
    """Refuse a convention of a user's subject that is near a known word: its cases would all be `unsupported`."""
    from gates.model import ConfigurationError
    from gates.report.declarations import misspelt

    if name not in registry.subjects and (problems := misspelt(name, hello.provides, registry.gates.values())):
        raise ConfigurationError("; ".join(problems))


def notes(tally: Tally, registry: Registry) -> None:
    """Print notes about declarations of a user's subject that have no effect, such as misspelt names."""
    from gates.report.declarations import unasked, undeparted
    from gates.results.escape import one_line

    own = {name: hello for name, hello in tally.hellos.items() if name not in registry.subjects}
    for name, hello in own.items():
        gates = registry.gates.values()
        for sentence in (*unasked(name, hello.provides, gates), *undeparted(name, hello.documented, gates)):
            typer.echo(one_line(f"note: {sentence}"), err=True)


def end(
    screen: Screen, path: Path, tally: Tally, before: Results | None, failures: Failures, wrong_ops: WrongOps
) -> None:
    """Print the end of a finished run; a document is rendered from the results file alone."""
    from gates.report import github
    from gates.report.baseline import compare
    from gates.report.changes import changes_text
    from gates.report.formats import pieces, render
    from gates.results.jsonl import read

    runs = [] if screen.form == "jsonl" or (screen.form == "text" and before is None) else [read(path)]
    changes = compare(before, runs[0]) if before else None
    if screen.form in {"md", "json", "junit", "sarif"}:
        for piece in pieces(screen.form, runs, changes):
            typer.echo(piece, nl=False)
    elif changes:
        typer.echo(f"{changes_text(changes)}\n")
    if screen.form == "github":
        for line in github.commands(runs):
            typer.echo(line)
        github.append_summary(render("md", runs, changes))
    screen.end(path, tally, failures.records, failures.notes, wrong_ops.records)
