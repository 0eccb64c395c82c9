"""`--engine` and `--memory-limit`: where cells are judged, and what each worker may use there."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from gates.registry import Registry
    from gates.run.engines.interface import Engine

Name = Annotated[
    Literal["local", "ray"],
    typer.Option("--engine", help="Who judges: this machine's workers, or the nodes of a running Ray cluster."),
]
MemoryLimit = Annotated[
    float | None,
    typer.Option(
        min=0.05,
        metavar="GIB",
        help="Memory of each worker. Default: three quarters of the machine's; with --engine ray none.",
    ),
]


@contextmanager
def opened(name: str, registry: Registry) -> Generator[Engine | None]:
    """Give the engine of that name, and leave its cluster in the end; None is this machine's pool."""
    if name == "local":
        yield None
        return
    from gates.run.engines.cluster import Cluster

    cluster = Cluster(registry)
    try:
        yield cluster
    finally:
        cluster.close()
    if cluster.again:
        typer.echo(f"{cluster.again} units were judged again, for the cluster lost what judged them", err=True)
