"""Preferences through the same engine: pairs that come with the data, pairs of rollouts, the best of a group."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import runs

from gates_reference.trainer.config import algorithm, read
from gates_reference.trainer.config.errors import ConfigurationError
from gates_reference.trainer.data.rows import DataError
from gates_reference.trainer.loop import run as loop_run

COLUMNS = {"chosen_column": "chosen", "rejected_column": "rejected"}


def _pairs(folder: Path, rows: list[dict[str, Any]] | None = None, **changed: Any) -> read.Config:
    folder.mkdir(parents=True, exist_ok=True)
    made = [{"prompt": f"{n}+1=", "chosen": str(n + 1), "rejected": "no, never"} for n in range(12)]
    path = folder.parent / "pairs.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows or made))
    sections: dict[str, Any] = {
        "data": {"kind": "jsonl", "path": str(path), **COLUMNS},
        "rollout": {"samples_per_prompt": 2, "max_tokens": 12, "path": "auto"},
        "algorithm": {"name": "dpo", "settings": {}},
        "loop": {"steps": 6, "prompts_per_step": 4, "micro_batch_rows": 3},
        "rewards": {"functions": [{"name": "accuracy"}]},  # the default: pairs are not rewarded
    }
    return runs.config(
        folder, **{name: {**sections.get(name, {}), **changed.get(name, {})} for name in sections | changed}
    )


def test_dpo_prefers_what_was_chosen(tmp_path: Path) -> None:
    """From adapters that change nothing the margin is 0 and the loss log 2; then the margin grows, on validation pairs too."""
    config = _pairs(tmp_path / "run", adapter={"b_std": 0.0})
    runs.train(config)
    lines = runs.lines(tmp_path / "run")
    assert lines[0]["loss"] == pytest.approx(np.log(2), rel=1e-6)
    assert lines[0]["margin_mean"] == 0.0
    assert lines[-1]["margin_mean"] > 1.0
    assert "sampler_mean" not in lines[0]
    first, last = runs.lines(tmp_path / "run", "evaluations")
    assert last["margin_mean"] > first["margin_mean"] > 0
    used = json.loads((tmp_path / "run" / "used.json").read_text())
    assert used["rollout_paths"] == ["offline"]


def test_pairs_stand_as_the_data_says(tmp_path: Path) -> None:
    """Chosen first, its end token last, whole up to the most tokens that are allowed."""
    rows = [{"prompt": "a", "chosen": "12", "rejected": "no, never"}, {"prompt": "b", "chosen": "", "rejected": "1"}]
    config = _pairs(
        tmp_path / "run",
        rows,
        data={"validation_rows": 0, "shuffle": False},
        loop={"evaluate_every_steps": 0, "prompts_per_step": 2},
    )
    run = loop_run.Run(config, algorithm.create(config), resume=False)
    made = run.engine.generate(run._upcoming(), 0)
    learned = run.engine.learn(made, 1, 1e-3)
    run.close()
    decoded = [run.tokenizer.decode(row[row >= 0].tolist()) for row in made.tokens]
    assert decoded == ["12<|im_end|>", "no, never<|im_end|>", "<|im_end|>", "1<|im_end|>"]
    assert made.ended.tolist() == [True, True, True, True]
    assert learned.advantages.tolist() == [1, -1, 1, -1]


LONG = [
    {"prompt": "a", "chosen": "1", "rejected": "2"},
    {"prompt": "b", "chosen": "so 1", "rejected": "so 2, as 1 and 1 are 2"},
    {"prompt": "c", "chosen": "3", "rejected": "4"},
]


def test_pair_that_is_too_long_is_refused(tmp_path: Path) -> None:
    """Before the first step, and not cut: chosen and rejected may differ at their ends only."""
    config = _pairs(tmp_path / "run", LONG, data={"validation_rows": 0}, loop={"evaluate_every_steps": 0})
    with pytest.raises(DataError, match=r"row 1: 'rejected' has \d+ tokens .* rollout\.max_tokens = 12; raise that"):
        runs.train(config)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_a_pair_that_is_too_long_is_dropped(tmp_path: Path) -> None:
    """Where that is asked for; the other rows keep their numbers, and validation is chosen among what is left."""
    config = _pairs(tmp_path / "run", LONG, data={"validation_rows": 1, "too_long": "drop"})
    run = loop_run.Run(config, algorithm.create(config), resume=False)
    run.close()
    assert run.validation is not None
    assert sorted(p.index for source in (run.source, run.validation) for p in source.prompts) == [0, 2]


def test_a_model_with_two_end_tokens(tmp_path: Path) -> None:
    """Given completions end with the tokenizer's own, though sampling would stop at a lower id too."""
    config = _pairs(tmp_path / "run", data={"validation_rows": 0}, loop={"evaluate_every_steps": 0})
    run = loop_run.Run(config, algorithm.create(config), resume=False)
    own = int(run.tokenizer.eos_token_id)
    assert own > 0
    source = dataclasses.replace(run.source, eos_ids=(own - 1, own))
    made = source.once(run.model, [0, 1], 0)
    run.close()
    assert {int(row[length - 1]) for row, length in zip(made.tokens, made.lengths, strict=True)} == {own}


@pytest.mark.parametrize("name", ["online_dpo", "best_of_n"])
def test_preferences_of_rollouts(tmp_path: Path, name: str) -> None:
    """Two rollouts a prompt make a pair or a winner; an odd micro-batch never splits them, and the result is the unsplit one's."""
    losses = []
    for rows in (0, 3):
        config = runs.config(
            tmp_path / f"run{rows}",
            rollout={"samples_per_prompt": 2},
            algorithm={"name": name, "settings": {}},
            loop={"steps": 2, "prompts_per_step": 4, "micro_batch_rows": rows, "evaluate_every_steps": 0},
        )
        runs.train(config)
        losses.append([line["loss"] for line in runs.lines(tmp_path / f"run{rows}")])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert ("margin_mean" in runs.lines(tmp_path / "run0")[0]) == (name == "online_dpo")


def test_unscored_pairs_are_drawn_again(tmp_path: Path) -> None:
    """The first pair of the first rollout has no preference and is replaced by one of the second."""
    config = runs.config(
        tmp_path / "run",
        rollout={"samples_per_prompt": 2},
        algorithm={"name": "online_dpo", "settings": {}, "max_resamples": 2},
        rewards={"functions": [{"name": "user", "function": f"{tmp_path}/reward.py:some", "unscored": True}]},
        loop={"steps": 1, "prompts_per_step": 2, "evaluate_every_steps": 0},
    )
    (tmp_path / "reward.py").write_text(
        "calls = []\ndef some(completions):\n    calls.append(1)\n"
        "    return [None if n < 2 and len(calls) == 1 else n for n in range(len(completions))]\n"
    )
    runs.train(config)
    (line,) = runs.lines(tmp_path / "run")
    assert (line["rollouts"], line["groups_kept"], line["unscored_share"]) == (2, 2, 0)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"rollout": {"samples_per_prompt": 4}}, r"set rollout\.samples_per_prompt = 2"),
        ({"data": {"rejected_column": None}}, "go together; give both or none"),
    ],
    ids=["samples", "column"],
)
def test_half_a_pair_is_refused(tmp_path: Path, changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        _pairs(tmp_path / "run", **changed)


def test_a_missing_completion_is_named(tmp_path: Path) -> None:
    """By the row's number and the column."""
    rows = [{"prompt": "a", "chosen": "1"}, {"prompt": "b", "chosen": "1"}, {"prompt": "c", "chosen": "2"}]
    config = _pairs(tmp_path / "run", rows, data={"validation_rows": 0}, loop={"evaluate_every_steps": 0, "steps": 1})
    with pytest.raises(
        DataError, match=r"row 0 has no column 'rejected'; it has chosen, prompt; name one in data\.rejected_column"
    ):
        runs.train(config)
