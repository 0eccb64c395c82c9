"""`gates identify`: what an op of a subject computes, with nothing asked."""

from __future__ import annotations

from typing import Annotated

import typer

EXAMPLES = """Examples:

gates identify ./mine.py policy_loss · gates identify ./mine.py group_advantages --json"""


def identify(
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="A subject's name, or the file of yours.")],
    op: Annotated[
        str | None, typer.Argument(metavar="[OP]", help="The op. Default: each one that can be identified.")
    ] = None,
    python: Annotated[str | None, typer.Option(metavar="PATH", help="The interpreter for a subject FILE.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say which known definition an op computes: its name, libraries that have it, or a definition with a known change.

    The subject is called with designed inputs. Exit code 0: each op was named; 1: one was not; 3: none was called.
    """
    import json
    from pathlib import Path

    from gates.cli import setup
    from gates.config import settings
    from gates.diagnosis.identify import identified, ops_of
    from gates.families.programs import programs
    from gates.model import ConfigurationError
    from gates.nearest import hint
    from gates.report import identification
    from gates.subjects import catalogue
    from gates.worker.process import WorkerError

    known = programs()
    if op is not None and op not in known:
        raise ConfigurationError(f"{op!r} cannot be identified{hint(op, known)}; these can: {', '.join(known)}")
    registry = setup.registry()
    interpreter = setup.interpreter(python or settings.read(settings.root(Path.cwd())).python)
    chosen = catalogue.choose(registry, (subject,), interpreter, variants=False)[0]
    try:
        names = [op] if op else list(filter(ops_of(chosen).__contains__, known)) or list(known)[:1]
        findings = [identified(known[name], registry.gates.values(), chosen) for name in names]
    except WorkerError as error:
        raise ConfigurationError(f"{chosen.name} did not start: {error}") from None
    if op is None:
        findings = [item for item in findings if item.diagnosis is not None] or findings[:1]
    if as_json:
        typer.echo(
            json.dumps([identification.record(chosen.name, item) for item in findings], indent=2, ensure_ascii=False)
        )
    else:
        typer.echo("\n".join(identification.lines(chosen.name, item) for item in findings))
    raise typer.Exit(identification.exit_code(findings))
