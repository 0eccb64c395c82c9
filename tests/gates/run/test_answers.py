"""Answers that several checks share: what is kept, which calls differ, and who never gets one."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gates.model import Bound, Case, Evidence, Gate, Op, Outcome, Recipe, Subject, Trial
from gates.run.execute import run
from gates.run.oracle_cache import Answers
from gates.run.plan import Options, case_seed, plan

pytestmark = pytest.mark.fast

COUNTER = """
calls = 0

def count(**inputs):
    global calls
    calls += 1
    return {"calls": calls}

def unchanged(original):
    return original

OPS = {"count": count}
"""
COUNT = Op("count", {}, "a counter of its own calls")


class TestAnswers:
    """One call for the same subject, op and inputs."""

    def test_the_second_call_is_answered(self) -> None:
        """And its arrays may be changed by who gets them."""
        answers, calls = Answers(), iter([Outcome("value", {"y": np.zeros(2)}), Outcome("raised")])
        first = answers.ask("a", "op", {"x": np.arange(3)}, lambda: next(calls))
        first.value["y"][0] = 7.0
        assert answers.ask("a", "op", {"x": np.arange(3)}, lambda: next(calls)).value["y"].tolist() == [0.0, 0.0]

    @pytest.mark.parametrize(
        "other",
        [
            ("b", "op", {"model": Recipe("model", {"seed": 1})}),
            ("a", "op2", {"model": Recipe("model", {"seed": 1})}),
            ("a", "op", {"model": Recipe("model", {"seed": 2})}),
            ("a", "op", {"model": Recipe("data", {"seed": 1})}),
        ],
        ids=["subject", "op", "spec", "kind"],
    )
    def test_another_subject_op_or_recipe_is_another_call(self, other: tuple[str, str, dict[str, Recipe]]) -> None:
        """Another subject, op or recipe has an answer of its own."""
        answers = Answers()
        answers.ask("a", "op", {"model": Recipe("model", {"seed": 1})}, lambda: Outcome("value", {"n": 1}))
        assert answers.ask(*other, lambda: Outcome("value", {"n": 2})).value == {"n": 2}

    def test_only_values_are_kept(self) -> None:
        """A timeout or an exception is asked for again."""
        answers, outcomes = Answers(), iter([Outcome("timeout"), Outcome("value", {"n": 1}), Outcome("raised")])
        kinds = [answers.ask("a", "op", {}, lambda: next(outcomes)).kind for _ in range(3)]
        assert kinds == ["timeout", "value", "value"]


def _gate(**case: str) -> Gate:
    def check(t: Trial) -> Iterator[Evidence]:
        t.got(COUNT, x=t.inputs["x"])
        t.got_once(COUNT, x=t.inputs["x"], folder=str(t.folder), instead={"folder": "scratch"})
        yield t.number("calls", t.got(COUNT, x=t.inputs["x"])["calls"], "<=")

    cases = tuple(Case(name, lambda rng: {"x": rng.random(2)}, **case) for name in ("one", "two"))
    return Gate("test.calls", "?", "", (COUNT,), cases, {"calls": Bound("exact", "counted", 99)}, check)


def _calls(folder: Path, gate: Gate, options: Options) -> list[float]:
    (folder / "counter.py").write_text(COUNTER)
    subject = Subject("counter", folder / "counter.py", "counter")
    found = [judged.verdict for judged in run(plan([gate], [subject], quick=False), options)]
    return sorted(verdict.evidence[0].observed for verdict in found)


class TestGotOnce:
    """The subject is called once for cases of one sample, and each time where it is mutated."""

    def test_cases_of_one_sample_share_an_answer(self, tmp_path: Path) -> None:
        """Three calls in the first case, two in the second; without a sample the inputs differ."""
        assert _calls(tmp_path, _gate(sample="shared"), Options()) == [3, 5]
        assert _calls(tmp_path, _gate(), Options()) == [3, 6]

    def test_a_mutant_is_called_each_time(self, tmp_path: Path) -> None:
        """Its patched function must run in each case that is to fail."""
        mutant = {"target": "counter:count", "patch": "counter:unchanged"}
        assert _calls(tmp_path, _gate(sample="shared"), Options(mutant=mutant)) == [3, 6]

    def test_the_sample_replaces_the_names_in_the_seed(self) -> None:
        """Cases of one sample have one seed, another at another seed of the run."""
        shared, own = _gate(sample="s"), _gate()
        assert case_seed(shared, shared.cases[0], 0) == case_seed(shared, shared.cases[1], 0)
        assert case_seed(shared, shared.cases[0], 0) != case_seed(shared, shared.cases[0], 1)
        assert case_seed(own, own.cases[0], 0) != case_seed(own, own.cases[1], 0)
