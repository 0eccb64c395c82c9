"""`gates peers`: isolated environments of other libraries."""

from __future__ import annotations

from typing import Annotated

import typer

from gates.cli.verb import Verb

EXAMPLES = """Examples:

gates peers list · gates peers sync mlxrl"""

app = typer.Typer(help="Create and list the isolated environments of peers.", no_args_is_help=True)


@app.command("sync", cls=Verb, epilog=EXAMPLES)
def sync(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Peers, as `gates peers list` shows them.")],
) -> None:
    """Create a peer's environment from its pinned requirements; an existing one is kept."""
    from gates.model import ConfigurationError
    from gates.subjects.peers import environments

    for name in names:
        try:
            found = environments.sync(name, on_line=lambda line: typer.echo(f"  {line}"))
        except environments.PeerError as error:
            raise ConfigurationError(str(error)) from None
        typer.echo(f"{name}: ready at {found.path}")


@app.command("list", cls=Verb, epilog=EXAMPLES)
def list_(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List peers, their pinned versions, whether their environments exist, and what each peer is for."""
    import dataclasses
    import json

    from gates.model import ConfigurationError
    from gates.subjects.peers import environments

    try:
        rows = environments.listing()
    except environments.PeerError as error:
        raise ConfigurationError(str(error)) from None
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(row) for row in rows], indent=2, default=str))
        return
    for row in rows:
        state = "ready" if row.ready else "not made; `gates peers sync` makes it"
        typer.echo(f"{row.name:12} {row.distribution} {row.version:10} {state:40} {row.path}\n{'':12} {row.purpose}")
