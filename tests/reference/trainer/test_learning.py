"""The trainer learns: one algorithm, one seed; `make record` has all of them."""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from gates_reference.trainer import warmup
from gates_reference.trainer.algorithms import registry

PROGRAM = Path(__file__).resolve().parents[3] / "tools" / "learning.py"


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`tools/learning.py` as a module."""
    spec = importlib.util.spec_from_file_location("learning_program", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "learning_program", module)
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec.loader.exec_module(module)
    return module


@pytest.mark.long
def test_grpo_gains_three_tenths(program: Any) -> None:
    """From the warmed-up model, by fresh samples of every problem. `test_the_tiny_example_runs_through` is its short form."""
    curve = program.curve("grpo", 0, 45)
    assert curve["end"] - curve["start"] >= 0.3, curve


def test_the_control_keeps_the_rewards_and_loses_whose_they_are(program: Any) -> None:
    found = program.shuffled(prompts=["1+2="] * 40, completions=["3"] * 20 + ["4"] * 20, answer=[3] * 40)
    assert sum(found) == 20
    assert found != [1.0] * 20 + [0.0] * 20


class TestPairs:
    """The data of the preference runs."""

    @pytest.fixture
    def sums(self) -> Any:
        """Those of the warm-up."""
        return warmup.problems(warmup.Recipe())

    def test_right_is_chosen_and_wrong_rejected(self, program: Any, sums: Any) -> None:
        """Eight different wrong answers for every sum."""
        rows = program.learning_pairs.pairs(sums, 0)
        assert len({(row["prompt"], row["rejected"]) for row in rows}) == 8 * len(sums)
        assert all(row["chosen"] == str(row["answer"]) != row["rejected"] for row in rows)

    def test_the_control_swaps_half_of_every_sums_labels(self, program: Any, sums: Any) -> None:
        """No completion is lost, and the right answer is preferred as often as not."""
        rows = program.learning_pairs.pairs(sums, 0)
        found = program.learning_pairs.shuffled(rows, 0)
        for start in range(0, len(rows), 8):
            assert sum(row["chosen"] == str(row["answer"]) for row in found[start : start + 8]) == 4
        for old, new in zip(rows, found, strict=True):
            assert {old["chosen"], old["rejected"]} == {new["chosen"], new["rejected"]}

    @pytest.mark.parametrize("name", ["dpo", "online_dpo", "dpo, labels shuffled"])
    def test_no_run_trains_on_what_it_is_measured_by(self, program: Any, tmp_path: Path, sums: Any, name: str) -> None:
        """Not a sum of the held-out pairs is among the data; together they are the warm-up's."""
        tables = program.learning_pairs.tables(name, 0, 1, tmp_path, tmp_path / "model", sums)
        read = [
            {json.loads(text)["prompt"] for text in path.read_text().splitlines()}
            for path in (Path(tables["data"]["path"]), tmp_path / "held-out.jsonl")
        ]
        assert not read[0] & read[1]
        assert read[0] | read[1] == {row["prompt"] for row in sums}

    def test_margin_by_hand(self, program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sums: Any) -> None:
        """Beta times the mean of what the trainer's own evaluation finds; 0 while the policy is the reference."""
        model = warmup.build(warmup.Recipe(problems=8, steps=3, rows=4))
        tables = program.learning_pairs.tables("dpo", 0, 1, tmp_path, model, sums[:20])
        measure = program.learning_pairs.margins(tables)
        assert measure(0) == {"margin": 0.0, "preferred": 0.0}
        found = {"margin_mean": 3.0, "margin_positive_share": 0.75}
        monkeypatch.setattr(program.learning_pairs.evaluate, "margins", lambda *_: found)
        assert measure(0) == {"margin": pytest.approx(0.3), "preferred": 0.75}


def test_every_algorithm_of_the_registry_is_recorded(program: Any) -> None:
    recorded = {json.loads(text)["algorithm"] for text in program.RECORD.read_text().splitlines()}
    assert recorded == set(registry.ALGORITHMS) | {program.CONTROL, program.learning_pairs.CONTROL}
