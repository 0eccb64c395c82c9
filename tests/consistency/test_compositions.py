"""Every possible composition of a policy loss, in the oracle, the forward formula and the NumPy baseline."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gates.families.loss import calls, cases, covering, textbook
from gates.model import Case
from gates.subjects.numpy_baseline import subject
from reference import algorithms as table
from reference.oracle import losses as oracle


def distances(case: Case) -> tuple[float, float]:
    """Return how far formula and baseline are from the oracle, in limits."""
    inputs: Any = case.make(np.random.default_rng(3))
    wanted, limits = oracle.policy_loss(**calls.rounded(inputs)), textbook.policy_loss(**inputs)
    sure = ~wanted.near_branch & np.isfinite(limits["gradient"]) & (limits["gradient"] > 0.0)
    got = subject.OPS["policy_loss"](**inputs)
    errors = []
    for loss, gradient in ((limits["loss_value"], limits["gradient_value"]), (got["loss"], got["gradient"])):
        slopes = np.abs(gradient - wanted.gradient)[sure] / limits["gradient"][sure]
        room = limits["loss"] + wanted.branch_slack
        errors.append(max(float(abs(loss - wanted.loss) / room), float(slopes.max(initial=0.0))))
    return errors[0], errors[1]


class TestCompositions:
    """Every possible composition has a definition, a limit and a baseline that agree."""

    @pytest.mark.fast
    def test_a_covering_set_is_small(self) -> None:
        """Few enough for every check."""
        assert len(covering.covering()) <= 60

    @pytest.mark.fast
    @pytest.mark.parametrize("changes", covering.covering(), ids=covering.named)
    def test_each_pair_of_choices(self, changes: Any) -> None:
        """The cases of the gate, at another seed."""
        assert max(distances(cases.case("grpo", "composition", **changes))) <= 1.0

    @pytest.mark.long
    @pytest.mark.parametrize("changes", list(covering.every()), ids=covering.named)
    def test_the_whole_product(self, changes: Any) -> None:
        """All of them."""
        assert max(distances(cases.case("grpo", "composition", **changes))) <= 1.0

    @pytest.mark.fast
    @pytest.mark.parametrize("row", [*table.ALGORITHMS.values(), *table.VARIANTS], ids=lambda row: row.text)
    def test_a_preset_is_its_composition(self, row: table.Algorithm) -> None:
        """The oracle's function for a published loss, and the functions of its choices."""
        chosen = {axis: getattr(row, axis) for axis in row.overrides}
        widths = {"epsilon_low": 0.2, "epsilon_high": 0.25} if row.bound == "clip" else {}
        inputs: Any = cases.case(row.name, "preset", **chosen, **widths).make(np.random.default_rng(5))
        spelled = {axis: getattr(row, axis) for axis in table.AXES}
        base = "reinforce" if row.name == "grpo" else "grpo"
        literal = oracle.policy_loss(**calls.rounded(inputs))
        composed = oracle.policy_loss(**calls.rounded({**inputs, **spelled, "algorithm": base}))
        assert composed.loss == pytest.approx(literal.loss, rel=1e-13)
        np.testing.assert_allclose(composed.gradient, literal.gradient, rtol=1e-13, atol=1e-18)
        assert np.array_equal(composed.near_branch, literal.near_branch)
