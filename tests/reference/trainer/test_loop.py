"""The engine and the loop: any algorithm, parts that add up, off-policy updates, the finite guard."""

import datetime as dt
import decimal
import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pydantic_core
import pytest
import runs
from mlx import nn
from mlx.utils import tree_flatten
from plain_grpo import PlainGrpo

from gates_reference.trainer import logprobs, lora
from gates_reference.trainer import model as models
from gates_reference.trainer.algorithms.registry import ALGORITHMS
from gates_reference.trainer.checkpoint import layout
from gates_reference.trainer.config import read
from gates_reference.trainer.config.errors import ConfigurationError, TrainerError
from gates_reference.trainer.engine import micro_batches
from gates_reference.trainer.loop import run as loop_run
from gates_reference.trainer.metrics.callbacks import Callback

ROOT = Path(__file__).resolve().parents[3]
CONCRETE = {kind.__module__ for kind, _ in ALGORITHMS.values()}


def test_loading_the_engine_loads_no_algorithm() -> None:
    """A process that has imported the whole loop has none of them in sys.modules."""
    code = "import sys, json, gates_reference.trainer.loop.run; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert not set(json.loads(done.stdout)) & CONCRETE


class Watching(Callback):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []

    def start(self, step: int, steps: int) -> None:
        self.told.append(("start", (step, steps)))

    def step(self, step: int, numbers: Any, times: Any) -> None:
        assert times["tokens_per_second"] > 0
        self.told.append(("step", step))

    def evaluation(self, step: int, numbers: Any) -> None:
        assert numbers["prompts"] == 2
        self.told.append(("evaluation", step))

    def completions(self, step: int, rows: Any) -> None:
        self.told.append(("completions", (step, len(rows))))

    def end(self) -> None:
        self.told.append(("end", None))


def test_run_calls_its_callbacks_in_order(tmp_path: Path) -> None:
    """Callbacks hear of every step, evaluation, table and end in their order; the files hold the same."""
    watching = Watching()
    summary = runs.train(runs.config(tmp_path / "run"), told=[watching])
    expected = [("start", (0, 6))]
    for step in range(1, 7):
        expected.append(("step", step))
        expected += [("completions", (step, 4))] if step % 2 == 0 else []
        expected += [("evaluation", step)] if step % 3 == 0 else []
    assert watching.told == [*expected, ("end", None)]
    assert summary.steps == 6
    assert [line["step"] for line in runs.lines(tmp_path / "run")] == [1, 2, 3, 4, 5, 6]
    assert [line["step"] for line in runs.lines(tmp_path / "run", "evaluations")] == [3, 6]
    used = json.loads((tmp_path / "run" / "used.json").read_text())
    assert used["rollout_paths"] == ["batched"]
    assert used["end"]["adapter_digest"] == summary.adapter_digest != used["adapter"]["start_digest"]
    assert used["end"]["base_digest"] == used["model"]["base_digest"]
    assert len(used["adapter"]["targets"]) == 14


def test_callbacks_are_called_besides_the_configured_sinks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One's own callback takes nothing away from [output]."""
    sink = Watching()
    monkeypatch.setattr(loop_run.sinks, "configured", lambda *_: [sink])
    own = Watching()
    runs.train(runs.config(tmp_path / "run", loop={"steps": 1, "evaluate_every_steps": 0}), told=[own])
    assert sink.told == own.told != []


def test_a_run_that_ended_before_its_first_step_is_no_run(tmp_path: Path) -> None:
    """A reward function that raised is put right and the same command works; nothing is lost, for nothing was made."""
    config = runs.config(tmp_path / "run", loop={"steps": 1, "evaluate_every_steps": 0})
    reward = tmp_path / "reward.py"
    right = reward.read_text()
    reward.write_text("def low(completions):\n    raise OSError('slip')\n")
    with pytest.raises(TrainerError, match="reward 'low' raised OSError: slip"):
        runs.train(config)
    reward.write_text(right)
    assert runs.train(config).steps == 1


def test_completions_are_shown_with_their_own_rewards(tmp_path: Path) -> None:
    """Each line of the table is scored again here by the run's own function."""
    runs.train(runs.config(tmp_path / "run", loop={"steps": 2, "evaluate_every_steps": 0}))
    low = runpy.run_path(str(tmp_path / "reward.py"))["low"]
    (table,) = runs.lines(tmp_path / "run", "completions")
    assert table["step"] == 2
    assert len(table["rows"]) == 4
    again = low(prompts=None, completions=[row["completion"] for row in table["rows"]])
    assert [row["reward"] for row in table["rows"]] == pytest.approx(again)
    assert len(set(again)) > 1


def test_any_answer_can_be_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What JSON cannot hold is the text that Python shows; a strict reader reads every line, and the run goes on."""
    answers = {
        "decimal": (decimal.Decimal("1.50"), "Decimal('1.50')"),
        "date": (dt.date(2026, 11, 22), "datetime.date(2026, 11, 22)"),
        "bytes": (b"\xff", "b'\\xff'"),
        "half of a pair": ("a\ud83d", "a\\ud83d"),
        "nested": ({"x": [1, float("inf"), {2}], "y": None}, {"x": [1, "inf", "{2}"], "y": None}),
        "as it is": ("ü😀", "ü😀"),
    }
    rows = [{"prompt": f"{n}+1=", "answer": answer} for n, (answer, _) in enumerate(answers.values())]
    monkeypatch.setattr(loop_run.loop_inputs.rows, "read", lambda *_, **__: rows)
    config = runs.config(
        tmp_path / "run",
        data={"kind": "parquet", "path": "x", "count": None, "validation_rows": 0, "shuffle": False},
        loop={"steps": 2, "prompts_per_step": 6, "evaluate_every_steps": 0},
        rollout={"max_tokens": 2, "samples_per_prompt": 2},
        output={**runs.config(tmp_path / "run").output.model_dump(), "completions_rows": 12},
    )
    runs.train(config)
    (line,) = (tmp_path / "run" / "completions.jsonl").read_bytes().splitlines()
    found = pydantic_core.from_json(line)["rows"]  # Rust's own reader, which refuses halves of pairs
    assert [row["answer"] for row in found[::2]] == [shown for _, shown in answers.values()]


def test_another_run_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    """A finished run is not written over by accident."""
    config = runs.config(tmp_path / "run", loop={"steps": 1, "evaluate_every_steps": 0})
    runs.train(config)
    with pytest.raises(ConfigurationError, match="--resume"):
        runs.train(config)


@pytest.mark.parametrize("name", ["grpo", "dapo", "gspo", "rloo", "cispo", "reinforce", "reinforce++", "ppo", "vespo"])
def test_algorithms_of_the_registry_train(tmp_path: Path, name: str) -> None:
    """Two updates on two micro-batches each have a gradient, for every kind of ratio."""
    config = runs.config(
        tmp_path / "run",
        algorithm={"name": name, "settings": {}},
        loop={"steps": 1, "iterations": 2, "micro_batch_rows": 4, "evaluate_every_steps": 0},
    )
    runs.train(config)
    (line,) = runs.lines(tmp_path / "run")
    assert line["updates"] == 2
    assert line["gradient_norm"] > 1e-4


def test_one_update_of_the_engine_is_that_of_the_definition(tmp_path: Path) -> None:
    """The engine's first loss, KL part and gradient norm are those of a step written out here with plain MLX."""
    config = runs.config(tmp_path / "run", loop={"steps": 1, "micro_batch_rows": 4, "evaluate_every_steps": 0})
    algorithm = PlainGrpo(beta=0.04)
    run = loop_run.Run(config, algorithm, resume=False)
    generation = run.engine.generate(run._upcoming(), 0)
    prompts = [generation.prompts[row // 4].ids for row in range(8)]
    batch = logprobs.pack(prompts, generation.tokens, generation.lengths)
    with lora.adapters_off(run.model):
        base = mx.stop_gradient(logprobs.of_model(run.model, batch, 1.0)[0])
    gains = mx.array(algorithm.advantages(generation.rewards))

    def loss() -> mx.array:
        policy, mask = logprobs.of_model(run.model, batch, 1.0)
        ratio, d = mx.exp(policy - mx.stop_gradient(policy)), base - policy
        terms = mx.where(mask, -ratio * gains[:, None] + 0.04 * (mx.exp(d) - d - 1), 0.0)
        return (terms.sum(axis=1) / mask.sum(axis=1)).mean()

    value, gradient = nn.value_and_grad(run.model, loss)()
    norm = float(np.sqrt(sum(float((g**2).sum()) for _, g in tree_flatten(gradient))))
    (update,) = run.engine.learn(generation, 1, 1e-3).updates
    run.close()
    assert update.loss == pytest.approx(float(value), rel=1e-4, abs=1e-7)
    assert update.gradient_norm == pytest.approx(norm, rel=1e-4)
    assert update.kl > 0


@pytest.mark.parametrize("rows", [1, 3])
def test_entropy_mask_does_not_depend_on_micro_batches(tmp_path: Path, rows: int) -> None:
    """The quantile is that of the whole step: parts of 1 and 3 rows train on the tokens of the unsplit step; half the share trains others."""
    found = {}
    for name, share, size in (("whole", 0.4, 0), ("parts", 0.4, rows), ("other", 0.2, 0)):
        config = runs.config(
            tmp_path / name,
            algorithm={"name": "dapo", "settings": {"entropy_share": share, "entropy_bonus": 0.01}},
            optimizer={"name": "sgd", "learning_rate": 1.0, "max_gradient_norm": 1e9},
            loop={"steps": 1, "micro_batch_rows": size, "evaluate_every_steps": 0},
        )
        runs.train(config)
        values = layout.arrays(tmp_path / name / "checkpoints/step-00000001/adapters.safetensors")
        found[name] = np.concatenate([np.array(values[key]).ravel() for key in sorted(values)])
    close = 64 * 2**-23 * max(1.0, float(np.abs(found["whole"]).max()))
    assert np.abs(found["parts"] - found["whole"]).max() <= close
    assert np.abs(found["other"] - found["whole"]).max() > 10 * close


def test_steps_share_window_tokens_and_width(tmp_path: Path) -> None:
    """Four prompts in two optimizer steps: each has half of the batch's tokens and its width, whatever its own rows hold."""
    config = runs.config(tmp_path / "run", loop={"prompts_per_step": 4})
    run = loop_run.Run(config, PlainGrpo(), resume=False)
    generation = run.engine.generate(run._upcoming(), 0)
    steps = micro_batches.cut(generation, 2, 3, 6)
    run.close()
    assert [step.totals.window_tokens for step in steps] == [generation.lengths.sum() / 2] * 2
    assert [step.totals.width for step in steps] == [generation.lengths.max()] * 2
    assert {part.batch.width for step in steps for part in step.micro_batches} == {generation.lengths.max()}
    assert steps[0].totals.tokens == generation.lengths[:8].sum()


@pytest.mark.parametrize(
    ("rollout", "algorithm"),
    [
        pytest.param({}, {}, id="plain"),
        pytest.param({"top_k": 3}, {}, id="filtered"),
        pytest.param({"temperature": 0.6, "top_p": 0.8}, {}, id="tempered"),
        pytest.param({"temperature": 0.6}, {"scoring_temperature": 1.0}, id="scored-at-1"),
    ],
)
def test_stored_log_probs_are_the_samplers(tmp_path: Path, rollout: dict[str, Any], algorithm: dict[str, Any]) -> None:
    """With old_logprobs = 'stored' the ratio is against the sampler's own numbers at the scoring temperature, unfiltered: near 1, and not exactly."""
    config = runs.config(
        tmp_path / "run",
        rollout={"max_tokens": 6, "samples_per_prompt": 4, "path": "batched", **rollout},
        algorithm={"old_logprobs": "stored", **algorithm},
        loop={"steps": 1, "evaluate_every_steps": 0},
    )
    runs.train(config)
    assert 0 < runs.lines(tmp_path / "run")[0]["ratio_max_abs"] < 1e-4


def test_the_audit_names_the_path_that_ran(tmp_path: Path) -> None:
    rollout = {"max_tokens": 6, "samples_per_prompt": 4}
    tables = runs.tables(tmp_path / "run", loop={"steps": 1, "evaluate_every_steps": 0})
    runs.train(read.validate({**tables, "rollout": rollout}))
    used = json.loads((tmp_path / "run" / "used.json").read_text())
    assert used["config"]["rollout"]["path"] == "auto"
    assert set(used["rollout_paths"]) <= {"compiled", "batched"}


def test_cutting_keeps_groups_together(tmp_path: Path) -> None:
    """Five prompts dealt to two optimizer steps: 3 and 2; groups count from 0 in each, and no row is lost."""
    config = runs.config(tmp_path / "run", loop={"prompts_per_step": 5})
    run = loop_run.Run(config, PlainGrpo(), resume=False)
    generation = run.engine.generate(run._upcoming(), 0)
    steps = micro_batches.cut(generation, 2, 5, 6)
    run.close()
    assert [[len(part.rows) for part in step.micro_batches] for step in steps] == [[5, 5, 2], [5, 3]]
    assert np.concatenate([part.rows for step in steps for part in step.micro_batches]).tolist() == list(range(20))
    assert [part.groups.tolist() for part in steps[1].micro_batches] == [[0, 0, 0, 0, 1], [1, 1, 1]]
    assert steps[1].totals.group_tokens.sum() == steps[1].totals.tokens == generation.lengths[12:].sum()


def test_a_model_is_left_as_it_was(tmp_path: Path) -> None:
    """After a run the loaded model has no adapters and the base's bits."""
    before = models.digest(models.base_parameters(models.load({"hidden": 32}).model))
    runs.train(runs.config(tmp_path / "run", loop={"steps": 1, "evaluate_every_steps": 0}))
    model = models.load({"hidden": 32}).model
    assert not lora.adapters(model)
    assert models.digest(models.base_parameters(model)) == before


def test_a_stray_parameter_stops_a_run_before_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If freezing left a norm of the base trainable, no step is made, and the parameter is named."""
    freeze = lora.freeze

    def half(model: Any) -> None:
        freeze(model)
        model.layers[0].input_layernorm.unfreeze()

    monkeypatch.setattr(lora, "freeze", half)
    with pytest.raises(ValueError, match=r"only adapters may train, these would too: .*input_layernorm\.weight"):
        runs.train(runs.config(tmp_path / "run", model={"tiny": {"hidden": 32, "seed": 77}}))
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
