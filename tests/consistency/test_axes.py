"""The choices of each algorithm in the table, and in those that keep choices of their own."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from gates.families.loss import cases, covering, textbook
from gates.families.loss.op import POLICY_LOSS
from gates.model import Case, Outcome
from gates.registry import load
from gates.run import inputs as drawing
from gates.run.oracle_cache import OracleCache
from gates.run.trial import RunningTrial, Scratch
from gates.subjects.numpy_baseline import loss as baseline
from gates.subjects.numpy_baseline import subject
from reference import algorithms as table
from reference.oracle import losses as oracle
from reference.oracle.definitions.losses import DEFINITIONS

pytestmark = pytest.mark.fast


def swaps() -> Iterator[Any]:
    """Yield every row with each other choice that it could have on an axis."""
    for row, axis in product(table.ALGORITHMS.values(), table.AXES):
        for word in table.AXES[axis]:
            chosen = {"ratio_level": row.ratio_level, "bound": row.bound, axis: word}
            if word != getattr(row, axis) and not table.impossible(chosen["ratio_level"], chosen["bound"]):
                yield pytest.param(row.name, axis, word, id=f"{row.name}-{axis}-{word}")


@pytest.mark.parametrize("name", table.ALGORITHMS)
def test_each_keeps_the_same_choices(name: str) -> None:
    """Oracle and NumPy baseline import neither the table nor each other."""
    row, defined, computed = table.ALGORITHMS[name], DEFINITIONS[name], baseline.PRESETS[name]
    chosen = (row.ratio_level, row.bound, row.aggregation, row.kl_in_loss)
    assert chosen == (defined.ratio_level, defined.bound, defined.aggregation, defined.kl), (
        "edit the table or the oracle"
    )
    assert chosen == (computed.level, computed.bound, computed.aggregation, computed.kl), (
        "edit the table or the baseline"
    )


def wrong(case: Case) -> bool:
    """Whether the gate of GRPO calls the NumPy baseline, or the table, wrong in a case."""
    gate = load().gates["loss.grpo.matches-definition"]

    def call(op: str, inputs: Any, *_: Any) -> Outcome:
        return Outcome("value", subject.OPS[op](**inputs))

    with Scratch() as scratch:
        try:
            trial = RunningTrial(drawing.inputs(gate, case, 7), OracleCache(), gate, case, call, scratch)
            return not all(item.holds for item in gate.check(trial))
        except Exception:  # noqa: BLE001  an error is red too
            return True


@pytest.mark.parametrize(("name", "axis", "word"), list(swaps()))
def test_a_wrong_choice_in_a_row_turns_the_check_red(
    monkeypatch: pytest.MonkeyPatch, name: str, axis: str, word: str
) -> None:
    swapped = replace(table.composed(name, **{axis: word}), overrides=())
    rows = MappingProxyType({**table.ALGORITHMS, name: swapped})
    monkeypatch.setattr(table, "ALGORITHMS", rows)
    monkeypatch.setattr(cases, "ALGORITHMS", rows)
    assert any(wrong(case) for case in cases.cases_of(name)), f"{name} with {axis} {word!r} is called right"


@pytest.mark.parametrize("name", table.ALGORITHMS)
def test_the_rows_are_right_as_they_are(name: str) -> None:
    """Without a swap nothing is red."""
    assert not [case.name for case in cases.cases_of(name) if case.level is None and wrong(case)]


def distances(case: Case) -> tuple[float, float]:
    """Return how far formula and baseline are from the oracle, in limits."""
    inputs: Any = case.make(np.random.default_rng(3))
    wanted, limits = oracle.policy_loss(**cases.rounded(inputs)), textbook.policy_loss(**inputs)
    sure = ~wanted.near_branch & np.isfinite(limits["gradient"]) & (limits["gradient"] > 0.0)
    got = subject.OPS["policy_loss"](**inputs)
    found = []
    for loss, gradient in ((limits["loss_value"], limits["gradient_value"]), (got["loss"], got["gradient"])):
        slopes = np.abs(gradient - wanted.gradient)[sure] / limits["gradient"][sure]
        room = limits["loss"] + wanted.branch_slack
        found.append(max(float(abs(loss - wanted.loss) / room), float(slopes.max(initial=0.0))))
    return found[0], found[1]


class TestCompositions:
    """Every possible composition has a definition, a limit and a baseline that agree."""

    def test_a_covering_set_is_small(self) -> None:
        assert len(covering.covering()) <= 60

    @pytest.mark.parametrize("changes", covering.covering(), ids=covering.named)
    def test_each_pair_of_choices(self, changes: Any) -> None:
        """The cases of the gate, at another seed."""
        assert max(distances(cases.case("grpo", "composition", **changes))) <= 1.0

    @pytest.mark.long
    @pytest.mark.parametrize("changes", list(covering.every()), ids=covering.named)
    def test_the_whole_product(self, changes: Any) -> None:
        assert max(distances(cases.case("grpo", "composition", **changes))) <= 1.0

    @pytest.mark.parametrize("row", [*table.ALGORITHMS.values(), *table.VARIANTS], ids=lambda row: row.text)
    def test_a_preset_is_its_composition(self, row: table.Algorithm) -> None:
        """The oracle's function for a published loss, and the functions of its choices."""
        chosen = {axis: getattr(row, axis) for axis in row.overrides}
        widths = {"epsilon_low": 0.2, "epsilon_high": 0.25} if row.bound == "clip" else {}
        inputs: Any = cases.case(row.name, "preset", **chosen, **widths).make(np.random.default_rng(5))
        spelled = {axis: getattr(row, axis) for axis in table.AXES}
        base = "reinforce" if row.name == "grpo" else "grpo"
        literal = oracle.policy_loss(**cases.rounded(inputs))
        composed = oracle.policy_loss(**cases.rounded({**inputs, **spelled, "algorithm": base}))
        assert composed.loss == pytest.approx(literal.loss, rel=1e-13)
        np.testing.assert_allclose(composed.gradient, literal.gradient, rtol=1e-13, atol=1e-18)
        assert np.array_equal(composed.near_branch, literal.near_branch)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"aggregation": "rowmean"}, "`aggregation` is 'rowmean', must be one of row-mean"),
        ({"bound": "clamp"}, "`bound` is 'clamp'"),
        ({"ratio_level": "none"}, "nothing to bound"),
        ({"ratio_level": "seq_mean_token", "bound": "cap"}, "seq_mean is the same"),
        ({"bound": "log-clip"}, "seq_mean is the only level"),
    ],
)
def test_unknown_words_and_impossible_pairs_are_refused(changes: Any, message: str) -> None:
    """By the table, and by oracle and baseline, which have lists of their own."""
    with pytest.raises(ValueError, match=message):
        table.composed("grpo", **changes)
    inputs: Any = next(cases.cases_of("grpo")).make(np.random.default_rng(5))
    for function in (oracle.policy_loss, subject.OPS["policy_loss"]):
        with pytest.raises(ValueError, match="must be"):
            function(**inputs, **changes)


def test_an_unknown_algorithm_is_refused() -> None:
    """No name falls back to another one's choices."""
    with pytest.raises(ValueError, match="`algorithm` is 'topr', must be one of grpo"):
        table.composed("topr")
    assert POLICY_LOSS.preset({"algorithm": "topr"}) == {}
