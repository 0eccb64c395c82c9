"""A counterexample's file may set amounts and numbers, never a text or a model."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gates.model import ConfigurationError, Recipe
from gates.registry import load
from gates.shrink import replay
from gates.shrink.file import Counterexample
from gates.shrink.flatten import flat, nested
from gates.shrink.probe import Answer, Asker

GATE, CASE, SEED = "trainer.trains-on-sampled-ids", "random-model", 5


def drawn(**changes: Any) -> Counterexample:
    """Return the drawn inputs of a case with other values at these paths."""
    (case,) = (case for case in load().gates[GATE].cases if case.name == CASE)
    table = {**flat(case.make(np.random.default_rng(SEED))), **changes}
    return Counterexample(
        gate=GATE,
        case=CASE,
        seed=SEED,
        subject="reference",
        entry="",
        kind="claim",
        reason="r",
        words="w",
        elements_before=2,
        elements_after=1,
        unit="tokens",
        finished=True,
        judged_beside=None,
        quick=True,
        tool="t",
        inputs=nested(table),
    )


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Record the subject's inputs without running it."""
    seen: list[Any] = []

    def ask(self: Asker, gate: object, case: object, inputs: Any, cut: Any) -> Answer:
        del self, gate, case, cut
        seen.append(inputs)
        return Answer("holds", "", "")

    monkeypatch.setattr(Asker, "ask", ask)
    return seen


def judge(counterexample: Counterexample, model: str | None = None) -> Answer:
    """Judge a counterexample again."""
    registry = load()
    return replay.replay(counterexample, registry, registry.subjects["reference"], model)


class TestVetting:
    """A data file is not trusted."""

    @pytest.mark.parametrize(
        "changes",
        [{}, {"tables.loop.steps": 1, "tables.data.seed": 0, "tables.optimizer.learning_rate": 1.0}],
        ids=["as drawn", "smaller"],
    )
    def test_numbers_may_differ(self, recorded: list[Any], changes: dict[str, Any]) -> None:
        counterexample = drawn(**changes)
        assert judge(counterexample).state == "holds"
        assert recorded == [counterexample.inputs]

    def test_ragged_rows_may_differ(self, recorded: list[Any]) -> None:
        """Prompts of different lengths are in a list, from which some may be removed."""
        gate = load().gates["scoring.half-logits.upcast"]
        inputs = dict(gate.cases[0].make(np.random.default_rng(SEED)))
        inputs["prompt_tokens"] = inputs["prompt_tokens"][:1]
        assert judge(replace(drawn(), gate=gate.id, case=gate.cases[0].name, inputs=inputs)).state == "holds"
        assert len(recorded) == 1

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"tables.rewards.functions": [{"name": "user", "function": "./evil.py:run"}]}, "rewards.functions"),
            ({"tables.data.path": "/etc/passwd"}, "tables.data.path"),
            ({"tables.algorithm.name": "ppo"}, "tables.algorithm.name"),
            ({"model.vocab": 1 << 40}, "model.vocab"),
            ({"model.hidden2": 1}, "model.hidden2"),
        ],
        ids=["code", "a path", "a text", "another model", "more of a model"],
    )
    def test_other_changes_are_refused(self, recorded: list[Any], changes: dict[str, Any], message: str) -> None:
        """Reward functions are code, paths are read, and a model of any size would be built."""
        with pytest.raises(ConfigurationError, match=message):
            judge(drawn(**changes))
        assert not recorded

    def test_a_real_model_is_named_by_the_user(self, recorded: list[Any], tmp_path: Path) -> None:
        """The file names the model that failed; only the command line chooses the one to load."""
        counterexample = drawn()
        real = replace(
            counterexample, inputs={**counterexample.inputs, "model": Recipe("model", {"path": str(tmp_path)})}
        )
        with pytest.raises(ConfigurationError, match=r"failed with the model .*pass it with --model"):
            judge(real)
        assert not recorded
        assert judge(real, "other/model").state == "holds"
        assert recorded[0]["model"] == Recipe("model", {"path": "other/model"})
