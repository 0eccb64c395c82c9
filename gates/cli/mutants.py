"""`gates mutants`: the mutations that the gates catch, their symptoms in training, and where they were reported."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLES = """Examples:

gates mutants kl · gates mutants "lost gradients" · gates mutants loss.grpo.matches-definition --json · gates mutants --out docs/mutants.md"""


def mutants(
    select: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SELECT]...", help="Mutants, gates that catch them, or themes. Default: all."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write there, atomically.")] = None,
) -> None:
    """Print the catalogue of mutants as markdown: mutation, symptom, reports, host and patch target, catching gates."""
    import json

    from gates.cli import setup
    from gates.report.catalogue import as_item, chosen, page
    from gates.results.atomic_write import write_whole

    selected = chosen(setup.registry(), select or ())
    text = (
        json.dumps([as_item(m) for m in selected], indent=2, ensure_ascii=False) + "\n" if as_json else page(selected)
    )
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_whole(out, text)
