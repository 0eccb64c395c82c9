"""`gates explain`: a gate's question, its reasons, and where its limits come from."""

from __future__ import annotations

from typing import Annotated

import typer

from gates.cli import completion

EXAMPLES = """Examples:

gates explain kl.k3.matches-definition · gates explain rollout --json"""


def explain(
    gate: Annotated[
        str,
        typer.Argument(
            metavar="GATE", autocompletion=completion.gates, help="A gate's id, or a prefix or glob of several."
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print a gate's question, formula, source, limits with their reasons, cases, mutants, file and line."""
    import json

    from gates.cli import selection, setup
    from gates.report.explanation import as_text, explanation

    registry = setup.registry()
    explanations = [explanation(g, registry) for g in selection.chosen(registry, [gate])]
    if as_json:
        typer.echo(json.dumps(explanations, indent=2, ensure_ascii=False))
    else:
        typer.echo("\n\n".join(as_text(item) for item in explanations))
