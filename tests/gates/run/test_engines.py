"""The executors: cases go in, each verdict comes out once."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from doubles import make_gate

from gates.model import Case, Recipe, Subject, Verdict
from gates.run.engines.interface import Executor
from gates.run.engines.needs import needs, unmet
from gates.run.engines.pool import Pool
from gates.run.execute import run
from gates.run.judge import Judged
from gates.run.plan import Options, PlannedCase, plan

Maker = Callable[..., Subject]
RIGHT = "return {'y': 2 * x}"


def cases_of(subject: Subject, count: int, start: int = 0) -> list[PlannedCase]:
    cases = tuple(Case(str(start + n), lambda rng: {"x": np.ones(2)}) for n in range(count))
    return plan([make_gate(cases=cases)], [subject], quick=False)


class TestPool:
    """This machine's workers."""

    def test_more_may_be_submitted_while_others_are_judged(self, subject: Maker) -> None:
        """Cases that are handed in later are judged by the same workers, each once."""
        right = subject(RIGHT)
        pool = Pool(Options(jobs=2))
        try:
            pool.submit(cases_of(right, 3))
            found = [next(pool.judged()).verdict.case]
            pool.submit(cases_of(right, 4, start=3))
            found += [judged.verdict.case for judged in pool.judged()]
            workers = [worker for own, _ in pool._threads for worker in own.workers.values()]
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


class TestNeeds:
    """What a node of a cluster must have for a case."""

    NODES = ({"CPU": 2.0, "memory": 4e9}, {"CPU": 1.0, "memory": 8e9, "metal": 1.0})

    @pytest.mark.parametrize(
        ("subject", "gate", "wanted"),
        [
            ({}, {}, {}),
            ({"metal": 1.0}, {"memory": 2e9}, {"metal": 1.0, "memory": 2e9}),
            ({"memory": 1e9}, {"memory": 2e9}, {"memory": 2e9}),
            ({"memory": 3e9}, {"memory": 2e9}, {"memory": 3e9}),
        ],
        ids=["none", "both", "the gate's is more", "the subject's is more"],
    )
    def test_subject_and_gate_share_one_call(
        self, subject: dict[str, float], gate: dict[str, float], wanted: dict[str, float]
    ) -> None:
        """Of the same resource the most counts."""
        planned = PlannedCase(
            make_gate(needs=gate), Subject("s", Path("s.py"), "s", needs=subject), Case("c", lambda rng: {})
        )
        assert needs(planned, Options()) == wanted

    def test_the_users_model_asks_for_its_memory_where_it_is_run(self, tmp_path: Path) -> None:
        """Twice the bytes of its weights, in gates whose cases have a model; a model that is not here asks for nothing."""
        (tmp_path / "a.safetensors").write_bytes(bytes(3000))
        (tmp_path / "b.safetensors").write_bytes(bytes(1000))
        with_model = Case("c", lambda rng: {"model": Recipe("model", {})})
        subject = Subject("s", Path("s.py"), "s", needs={"memory": 10.0})
        trains = replace(make_gate().ops[0], inputs={"model": "a folder"})
        planned = PlannedCase(make_gate(ops=(trains,), cases=(with_model,)), subject, with_model)
        assert needs(planned, Options(model=str(tmp_path))) == {"memory": 8000.0}
        assert needs(planned, Options(model="owner/name")) == {"memory": 10.0}
        assert needs(planned, Options()) == {"memory": 10.0}
        pure = PlannedCase(make_gate(), subject, make_gate().cases[0])
        assert needs(pure, Options(model=str(tmp_path))) == {"memory": 10.0}

    @pytest.mark.parametrize(
        ("wants", "words"),
        [
            ({}, ""),
            ({"memory": 8e9}, ""),
            ({"metal": 1.0, "memory": 4e9}, ""),
            ({"metal": 1.0, "memory": 9e9}, "memory 9e+09, metal 1"),
            ({"cuda": 1.0}, "cuda 1"),
        ],
        ids=["nothing", "one has it", "one has both", "no single one has both", "none"],
    )
    def test_one_node_must_have_all_of_it(self, wants: dict[str, float], words: str) -> None:
        """What two nodes have between them is no place for a case."""
        assert unmet(wants, self.NODES) == words


def test_another_engine_is_asked_and_closed(subject: Maker) -> None:
    """The run hands its cases to the engine's executor, yields what that yields, and closes it, come what may."""
    log: list[str] = []

    class Double:
        def submit(self, cases: Sequence[PlannedCase]) -> None:
            log.append(f"submit {len(cases)}")

        def judged(self) -> Iterator[Judged]:
            for case in "ab":
                yield Judged(Verdict("g", "s", case, 0, "correct", "held", ""))

        def close(self) -> None:
            log.append("close")

    def engine(options: Options) -> Executor:
        return Double()

    running = run(cases_of(subject(RIGHT), 2), Options(), engine)
    assert next(running).verdict.case == "a"
    running.close()  # type: ignore[attr-defined]  # a generator
    assert log == ["submit 2", "close"]
