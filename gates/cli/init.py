"""`gates init`: start a subject file for your own library."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gates.config.format_names import InitFramework

EXAMPLES = """Examples:

gates init mylib · gates init mylib --op policy_loss --op token_kl --folder tests · gates init mylib --op all
gates init mylib --framework torch · gates init mylib --framework mlx --op policy_loss"""


def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The library; the file will be NAME_gates.py.")],
    op: Annotated[
        list[str] | None,
        typer.Option("--op", metavar="OP", help="An op to fill in, or `all`. Default: the usual five."),
    ] = None,
    folder: Annotated[Path, typer.Option(metavar="DIR", help="Where the file goes.")] = Path(),
    framework: Annotated[
        InitFramework | None,
        typer.Option(help="Fill in a loss by its forward alone; its gradient is this framework's autograd."),
    ] = None,
) -> None:
    """Write a commented subject file that runs at once; an op that is not filled in is `unsupported`, never a pass."""
    import shlex

    from gates.cli import setup
    from gates.model import ConfigurationError
    from gates.nearest import hint
    from gates.report import scaffold
    from gates.report.ops import conventions_of, ops_of
    from gates.results.atomic_write import write_new

    path = scaffold.path_for(name, folder)
    gates = list(setup.registry().gates.values())
    known = ops_of(gates)
    wanted = list(known) if op == ["all"] else list(dict.fromkeys(op or scaffold.FIRST))
    if unknown := [item for item in wanted if item not in known]:
        near = hint(unknown[0], known, form="did you mean {}? ")
        raise ConfigurationError(f"--op {unknown[0]}: there is no such op; {near}`gates ops` lists them")
    text = scaffold.scaffold(name, path.name, known, {item: conventions_of(item, gates) for item in wanted}, framework)
    write_new(path, text)
    shown = shlex.quote(str(path) if path.is_absolute() else f"./{path}")
    functions = "1 function" if len(wanted) == 1 else f"{len(wanted)} functions"
    typer.echo(f"wrote {path} with {functions} to fill in; judge it with: gates check --subject {shown}")
