"""Inputs are drawn until they meet the preconditions of their gate, and then a check runs once."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from doubles import DOUBLE, make_gate

from gates.model import Case, Draw, Evidence, Gate, Subject, Trial, precondition
from gates.registry import load
from gates.run import inputs
from gates.run.execute import run
from gates.run.oracle_cache import OracleCache
from gates.run.plan import Options, case_seed, plan
from gates.run.trial import RunningDraw

Maker = Callable[..., Subject]

SILENT = {
    # what the first draw lacked at this seed of the run, found by a scan of first draws
    "loss.luspo.matches-definition": (37, "kl-and-weights", "share of elements at a clip bound"),
    "preference.hinge.matches-definition": (300, "plain-ordinary-float64", "pairs beyond the margin"),
    "loss.options.match-definition": (5, "tis-sequence-plain", "share of elements at a clip bound"),
    "weights.matches-definition": (12, "typical-mis-seq_sum-to-one-holes-float32", "share of ratios at a bound"),
}


def _requiring(least: float, tried: list[Any]) -> Gate:
    def requires(t: Draw) -> Iterator[Evidence]:
        tried.append(t.inputs)
        yield t.precondition("x", t.inputs["x"], ">=", least)

    return make_gate(requires=requires)


def _uniform(rng: np.random.Generator) -> Mapping[str, Any]:
    return {"x": float(rng.random())}


class TestInputs:
    """What is drawn from a seed."""

    def test_the_first_draw_that_meets_the_precondition(self) -> None:
        """The draws before it are passed over, and the same seed gives the same inputs again."""
        generator = np.random.default_rng(3)
        want = next(x for x in iter(generator.random, None) if x >= 0.9)
        for _ in range(2):
            assert inputs.inputs(_requiring(0.9, []), Case("u", _uniform), 3) == {"x": want}

    def test_no_draw_meets_it(self) -> None:
        """After `DRAWS` the last inputs come back, with the evidence that they miss the precondition."""
        tried: list[Any] = []
        made, preconditions = inputs.drawn(_requiring(2.0, tried), Case("u", _uniform), 3, OracleCache())
        assert len(tried) == inputs.DRAWS
        assert made == tried[-1]
        assert [(item.quantity, item.observed, item.holds) for item in preconditions] == [("x", made["x"], False)]

    def test_a_case_without_chance_is_drawn_once(self) -> None:
        """Where nothing is drawn nothing else can come."""
        tried: list[Any] = []
        assert inputs.inputs(_requiring(2.0, tried), Case("c", lambda _: {"x": 1.0}), 3) == {"x": 1.0}
        assert len(tried) == 1

    def test_the_next_subject_gets_the_same_without_a_draw(self) -> None:
        """Inputs and evidence come from the cache; who changes them changes a copy."""
        tried: list[Any] = []
        gate, case, cached = _requiring(0.9, tried), Case("u", _uniform), OracleCache()
        first = inputs.drawn(gate, case, 3, cached)
        count = len(tried)
        second = inputs.drawn(gate, case, 3, cached)
        assert (second, len(tried)) == (first, count)
        assert second[0] is not first[0]

    @pytest.mark.parametrize("error", [ValueError, RuntimeError])
    def test_a_precondition_that_raises_is_not_drawn_again(self, error: type[Exception]) -> None:
        """A hundred draws do not hide an error of the gate."""
        tried: list[int] = []

        def requires(t: Draw) -> Iterator[Evidence]:
            tried.append(1)
            yield precondition("x", 1.0, ">", 0.0)
            raise error(t)

        with pytest.raises(error):
            inputs.inputs(make_gate(requires=requires), Case("u", _uniform), 3)
        assert len(tried) == 1


class TestOnce:
    """How often a check runs."""

    def test_a_check_runs_once_on_the_accepted_inputs(self, subject: Maker) -> None:
        """However many draws its preconditions take, and however many subjects follow."""
        tried: list[Any] = []
        checked: list[Any] = []

        def check(t: Trial) -> Iterator[Evidence]:
            checked.append(t.inputs)
            yield t.within("y", t.got(DOUBLE, **t.inputs)["y"], t.want(DOUBLE, **t.inputs))

        def requires(t: Draw) -> Iterator[Evidence]:
            tried.append(t.inputs)
            yield t.precondition("largest |x|", np.abs(t.inputs["x"]).max(), ">=", 2.5)

        gate = make_gate(check, requires=requires)
        right, wrong = subject("return {'y': 2 * x}"), subject("return {'y': 3 * x}", name="wrong")
        found = [one.verdict for one in run(plan([gate], [right, wrong], quick=True), Options())]
        assert {one.subject: one.status for one in found} == {"tried": "correct", "wrong": "wrong"}
        assert [[item.quantity for item in one.evidence] for one in found] == [["largest |x|", "y"]] * 2
        assert len(checked) == 2  # once a subject
        assert all(np.array_equal(x["x"], tried[-1]["x"]) for x in checked)
        assert 1 < len(tried) < inputs.DRAWS

    def test_preconditions_that_never_hold_are_named_in_the_verdict(self, subject: Maker) -> None:
        """The check still runs, once, so that the verdict holds what it measured."""

        def requires(t: Draw) -> Iterator[Evidence]:
            yield t.precondition("largest |x|", np.abs(t.inputs["x"]).max(), ">", 1e9)

        (judged,) = run(plan([make_gate(requires=requires)], [subject("return {'y': 2 * x}")], quick=True), Options())
        found = judged.verdict
        assert (found.status, found.cause) == ("error", "signal")
        assert found.reason.startswith("precondition not met: largest |x| is ")
        assert [item.role for item in found.evidence] == ["signal", "signal", "claim"]


@pytest.mark.parametrize("id_", SILENT)
def test_seeds_that_lacked_a_signal(id_: str) -> None:
    """The first draw still lacks it; the inputs that a subject is given have every signal."""
    seed, name, quantity = SILENT[id_]
    gate = load().gates[id_]
    case = next(case for case in gate.cases if case.name == name)
    number = case_seed(gate, case, seed)
    first = case.make(np.random.default_rng(number))
    cached = OracleCache()
    lacking = [item.quantity for item in gate.requires(RunningDraw(first, cached)) if not item.holds]
    assert any(word.startswith(quantity) for word in lacking)
    _, preconditions = inputs.drawn(gate, case, number, cached)
    assert preconditions
    assert all(item.holds for item in preconditions)
