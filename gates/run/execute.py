"""Run a plan on an engine: this machine's pool of workers, or another one that the caller names."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager

from gates.run.engines.interface import Engine, Executor
from gates.run.engines.pool import Pool
from gates.run.judge import Judged
from gates.run.plan import Options, PlannedCase


def run(cases: Sequence[PlannedCase], options: Options, engine: Engine | None = None) -> Iterator[Judged]:
    """Judge every case and yield each verdict as it is reached. Closing the iterator ends all workers."""
    with opened(options, engine) as executor:
        executor.submit(cases)
        yield from executor.judged()


@contextmanager
def opened(options: Options, engine: Engine | None = None) -> Generator[Executor]:
    """Provide an executor that takes cases until the context ends; without `engine` it is this machine's pool."""
    executor = (engine or Pool)(options)
    try:
        yield executor
    finally:
        executor.close()
