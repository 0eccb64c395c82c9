"""`gates list`: what can be judged, and by which gates."""

from __future__ import annotations

from typing import Annotated

import typer

EXAMPLES = """Examples:

gates list · gates list rollout · gates list --json"""


def list_(
    select: Annotated[list[str] | None, typer.Argument(metavar="[SELECT]...", help="Gates. Default: all.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List gates with their cases and mutants, and the subjects."""
    import json

    from gates.cli import setup

    registry = setup.registry()
    gates = registry.select(tuple(select or ()))
    mutants = {g.id: [m.name for m in registry.mutants.values() if g.id in m.caught_by] for g in gates}
    if as_json:
        data = {
            "gates": [
                {
                    "id": g.id,
                    "question": g.question,
                    "ops": [op.name for op in g.ops],
                    "cases": [{"name": c.name, "quick": c.quick} for c in g.cases],
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
        typer.echo(
            f"{g.id:{width}}  {len(g.cases):3} cases ({quick} quick), {len(mutants[g.id])} mutants  {g.question}"
        )
    typer.echo("\nSubjects:")
    for s in registry.subjects.values():
        when = "by default" if s.default else "when asked for"
        typer.echo(f"  {s.name:18} {when}{f' (absent: {s.why_absent})' if s.why_absent else ''}")
