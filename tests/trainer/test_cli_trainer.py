"""The trainer's commands as their users type them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import runs

from reference.trainer.config import write

ROOT = Path(__file__).resolve().parents[2]


def gates(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gates", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=280, check=False)


def _file(folder: Path, **changed: Any) -> Path:
    path = folder / "run.toml"
    path.write_text(write.toml(runs.tables(folder / "run", **changed)))
    return path


def test_a_run_from_start_to_end(tmp_path: Path) -> None:
    """Train, resume what is done, refuse to start again, evaluate it and the base, generate: each does and says what it should."""
    file = str(_file(tmp_path, loop={"steps": 2, "evaluate_every_steps": 0}))
    done = gates("train", file, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["steps"] == 2
    again = gates("train", file, cwd=tmp_path)
    assert again.returncode == 2
    assert "--resume" in again.stderr
    resumed = gates("train", file, "--resume", cwd=tmp_path)
    assert resumed.stdout.startswith("2 steps, all of them taken before, adapters ")
    assert facts["adapter_digest"][:12] in resumed.stdout
    tuned, base = (
        json.loads(gates("evaluate", file, "--json", *more, cwd=tmp_path).stdout) for more in ((), ("--base",))
    )
    assert tuned["adapter"].endswith("step-00000002")
    assert base["adapter"] == ""
    assert tuned["completions"] == base["completions"] == 8
    options = ["--prompt", "1+2=", "--prompt", "3+4=", "--samples", "2", "--max-tokens", "3", "--json"]
    first, second = (json.loads(gates("generate", file, *options, cwd=tmp_path).stdout) for _ in range(2))
    assert first == second
    assert [(one["prompt"], one["sample"]) for one in first] == [("1+2=", 0), ("1+2=", 1), ("3+4=", 0), ("3+4=", 1)]
    assert all(1 <= len(one["tokens"]) <= 3 for one in first)


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    """It prints a configuration that can be read again and the preflight, and makes no folder."""
    file = _file(tmp_path)
    (tmp_path / "run").rmdir()
    done = gates("train", str(file), "--dry-run", "--set", "loop.steps=77", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "steps = 77" in done.stdout
    assert "peak" in done.stdout
    assert not (tmp_path / "run").exists()


def test_memory_of_a_model_that_is_not_here(tmp_path: Path) -> None:
    """The measured 9B's peak at G 4 is its anchor, and too much for 40 GB: the advice comes with it."""
    example = str(ROOT / "examples" / "qwen3.5-9b-checkpointed.toml")
    options = ["--set", "loop.micro_batch_rows=4", "--prompt-tokens", "97"]
    done = gates("memory", example, *options, "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["peak"] == pytest.approx(45.9e9, rel=0.03)
    text = gates("memory", example, *options, "--available-gb", "40", cwd=tmp_path).stdout
    assert "near an anchor" in text
    assert "1. a smaller G: 2 completions at once" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "none.toml"], "none.toml: cannot be read"),
        (["train", "run.toml", "--set", "loop.setps=3"], "did you mean 'steps'"),
        (["train", "run.toml", "--set", "algorithm.name=grop"], "did you mean 'grpo'"),
        (["train", "run.toml", "--set", "model.tiny.hiden=8"], "[model]"),
        (["train", "run.toml", "--set", 'adapter.targets=["nothing"]'], "[adapter]"),
        (["train", "run.toml", "--set", "rewards.functions.0.function=./none.py:f"], "there is no file none.py"),
        (["train", "run.toml", "--set", "data.max_prompt_tokens=1"], "raise that, or set data.too_long"),
        (["train", "run.toml", "--set", "output.wandb=true"], "pip install wandb"),
        (["evaluate", "run.toml", "--base", "--adapter", "x"], "exclude each other"),
        (["generate", "run.toml", "--prompt", "a", "--adapter", "nowhere"], "holds no adapters"),
        (
            ["memory", "run.toml", "--set", "model.path=nobody/nothing", "--set", "model.tiny={}"],
            "its shape is unknown",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_sentence(tmp_path: Path, arguments: list[str], words: str) -> None:
    """No traceback, exit code 2, and what to do."""
    _file(tmp_path)
    done = gates(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert words in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("verb", ["train", "generate", "evaluate", "memory"])
def test_help_has_examples(tmp_path: Path, verb: str) -> None:
    """Each verb shows how it is used."""
    done = gates(verb, "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert f"gates {verb}" in done.stdout.split("Examples")[1]


@pytest.mark.slow
def test_the_tiny_example_runs_through(tmp_path: Path) -> None:
    """`gates train examples/tiny.toml`, as it stands: every step, its checkpoints, and a reward that rises for all to see."""
    done = gates("train", str(ROOT / "examples" / "tiny.toml"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "runs" / "tiny"
    rewards = [line["reward_mean"] for line in runs.lines(folder)]
    assert len(rewards) == 60
    assert 0.1 < sum(rewards[:5]) / 5 < sum(rewards[-5:]) / 5 - 0.2
    assert f"mean reward {rewards[0]:.3g} in the first and {rewards[-1]:.3g} in the last" in done.stdout
    assert (folder / "checkpoints" / "step-00000060").is_dir()
