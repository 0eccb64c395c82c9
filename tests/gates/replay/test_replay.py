"""`gates trainer replay`: whole runs hold, and what is changed in a trace is named by its stage."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from replayed_runs import failing, model_of, traced
from safetensors import safe_open
from typer.testing import CliRunner

from gates.cli.verbs import app
from gates.families.trainer import replay_factors, replays
from gates.replay import rewards
from gates.replay.run import load_run
from gates.replay.stages import STAGES
from gates_reference.trainer import trace

SETTINGS: dict[str, Any] = {
    "algorithm": {"name": "grpo", "settings": {"beta": 0.2}},
    "loop": {"iterations": 2, "micro_batch_rows": 5, "steps": 2},
}
Arrays = dict[str, Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return traced(tmp_path_factory.mktemp("replay") / "run", SETTINGS)


def changed(
    folder: Path, to: Path, name: str, change: Callable[[Arrays], None], facts: dict[str, Any] | None = None
) -> Path:
    """Copy a run with one file of its trace changed: its arrays, and these of its facts."""
    shutil.copytree(folder, to)
    path = to / "trace" / name
    with safe_open(path, framework="np") as file:
        arrays = {key: file.get_tensor(key).copy() for key in file.keys()}  # noqa: SIM118  not a mapping
        metadata = dict(file.metadata())
    change(arrays)
    settings = {key: value for key, value in metadata.items() if key not in ("recorded_step", "trace")}
    trace.write(path, arrays, settings, json.loads(metadata["trace"]) | (facts or {}))
    return to


def rolled(name: str, axis: int = 0) -> Callable[[Arrays], None]:
    def change(arrays: Arrays) -> None:
        arrays[name] = np.roll(arrays[name], 1, axis)

    return change


STEP = "step-00000001.safetensors"
FIRST, UPDATE = "step-00000001-update-01.safetensors", "step-00000001-update-02.safetensors"


@pytest.mark.parametrize(
    ("name", "change", "stage"),
    [
        (STEP, rolled("trace.rollout.0.tokens"), "rollouts"),
        (STEP, rolled("trace.rollout.0.rewards"), "rewards"),
        (STEP, rolled("advantages"), "advantages"),
        (STEP, rolled("trace.reference", 1), "log-probs"),
        (UPDATE, rolled("trace.gradient.model.layers.0.self_attn.q_proj.lora_b"), "gradient"),
        (FIRST, rolled("trace.after.model.layers.0.self_attn.q_proj.lora_b"), "optimizer"),
    ],
)
def test_the_first_stage_that_fails_is_the_changed_one(
    folder: Path, tmp_path: Path, name: str, change: Callable[[Arrays], None], stage: str
) -> None:
    """A quantity is compared with what its predecessors make of it."""
    assert next(iter(failing(changed(folder, tmp_path / "run", name, change)))) == stage


def test_the_norm_after_the_clip_is_compared(tmp_path: Path) -> None:
    """A trace has the norm of what the optimizer was given; that before the clip in its place fails the optimizer's stage."""
    run = traced(tmp_path / "run", {"optimizer": {"max_gradient_norm": 0.01}, "loop": {"steps": 1}})
    assert failing(run) == {}
    (update,) = load_run(run, model_of(run)).trace.steps[0].updates
    assert update.facts["applied_norm"] == pytest.approx(0.01, rel=1e-5)
    assert update.facts["gradient_norm"] > 0.02
    facts = {"applied_norm": update.facts["gradient_norm"]}
    wrong = failing(changed(run, tmp_path / "changed", FIRST, lambda _: None, facts))
    assert wrong == {"optimizer": ["error of a gradient's norm after the clip"]}


def test_a_whole_run_holds(folder: Path) -> None:
    result = CliRunner().invoke(app, ["trainer", "replay", str(folder)])
    assert result.exit_code == 0, result.output
    assert "exit 0: all 7 stages hold" in result.output
    document = json.loads(CliRunner().invoke(app, ["trainer", "replay", str(folder), "--json"]).output)
    assert [stage["stage"] for stage in document["stages"]] == list(STAGES)
    assert document["steps"] == 2
    assert all(quantity["because"] for stage in document["stages"] for quantity in stage["quantities"])


TRUNCATED = {
    "algorithm": {"name": "rloo", "settings": {"beta": 0.5, "mask_truncated_completions": True}},
    "rollout": {"max_tokens": 5, "stop_ids": replays.ENDS},
    "loop": {"steps": 3, "micro_batch_rows": 5},
}


def test_truncated_completions_have_the_kl_of_all_their_tokens_in_their_reward(tmp_path: Path) -> None:
    """They leave the loss, not the baseline of their group: the advantages of the others depend on their reward."""
    run = traced(tmp_path / "run", TRUNCATED)
    assert failing(run) == {}
    replay = load_run(run, model_of(run))
    step = replay.trace.steps[-1]
    masked = np.flatnonzero(replay.trained(step) < step.lengths)
    assert 0 < len(masked) < len(step.lengths)
    old, reference = (step.arrays[name].astype(np.float64) for name in ("old", "reference"))
    kl = np.array([(old[row] - reference[row])[:length].sum() for row, length in enumerate(step.lengths)])
    assert np.abs(kl[masked]).min() > 1e-4
    rewards = (step.arrays["totals"] - 0.5 * kl).reshape(-1, 4)
    others = (rewards.sum(1, keepdims=True) - rewards) / 3
    assert np.abs(step.arrays["advantages"] - (rewards - others).reshape(-1)).max() < 1e-5


CORRECTED = {
    "adapter": {"dropout": 0.4, "b_std": 0.3},
    "algorithm": {"name": "grpo", "settings": {"correction": "tis", "correction_high": 1.5}},
    "loop": {"steps": 2, "micro_batch_rows": 5},
}


def test_weights_of_a_correction_have_no_dropout(tmp_path: Path) -> None:
    """One update of a rollout: the weights compare the policy without masks with the sampler, which are one policy here."""
    run = traced(tmp_path / "run", CORRECTED)
    assert failing(run) == {}
    for step in load_run(run, model_of(run)).trace.steps:
        live = np.arange(step.arrays["old"].shape[1]) < step.lengths[:, None]
        assert np.abs(step.arrays["old"] - step.arrays["sampling"])[live].max() < 1e-4
        (update,) = step.updates
        assert np.abs(update.arrays["policy"] - update.arrays["old"])[live].max() > 0.01


@pytest.mark.parametrize("kind", ["lora", "dora"])
def test_updates_with_dropout_are_replayed_with_their_masks(tmp_path: Path, kind: str) -> None:
    """The trace holds the masks; log-probs and gradient are those of the forward pass with them, and of no other masks."""
    changes = {
        "adapter": {"kind": kind, "dropout": 0.3, "b_std": 0.2, "embeddings": True},
        "loop": {"steps": 1, "micro_batch_rows": 5},
    }
    run = traced(tmp_path / "run", changes)
    replay = load_run(run, model_of(run))
    measured = {name: stage(replay) for name, stage in STAGES.items()}
    assert failing(run) == {}
    assert [found.left_out for found in measured.values() if found.left_out] == []
    mask = "trace.mask.1.model.layers.0.self_attn.o_proj"
    wrong = failing(changed(run, tmp_path / "rolled", FIRST, rolled(mask)))
    assert wrong["log-probs"] == ["error of the policy's log-probs in nats"]
    assert "error of a gradient along a direction, in its norm" in wrong["gradient"]

    def repeated(arrays: Arrays) -> None:
        arrays[mask] = arrays["trace.mask.0.model.layers.0.self_attn.o_proj"]

    assert (
        "masks of dropout that were used before"
        in failing(changed(run, tmp_path / "again", FIRST, repeated))["log-probs"]
    )


def test_dropout_of_experts_is_left_out(tmp_path: Path) -> None:
    """Masks of a stack of experts are drawn for its inputs in the order of the experts; that is said, and nothing fails."""
    changes = {"adapter": {"dropout": 0.3}, "loop": {"steps": 1, "evaluate_every_steps": 0}}
    run = traced(tmp_path / "run", changes, {"family": "qwen3_moe", "seed": 11, "vocab": 272})
    assert failing(run) == {}
    (reason,) = STAGES["gradient"](load_run(run, model_of(run))).left_out
    assert "is a stack of experts" in reason


def test_a_wrong_number_is_shown(folder: Path, tmp_path: Path) -> None:
    """The metrics of a run that were edited fail, and nothing else does."""
    run = changed(folder, tmp_path / "run", STEP, lambda _: None)
    lines = (run / "metrics.jsonl").read_text().splitlines()
    first = json.loads(lines[0])
    (run / "metrics.jsonl").write_text("\n".join([json.dumps({**first, "reward_mean": 9.0}), *lines[1:]]) + "\n")
    result = CliRunner().invoke(app, ["trainer", "replay", str(run)])
    assert result.exit_code == 1
    assert "reward_mean: got 9" in " ".join(result.output.split())
    assert "exit 1: metrics" in result.output


def test_a_folder_without_a_trace_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["trainer", "replay", str(tmp_path)])
    assert result.exit_code != 0
    assert "output.trace=true" in str(result.exception)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("72365-3", 3),
        ("is -4", -4),
        ("(2)-7", 7),
        ("1,234.5 x", 1234.5),
        ("a 7 #### 8 9", 8),
        ("1,23", 23),
        ("none", None),
    ],
)
def test_the_last_number_is_read_as_documented(text: str, number: float | None) -> None:
    """A minus behind a digit, letter or closing bracket is none of a sign; thousands have commas; a mark comes first."""
    assert rewards._final(text) == ([] if number is None else [number])


@pytest.mark.fast
def test_the_runs_meet_every_pair_of_factors() -> None:
    runs = [case.make(np.random.default_rng(0)) for case in replays.CASES]
    assert len(runs) <= 14
    assert replay_factors.unmet(runs) == []


POLICY_LOSSES = ("grpo", "dr_grpo", "dapo", "bnpo-trl", "gspo", "gspo-token", "rloo", "cispo", "sapo", "gmpo", "luspo")
FAMILIES = ("qwen3", "llama", "cohere", "gemma2", "gemma3_text", "qwen2", "qwen3_moe", "qwen3_next", "lfm2", "olmoe")


@pytest.mark.long
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("algorithm", [*POLICY_LOSSES, "reinforce", "reinforce++", "ppo", "vespo", "best_of_n"])
def test_every_algorithm_on_every_family_holds(tmp_path: Path, algorithm: str, family: str) -> None:
    changes = {"algorithm": {"name": algorithm}, "loop": {"iterations": 2, "micro_batch_rows": 5, "steps": 2}}
    run = traced(tmp_path / "run", changes, {"family": family, "seed": 11, "vocab": 272})
    assert failing(run) == {}
