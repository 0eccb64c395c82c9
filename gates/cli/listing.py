"""`gates list`: the gates and the subjects."""

from __future__ import annotations

from typing import Annotated

import typer

from gates.cli import completion

EXAMPLES = """Examples:

gates list · gates list rollout · gates list --json"""


def list_(
    select: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SELECT]...", autocompletion=completion.gates, help="Gates: ids, prefixes or globs. Default: all."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List gates with their cases and mutants, and the subjects."""
    import json

    from gates.cli import selection, setup

    registry = setup.registry()
    gates = selection.chosen(registry, select or ())
    mutants = {g.id: [m.name for m in registry.mutants.values() if g.id in m.caught_by] for g in gates}
    if as_json:
        data = {
            "gates": [
                {
                    "id": g.id,
                    "question": g.question,
                    "ops": [op.name for op in g.ops],
                    "cases": [{"name": c.name, "quick": c.quick, "proof": c.quick or c.proof} for c in g.cases],
                    "mutants": mutants[g.id],
                }
                for g in gates
            ],
            "subjects": [
                {"name": s.name, "default": s.default, "absent": s.why_absent or None}
                for s in registry.subjects.values()
            ],
        }
        typer.echo(json.dumps(data, indent=2, ensure_ascii=False))
        return
    width = max(len(g.id) for g in gates)
    for g in gates:
        quick = sum(case.quick for case in g.cases)
        cases, caught = _counted(len(g.cases), "case"), _counted(len(mutants[g.id]), "mutant")
        typer.echo(f"{g.id:{width}}  {cases:>9} ({quick} quick), {caught}  {g.question}")
    typer.echo("\nSubjects:")
    width = max(map(len, registry.subjects))
    for s in registry.subjects.values():
        when = "with --subject" if not s.default else "with --full" if s.is_variant else "by default"
        typer.echo(f"  {s.name:{width}}  judged {when}{f' (absent: {s.why_absent})' if s.why_absent else ''}")


def _counted(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
