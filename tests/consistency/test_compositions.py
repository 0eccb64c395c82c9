"""Every possible composition of a policy loss, in the oracle, the forward formula and the NumPy baseline."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gates.families.loss import calls, cases, covering, textbook
from gates.model import Case
from gates.subjects.numpy_baseline import loss as baseline
from gates.subjects.numpy_baseline import subject
from gates_reference import algorithms as table
from gates_reference.oracle import losses as oracle


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


NO_KL: dict[str, Any] = {"reference": None, "beta": 0.0, "kl_ratio": None, "delta": None}
CLIPPED: dict[str, Any] = {"algorithm": "grpo", "epsilon_low": 0.2, "epsilon_high": 0.2, "old": None, **NO_KL}


@pytest.mark.fast
@pytest.mark.parametrize("loss", [oracle.policy_loss, baseline.policy_loss], ids=["oracle", "baseline"])
class TestChoicesByHand:
    """What docs/definitions.md, "Choices and presets", says of rare combinations."""

    def test_the_width_of_flat_rows_is_the_longest(self, loss: Any) -> None:
        """Two rows of 3 and 2 tokens: each weighs 1/(2·3)."""
        got = gradient(
            loss(policy=-np.ones(5), lengths=np.array([3, 2]), advantages=np.ones(2), aggregation="width", **CLIPPED)
        )
        np.testing.assert_allclose(got, np.full(5, -1 / 6), rtol=1e-15)

    def test_advantages_of_as_many_flat_rows_as_tokens_are_those_of_rows(self, loss: Any) -> None:
        """The first row has both tokens: its advantage is the first, for each."""
        got = gradient(loss(policy=-np.ones(2), lengths=np.array([2, 0]), advantages=np.array([1.0, 5.0]), **CLIPPED))
        np.testing.assert_allclose(got, [-1 / 4, -1 / 4], rtol=1e-15)

    def test_a_cap_below_its_lower_bound_is_the_weight(self, loss: Any) -> None:
        """The lower bound 0.8 comes first, then the cap 0.5."""
        old = np.array([[-2.0, -1.0]])
        own = {"algorithm": "cispo", "epsilon_high": 0.5, "cispo_bound": "absolute", "dapo_denominator": "global"}
        got = gradient(loss(policy=np.full((1, 2), -1.5), advantages=np.ones(1), **{**CLIPPED, **own, "old": old}))
        np.testing.assert_allclose(got, [[-1 / 4, -1 / 4]], rtol=1e-15)

    @pytest.mark.parametrize(
        ("choices", "counts"),
        [
            ({"aggregation": "row-mean"}, (7.0, 5.0)),  # 2 rows · (3 + ½), 2 rows · (2 + ½)
            ({"aggregation": "token-mean", "dapo_denominator": "global"}, (5.5, 5.5)),
            ({"aggregation": "token-mean", "dapo_denominator": "group", "group_size": 1}, (7.0, 5.0)),
            ({"aggregation": "token-mean", "dapo_denominator": "trl", "tokens_in_step": 9.0}, (9.5, 9.5)),
            ({"aggregation": "micro-batch", "micro_batches": [1, 1]}, (7.0, 5.0)),
            ({"aggregation": "row-sum"}, (2.0, 2.0)),
        ],
    )
    def test_a_constant_is_added_to_each_count_of_tokens(self, loss: Any, choices: Any, counts: Any) -> None:
        """½, with rows of 3 and 2 tokens."""
        step = {"policy": -np.ones(5), "lengths": np.array([3, 2]), "advantages": np.ones(2), "count_eps": 0.5}
        got = gradient(loss(**{**CLIPPED, **step, **choices}))
        np.testing.assert_allclose(got, -1.0 / np.repeat(counts, (3, 2)), rtol=1e-15)

    @pytest.mark.parametrize("level", ["seq_mean", "seq_sum"])
    def test_a_row_with_one_ratio_has_one_advantage(self, loss: Any, level: str) -> None:
        """Whatever the name."""
        with pytest.raises(ValueError, match="advantages"):
            loss(policy=-np.ones((1, 2)), advantages=np.ones((1, 2)), ratio_level=level, **CLIPPED)


@pytest.mark.fast
def test_the_formula_reads_advantages_of_as_many_flat_rows_as_tokens_alike() -> None:
    """As the oracle does: otherwise the limits of a shrunk input would be those of another loss."""
    inputs: Any = next(case for case in cases.cases_of("grpo") if case.name == "flat-rows").make(
        np.random.default_rng(5)
    )
    small = {"policy": -np.ones(2), "old": -np.ones(2), "lengths": np.array([2, 0]), "advantages": np.array([1.0, 5.0])}
    np.testing.assert_allclose(
        textbook.policy_loss(**{**inputs, **small})["gradient_value"], [-1 / 4, -1 / 4], rtol=1e-15
    )


def gradient(answer: Any) -> Any:
    """Return the gradient of the oracle's answer or of the baseline's pair."""
    return answer.gradient if isinstance(answer, oracle.PolicyLoss) else answer[1]
