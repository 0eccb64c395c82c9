"""`gates doctor`: what this machine has for judging, and for each lack the command that mends it."""

from __future__ import annotations

from typing import Annotated

import typer

EXAMPLES = """Examples:

gates doctor · gates doctor --python .venv/bin/python · gates doctor --json

Exit code: 0 `gates check` can run here · 1 something that it needs is missing or broken."""

MARKS = {"ok": "ok", "absent": "--", "broken": "!!"}


def doctor(
    python: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="The interpreter that has your library. Default: python in [tool.gates]."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Look at interpreter, libraries, your project, peers and caches; each lack has the command that mends it.

    ok: it is there. --: it is absent, and only what its line names needs it. !!: it is broken, and `gates check` cannot run.
    """
    import dataclasses
    import json
    from pathlib import Path

    from gates.config.settings import root
    from gates.errors import ExitCode
    from gates.run.health import examined

    parts = examined(Path.cwd(), root(Path.cwd()), python)
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(part) for part in parts], indent=2, ensure_ascii=False))
    else:
        width = max(len(part.name) for part in parts)
        for part in parts:
            typer.echo(f"{MARKS[part.state]}  {part.name:{width}}  {part.says}")
            if part.remedy:
                typer.echo(f"    {'':{width}}  {part.remedy}")
    if any(part.state == "broken" for part in parts):
        raise typer.Exit(ExitCode.FAILED)
