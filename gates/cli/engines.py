"""The options `--engine` and `--memory-limit`, and the engine that they name."""

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
    """Provide the engine of that name and disconnect from its cluster at the end; None is this machine's pool."""
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
        typer.echo(
            f"{cluster.again} cases were judged again, because the cluster lost the nodes that judged them", err=True
        )
