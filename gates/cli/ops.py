"""`gates ops`: the ops that a subject may provide, with shapes, dtypes, conventions and formulas."""

from __future__ import annotations

from typing import Annotated

import typer

from gates.cli import completion

EXAMPLES = """Examples:

gates ops · gates ops token_kl · gates ops policy_loss --json"""


def ops(
    op: Annotated[
        str | None,
        typer.Argument(metavar="[OP]", autocompletion=completion.ops, help="One op in full. Default: a line for each."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the ops that gates call: inputs, outputs, conventions, formula, source."""
    import json

    from gates.cli import setup
    from gates.model import ConfigurationError
    from gates.nearest import hint
    from gates.report.ops import as_text, ops_of, record

    gates = list(setup.registry().gates.values())
    known = ops_of(gates)
    if op is not None and op not in known:
        near = hint(op, known, form="did you mean {}? ")
        raise ConfigurationError(f"no op is called {op!r}; {near}`gates ops` lists them")
    chosen = [known[op]] if op else list(known.values())
    if as_json:
        typer.echo(json.dumps([record(item, gates) for item in chosen], indent=2, ensure_ascii=False))
    elif op:
        typer.echo(as_text(chosen[0], gates))
    else:
        width = max(map(len, known))
        for item in chosen:
            typer.echo(f"{item.name:{width}}  {item.formula or item.source}")
        typer.echo(f"\n{len(known)} ops; `gates ops OP` shows one in full, `gates init NAME` starts a subject file")
