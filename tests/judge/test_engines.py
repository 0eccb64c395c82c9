"""The executors: cells go in, each verdict comes out once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from doubles import make_gate

from gates.engines.interface import Executor
from gates.engines.local import Pool
from gates.model import Case, Subject, Verdict
from gates.runner import Job, Judged, Options, plan, run

Maker = Callable[..., Subject]
RIGHT = "return {'y': 2 * x}"


def jobs(subject: Subject, count: int, start: int = 0) -> list[Job]:
    cases = tuple(Case(str(start + n), lambda rng: {"x": np.ones(2)}) for n in range(count))
    return plan([make_gate(cases=cases)], [subject], quick=False)


class TestPool:
    """This machine's workers."""

    def test_more_may_be_submitted_while_others_are_judged(self, subject: Maker) -> None:
        """Cells that are handed in later are judged by the same workers, each once."""
        right = subject(RIGHT)
        pool = Pool(Options(jobs=2))
        try:
            pool.submit(jobs(right, 3))
            found = [next(pool.judged()).verdict.case]
            pool.submit(jobs(right, 4, start=3))
            found += [judged.verdict.case for judged in pool.judged()]
            workers = [worker for bench, _ in pool._benches for worker in bench.workers.values()]
        finally:
            pool.close()
        assert sorted(found) == [str(n) for n in range(7)]
        assert len(workers) == 2
        assert not any(worker.alive for worker in workers)

    def test_nothing_submitted_is_nothing_judged(self) -> None:
        """An empty plan ends at once, with no worker started."""
        pool = Pool(Options())
        assert list(pool.judged()) == []
        pool.close()


class TestRun:
    """What a run asks of its executor."""

    def test_another_engine_is_asked_and_closed(self, subject: Maker) -> None:
        """The run hands its cells to the engine's executor, yields what that yields, and closes it, come what may."""
        log: list[str] = []

        class Double:
            def submit(self, jobs: Sequence[Job]) -> None:
                log.append(f"submit {len(jobs)}")

            def judged(self) -> Iterator[Judged]:
                for case in "ab":
                    yield Judged(Verdict("g", "s", case, 0, "pass", "held", ""))

            def close(self) -> None:
                log.append("close")

        def engine(options: Options) -> Executor:
            return Double()

        running = run(jobs(subject(RIGHT), 2), Options(), engine)
        assert next(running).verdict.case == "a"
        running.close()  # type: ignore[attr-defined]  # a generator
        assert log == ["submit 2", "close"]
