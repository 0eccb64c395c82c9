"""`gates merge`: join the shards of a CI matrix into one results file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLES = """Examples:

gates merge shards/*.jsonl · gates merge shards/*.jsonl --out results/runs/whole.jsonl"""


def merge(
    files: Annotated[list[Path], typer.Argument(metavar="FILE.jsonl...", help="The files of all shards of one plan.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write there; it must be new. Default: a new file in results/runs."),
    ] = None,
) -> None:
    """Join the files of `gates check --shard 1/N` … `N/N` into one run.

    Refused: shards of different plans, commits, seeds or versions; missing or unfinished ones; a case judged twice.

    The exit code is that of the whole run.
    """
    from gates.model import ConfigurationError
    from gates.report import screen
    from gates.report.wrap import columns
    from gates.results.atomic_write import write_new
    from gates.results.jsonl import as_line, file_name, read
    from gates.results.records import SummaryRecord
    from gates.run import merge as merging

    target = out or Path("results", "runs", file_name("check"))
    records = merging.merge([read(path) for path in files], target.parent)
    if target.exists():
        raise ConfigurationError(f"--out {target}: exists already; results are never overwritten")
    write_new(target, "".join(as_line(record) for record in records))
    summary = records[-1]
    if not isinstance(summary, SummaryRecord):
        raise TypeError("the last line of a merged run is its summary")
    typer.echo(f"joined {len(files)} shards")
    for line in screen.lines(screen.of(read(target)), columns()):
        typer.echo(line.plain.rstrip())
    raise typer.Exit(summary.exit_code)
