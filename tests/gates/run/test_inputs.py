"""Inputs are drawn until they show what their gate's signals ask for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from doubles import DOUBLE, make_gate

from gates.model import Case, Evidence, Gate, precondition
from gates.registry import load
from gates.run import inputs
from gates.run.plan import case_seed

SILENT = {
    # what the first draw lacked at this seed of the run, found by a scan of first draws
    "loss.luspo.matches-definition": (37, "kl-and-weights", "share of elements at a clip bound"),
    "preference.hinge.matches-definition": (300, "plain-ordinary-float64", "pairs beyond the margin"),
    "loss.options.match-definition": (5, "tis-sequence-plain", "share of elements at a clip bound"),
    "weights.matches-definition": (12, "typical-mis-seq_sum-to-one-holes-float32", "share of ratios at a bound"),
}


def _asking(least: float, tried: list[Any]) -> Gate:
    def check(t: Any) -> Iterator[Evidence]:
        tried.append(t.inputs)
        yield t.precondition("x", t.inputs["x"], ">=", least)
        t.got(DOUBLE, **t.inputs)
        yield t.precondition("what a subject gave", 0.0, ">", 1.0)

    return make_gate(check)


def _uniform(rng: np.random.Generator) -> Mapping[str, Any]:
    return {"x": float(rng.random())}


class TestInputs:
    """What is drawn from a seed."""

    def test_the_first_draw_that_has_the_signal(self) -> None:
        """The draws before it are passed over, and the same seed gives the same inputs again."""
        generator = np.random.default_rng(3)
        want = next(x for x in iter(generator.random, None) if x >= 0.9)
        for _ in range(2):
            assert inputs.inputs(_asking(0.9, []), Case("u", _uniform), 3) == {"x": want}

    def test_none_has_it(self) -> None:
        """After `DRAWS` the last inputs come back, and the gate says that they have no signal."""
        tried: list[Any] = []
        got = inputs.inputs(_asking(2.0, tried), Case("u", _uniform), 3)
        assert len(tried) == inputs.DRAWS
        assert got == tried[-1]

    def test_a_case_without_chance_is_tried_once(self) -> None:
        """Where nothing is drawn nothing else can come."""
        tried: list[Any] = []
        assert inputs.inputs(_asking(2.0, tried), Case("c", lambda _: {"x": 1.0}), 3) == {"x": 1.0}
        assert len(tried) == 1

    def test_the_check_cannot_change_them(self) -> None:
        """A check that writes into its inputs writes into its own."""

        def check(t: Any) -> Iterator[Evidence]:
            t.inputs["x"][:] = 7.0
            yield t.precondition("x", 1.0, ">", 0.0)

        got = inputs.inputs(make_gate(check), Case("w", lambda rng: {"x": rng.random(3)}), 3)
        assert np.array_equal(got["x"], np.random.default_rng(3).random(3))

    @pytest.mark.parametrize("error", [ValueError, RuntimeError])
    def test_a_check_that_raises_gets_its_first_inputs(self, error: type[Exception]) -> None:
        """The trial reports the error; a hundred draws do not hide it."""
        tried: list[int] = []

        def check(t: Any) -> Iterator[Evidence]:
            tried.append(1)
            yield precondition("x", 1.0, ">", 0.0)
            raise error(t)

        got = inputs.inputs(make_gate(check), Case("u", _uniform), 3)
        assert (len(tried), got) == (1, {"x": np.random.default_rng(3).random()})


@pytest.mark.parametrize("id_", SILENT)
def test_seeds_that_lacked_a_signal(id_: str) -> None:
    """The first draw still lacks it; the inputs that a subject is given have every signal."""
    seed, name, quantity = SILENT[id_]
    gate = load().gates[id_]
    case = next(case for case in gate.cases if case.name == name)
    number = case_seed(gate, case, seed)
    first = case.make(np.random.default_rng(number))
    lacking = [item.quantity for item in inputs.beforehand(gate, case, first) if not item.holds]
    assert any(word.startswith(quantity) for word in lacking)
    found = list(inputs.beforehand(gate, case, inputs.inputs(gate, case, number)))
    assert found
    assert all(item.holds for item in found)
