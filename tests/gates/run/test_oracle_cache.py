"""What is asked of a case and of the oracle once, for all subjects."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from doubles import DOUBLE, make_gate

from gates.model import Case, Recipe, Subject
from gates.run import inputs
from gates.run.execute import run
from gates.run.oracle_cache import OracleCache, key_of
from gates.run.plan import Options, plan
from gates.run.trial import Scratch

Maker = Callable[..., Subject]
X = np.arange(6.0).reshape(2, 3)


class TestAnswers:
    """The oracle with a memory."""

    def test_one_answer_per_question_and_a_copy_per_caller(self) -> None:
        """Whoever writes into an answer changes nobody else's."""
        asked: list[Any] = []
        op = replace(DOUBLE, oracle=lambda x: (asked.append(x), {"y": [2.0 * x]})[1])
        answers = OracleCache()
        first = answers.ask(op, {"x": X})
        first["y"][0][:] = -1.0
        second = answers.ask(op, {"x": X.copy()})
        second["y"][0][:] = -1.0
        assert np.array_equal(answers.ask(op, {"x": X})["y"][0], 2.0 * X)
        assert len(asked) == 1

    @pytest.mark.parametrize(
        "other",
        [
            X + np.eye(2, 3) * 1e-300,
            X.astype(np.float32),
            X.reshape(3, 2),
            np.asfortranarray(X),
            X.tolist(),
            X.astype(">f8"),
            (1.0, 2.0),
            [1.0, 2.0],
            [1, 2],
            [True, 2],
            ["1", 2],
            {"a": None},
            np.float64(1.0),
            1.0,
            -0.0,
            0.0,
        ],
        ids=repr,
    )
    def test_whatever_differs_has_another_key(self, other: Any) -> None:
        """Values, types, shapes and memory layouts are distinguished, and so are ops."""
        keys = {key_of(DOUBLE, {"x": value}) for value in (X, other)}
        assert len(keys) == (1 if other is X else 2)
        assert key_of(DOUBLE, {"z": other}) != key_of(DOUBLE, {"x": other})
        assert key_of(replace(DOUBLE, name="twice"), {"x": other}) != key_of(DOUBLE, {"x": other})

    def test_a_value_without_a_key_is_never_cached(self) -> None:
        """A function, or an array of objects, is not compared."""
        calls: Counter[str] = Counter()
        op = replace(DOUBLE, oracle=lambda x: calls.update(["asked"]))
        answers = OracleCache()
        for value in (len, np.array([None])):
            assert key_of(op, {"x": value}) is None
            answers.ask(op, {"x": value})
            answers.ask(op, {"x": value})
        assert calls["asked"] == 4

    def test_its_size_is_bounded(self) -> None:
        """The oldest answer goes first, and one that is too large is not kept at all."""
        calls: list[float] = []
        op = replace(DOUBLE, oracle=lambda x: (calls.append(float(x)), np.zeros(int(x)))[1])
        answers = OracleCache(kept=8000)
        for size in (*range(50, 66), 50, 65, 900, 900):
            answers.ask(op, {"x": size})
        assert calls[-5:] == [64.0, 65.0, 50.0, 900.0, 900.0]
        assert answers._size <= 8000

    def test_a_large_value_is_not_kept(self) -> None:
        """Inputs and results of very long rows would fill the cache, and are made again in less time than the rest."""
        calls: list[int] = []
        op = replace(DOUBLE, oracle=lambda x: (calls.append(x), np.zeros(x, np.uint8))[1])
        answers = OracleCache()
        for size in (1 << 19, 1 << 19, 1 << 20, 1 << 20):
            answers.ask(op, {"x": size})
        assert calls == [1 << 19, 1 << 20, 1 << 20]

    def test_subjects_share_the_inputs_and_answers_of_a_case(self, subject: Maker) -> None:
        """Two subjects, one of them wrong: each case is made once and the oracle asked once, and the verdicts are their own."""
        made: list[int] = []
        asked: list[int] = []
        op = replace(DOUBLE, oracle=lambda x: (asked.append(1), 2.0 * np.asarray(x))[1])
        case = Case("some", lambda rng: (made.append(1), {"x": rng.normal(size=8)})[1], quick=True)

        def check(t: Any) -> Any:
            want = t.want(op, **t.inputs)
            yield t.within("y", t.got(op, **t.inputs)["y"], want)
            want[:] = 7.0
            t.inputs["x"][:] = 7.0

        gate = make_gate(check, ops=(op,), cases=(case,))
        right, wrong = subject("return {'y': 2 * x}"), subject("return {'y': 3 * x}", name="wrong")
        found = {j.verdict.subject: j.verdict.status for j in run(plan([gate], [wrong, right], quick=True), Options())}
        assert found == {"tried": "correct", "wrong": "wrong"}
        assert (len(made), len(asked)) == (1, 1)

    def test_a_recipe_comes_back_as_it_was(self) -> None:
        """Inputs that are no arrays are kept too."""
        case = Case("r", lambda rng: {"model": Recipe("model", {"layers": 2})})
        answers = OracleCache()
        for _ in range(2):
            assert inputs.inputs(make_gate(), case, 0, answers) == {"model": Recipe("model", {"layers": 2})}


def test_a_scratch_folder_exists_only_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is made without need, one folder serves the whole trial, and nothing stays."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Scratch():
        pass
    assert list(tmp_path.iterdir()) == []
    with Scratch() as scratch:
        (scratch.path / "state").touch()
        assert (scratch.path / "state").exists()
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []


def test_two_simultaneous_questions_share_one_call() -> None:
    """Subjects are judged side by side, so that both ask for the same before either has it."""
    cache, calls, both = OracleCache(), [], threading.Barrier(2)

    def make() -> list[int]:
        calls.append(1)
        time.sleep(0.1)
        return [1]

    def ask() -> list[int]:
        both.wait()
        found: list[int] = cache.once(b"key", make)
        found.append(2)  # each has its own
        return found

    with ThreadPoolExecutor(2) as pool:
        assert [future.result() for future in (pool.submit(ask), pool.submit(ask))] == [[1, 2], [1, 2]]
    assert len(calls) == 1
    assert cache.once(b"key", make) == [1]


def test_a_call_that_raises_is_repeated() -> None:
    """An error is not kept, and nothing stays locked."""
    cache = OracleCache()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            cache.once(b"key", lambda: 1 // 0)
    assert cache.once(b"key", lambda: 3) == 3
