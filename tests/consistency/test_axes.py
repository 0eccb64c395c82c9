"""The choices of each algorithm in the table, and in those that keep choices of their own."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from gates.families.loss import cases
from gates.families.loss.op import POLICY_LOSS
from gates.model import Case, Outcome
from gates.registry import load
from gates.run import inputs as drawing
from gates.run.oracle_cache import OracleCache
from gates.run.trial import OracleError, RunningTrial, Scratch
from gates.subjects.numpy_baseline import loss as baseline
from gates.subjects.numpy_baseline import subject
from gates_reference import algorithms as table
from gates_reference.oracle import losses as oracle
from gates_reference.oracle.definitions.losses import DEFINITIONS

pytestmark = pytest.mark.fast


def swaps() -> Iterator[Any]:
    """Yield every row with each other choice that it could have on an axis."""
    for row, axis in product(table.ALGORITHMS.values(), table.AXES):
        for word in table.AXES[axis]:
            chosen = {"ratio_level": row.ratio_level, "bound": row.bound, axis: word}
            if word != getattr(row, axis) and not table.impossible(chosen["ratio_level"], chosen["bound"]):
                yield pytest.param(row.name, {axis: word}, id=f"{row.name}-{axis}-{word}")
    for row in table.ALGORITHMS.values():
        word = "reward" if row.kl == "loss" else "loss"
        yield pytest.param(row.name, {"kl": word}, id=f"{row.name}-kl-{word}")


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
        except OracleError:  # the definition refuses the constants of the case: an `error` is red too
            return True


@pytest.mark.parametrize(("name", "choice"), list(swaps()))
def test_a_wrong_choice_in_a_row_turns_the_check_red(
    monkeypatch: pytest.MonkeyPatch, name: str, choice: dict[str, Any]
) -> None:
    """So that no row of the table can be wrong unseen."""
    row = replace(table.ALGORITHMS[name], **choice) if "kl" in choice else table.composed(name, **choice)
    swapped = replace(row, overrides=())
    rows = MappingProxyType({**table.ALGORITHMS, name: swapped})
    monkeypatch.setattr(table, "ALGORITHMS", rows)
    monkeypatch.setattr(cases, "ALGORITHMS", rows)
    assert any(wrong(case) for case in cases.cases_of(name)), f"{name} with {choice} is called right"


@pytest.mark.parametrize("name", table.ALGORITHMS)
def test_the_rows_are_right_as_they_are(name: str) -> None:
    """Without a swap nothing is red."""
    assert not [case.name for case in cases.cases_of(name) if case.level is None and wrong(case)]


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
