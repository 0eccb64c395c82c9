"""The trainer's commands as their users type them."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import runs
import typer
from command_line import gates, here

from gates.cli.trainer import stopped
from gates.cli.trainer import train as train_verb
from gates_reference import tiny
from gates_reference.trainer.config import read as configuration
from gates_reference.trainer.config import write
from gates_reference.trainer.loop import run
from gates_reference.trainer.memory import estimate

ROOT = Path(__file__).resolve().parents[3]


def _file(folder: Path, **changed: Any) -> Path:
    path = folder / "run.toml"
    path.write_text(write.toml(runs.tables(folder / "run", **changed)))
    return path


def test_a_family_whose_rows_cannot_be_batched(tmp_path: Path) -> None:
    """By default it trains by a path that works and a note says so; where the configuration names another, one sentence."""
    file = str(_file(tmp_path, model={"tiny": {"family": "gemma2"}}, rollout={"path": "auto"}))
    done = here("trainer", "train", file, "--set", "loop.steps=1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "note: rollouts go one prompt at a time (path 'prefix'), slower than a batch: " in done.stderr
    assert "gemma2" in done.stderr
    named = ("--set", "rollout.path=batched", "--set", "output.folder=other")
    refused = here("trainer", "train", file, *named, cwd=tmp_path)
    assert refused.returncode == 2
    assert "use path 'prefix'" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_run_from_start_to_end(tmp_path: Path) -> None:
    """Train, resume what is done, refuse to start again, evaluate it and the base, generate: each does and says what it should."""
    file = str(_file(tmp_path, loop={"steps": 2, "evaluate_every_steps": 0}, rollout={"top_p": 0.9}))
    done = gates("trainer", "train", file, "--json", "--set", "output.console=true", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(
        r"(step [12] of 2: reward \S+, signal in \d+% of groups, \d+ tokens/s, .*\n){2}", done.stderr
    ), done.stderr
    facts = json.loads(done.stdout)
    assert facts["steps"] == 2
    again = here("trainer", "train", file, cwd=tmp_path)
    assert again.returncode == 2
    assert "--resume" in again.stderr
    resumed = here("trainer", "train", file, "--resume", cwd=tmp_path)
    assert resumed.stdout.startswith("2 steps, all of them taken before, adapters ")
    assert facts["adapter_digest"][:12] in resumed.stdout
    tuned, base = (
        json.loads(here("trainer", "evaluate", file, "--json", *more, cwd=tmp_path).stdout)
        for more in ((), ("--base",))
    )
    assert tuned["adapter"].endswith("step-00000002")
    assert base["adapter"] == ""
    assert tuned["completions"] == base["completions"] == 8
    options = ["--set", "rollout.temperature=0", "--set", "rollout.samples_per_prompt=1"]
    greedy = here("trainer", "evaluate", file, *options, "--set", "algorithm.name=rloo", cwd=tmp_path)
    assert greedy.stderr.startswith("gates: note: rollout.top_p is 0.9 and nothing reads it"), greedy.stderr
    assert greedy.returncode == 0
    options = ["--prompt", "1+2=", "--prompt", "3+4=", "--samples", "2", "--max-tokens", "3", "--json"]
    first, second = (json.loads(here("trainer", "generate", file, *options, cwd=tmp_path).stdout) for _ in range(2))
    assert first == second
    bare = json.loads(here("trainer", "generate", file, *options, "--base", cwd=tmp_path).stdout)
    assert [one["logprob"] for one in bare] != [one["logprob"] for one in first]
    newest = str(tmp_path / "run" / "checkpoints" / "step-00000002")
    named = json.loads(here("trainer", "generate", file, *options, "--adapter", newest, cwd=tmp_path).stdout)
    assert named == first
    assert [(one["prompt"], one["sample"]) for one in first] == [("1+2=", 0), ("1+2=", 1), ("3+4=", 0), ("3+4=", 1)]
    assert all(1 <= len(one["tokens"]) <= 3 for one in first)


@pytest.mark.parametrize(
    ("first", "last", "words"),
    [
        (
            {"reward_mean": 0.5, "margin_mean": 0.0},
            {"reward_mean": 0.5, "margin_mean": 2.345},
            "mean margin 0 in the first and 2.35 in the last",
        ),
        ({"reward_mean": 0.5}, {"reward_mean": "nan"}, "mean reward 0.5 in the first and nan in the last"),
        (
            {"reward_mean": "nan"},
            {"reward_mean": 0.5, "margin_mean": 1.0},
            "mean margin unknown in the first and 1 in the last",
        ),
        ({"reward_mean": 0.5}, {}, "all of them taken before"),
    ],
    ids=["pairs", "rewards", "pairs-later", "resumed"],
)
def test_the_closing_line_says_what_went_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], first: dict[str, Any], last: dict[str, Any], words: str
) -> None:
    """Margins where pairs were learned from, whose own rewards are 1 and 0 from first to last; rewards elsewhere."""
    summary = run.Summary(tmp_path, 3, last, "0" * 64, [], first)
    train_verb._report(summary, as_json=False)
    assert capsys.readouterr().out.startswith(f"3 steps, {words}, adapters 000000000000: ")


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    """It prints a configuration that can be read again and the preflight, and makes no folder."""
    file = _file(tmp_path)
    (tmp_path / "run").rmdir()
    done = here("trainer", "train", str(file), "--dry-run", "--set", "loop.steps=77", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "steps = 77" in done.stdout
    assert "peak" in done.stdout
    assert not (tmp_path / "run").exists()


def test_memory_of_a_model_that_is_not_here(tmp_path: Path) -> None:
    """The measured 9B's peak at G 4 is its anchor, and too much for 40 GB: the advice comes with it."""
    example = str(ROOT / "examples" / "qwen3.5-9b-checkpointed.toml")
    options = ["--set", "loop.micro_batch_rows=4", "--prompt-tokens", "97"]
    done = here("trainer", "memory", example, *options, "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["peak"] == pytest.approx(45.9e9, rel=0.03)
    text = here("trainer", "memory", example, *options, "--available-gb", "40", cwd=tmp_path).stdout
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
    done = here("trainer", *arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert words in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_a_model_whose_memory_cannot_be_estimated_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where config.json has not the usual keys a note says so, and the run goes on; out of memory is told all the same."""
    known = {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 320}
    monkeypatch.setattr(estimate, "read", lambda _: estimate.shape(known))
    file = _file(tmp_path, loop={"steps": 1, "evaluate_every_steps": 0})
    train_verb.train(file)
    note = "note: whether the memory is enough is not known ([model]: config.json has no num_attention_heads"
    said = capsys.readouterr()
    assert f"gates: {note}" in said.err
    assert said.out.startswith("1 steps")
    told = stopped.out_of_memory(configuration.read(file, ()), 5, MemoryError("no room"))
    assert told.startswith("out of memory (no room)")
    assert note in told


def test_an_interrupted_run_says_how_to_go_on(tmp_path: Path) -> None:
    """Ctrl-C while the third step is scored: where the run stands, and a command that works as it is, overrides included."""
    file = _file(tmp_path, loop={"steps": 4, "evaluate_every_steps": 0})
    reward = tmp_path / "reward.py"
    reward.write_text(
        "import pathlib\ncalls = pathlib.Path(__file__).with_name('calls')\n"
        "def low(completions):\n"
        "    calls.write_text(calls.read_text() + '.' if calls.exists() else '.')\n"
        "    if len(calls.read_text()) == 4: raise KeyboardInterrupt\n"
        "    return [len(c) % 3 for c in completions]\n"
    )
    done = here("trainer", "train", str(file), "--set", "optimizer.learning_rate=2e-3", cwd=tmp_path)
    assert done.returncode == 130, done.stderr
    assert "interrupted; the newest checkpoint is of step 2; go on with: gates trainer train" in done.stderr
    command = shlex.split(done.stderr.partition("go on with: gates ")[2])
    assert command == ["trainer", "train", str(file), "--set", "optimizer.learning_rate=2e-3", "--resume"]
    resumed = here(*command, cwd=tmp_path)
    assert resumed.stdout.startswith("4 steps"), resumed.stderr


@pytest.mark.parametrize(
    "error", [RuntimeError("[malloc] Unable to allocate 99 bytes."), MemoryError()], ids=["mlx", "python"]
)
def test_out_of_memory_is_reported_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    """What ran out, the preflight, and what to change in which order; exit code 1."""

    def train(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(run, "train", train)
    with pytest.raises(typer.Exit) as left:
        train_verb.train(_file(tmp_path))
    assert left.value.exit_code == 1
    said = capsys.readouterr().err
    assert "out of memory" in said
    assert "peak" in said
    assert said.index("checkpoint_layers") < said.index("samples_per_prompt") < said.index("rollout.max_tokens")


def test_other_runtime_errors_are_not_reported_as_out_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistake of ours keeps its traceback."""

    def train(*_: Any, **__: Any) -> None:
        raise RuntimeError("shapes")

    monkeypatch.setattr(run, "train", train)
    with pytest.raises(RuntimeError, match="shapes"):
        train_verb.train(_file(tmp_path))


GUARDED = """
import runpy, socket, sys
def refuse(*asked, **_):
    print("ASKED THE NETWORK", asked[:2], file=sys.stderr)
    raise socket.gaierror("no network here")
socket.getaddrinfo = socket.socket.connect = refuse
sys.argv = ["gates", *sys.argv[1:]]
runpy.run_module("gates", run_name="__main__")
"""


def test_a_model_by_its_id_needs_no_network(tmp_path: Path) -> None:
    """A model in the Hugging Face cache is trained without a question to the hub; half of one is told with the command."""
    snapshot = tmp_path / "hf" / "hub" / "models--nobody--tiny" / "snapshots" / ("0" * 40)
    shutil.copytree(tiny.build({"hidden": 32}), snapshot)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("0" * 40)
    file = _file(tmp_path, model={"tiny": {}, "path": "nobody/tiny"}, loop={"steps": 1, "evaluate_every_steps": 0})
    environment = {name: value for name, value in os.environ.items() if "OFFLINE" not in name}
    environment["HF_HOME"] = str(tmp_path / "hf")
    command = [sys.executable, "-c", GUARDED, "trainer", "train", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    assert "ASKED" not in done.stderr
    used = json.loads((tmp_path / "run" / "used.json").read_text())
    assert used["model"]["path"] == str(snapshot)
    missing = [*command, "--set", "model.path=nobody/else"]
    done = subprocess.run(missing, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=280, check=False)
    assert done.returncode == 2
    assert "model.path nobody/else: is not in the Hugging Face cache" in done.stderr
    assert "hf download nobody/else" in done.stderr


@pytest.mark.parametrize("verb", ["train", "generate", "evaluate", "memory"])
def test_help_has_examples(tmp_path: Path, verb: str) -> None:
    """Each verb shows how it is used."""
    done = here("trainer", verb, "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert f"gates trainer {verb}" in " ".join(done.stdout.split("Examples")[1].split())


def test_ones_own_data_and_reward(tmp_path: Path) -> None:
    """examples/own-data.toml with a tiny model in place of Qwen3: both rewards are in the metrics, the columns reached them."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    options = ["--set", "model={tiny = {hidden = 32}}", "--set", "data.chat_options={}", "--set", "loop.steps=1"]
    more = ["--set", "loop.evaluate_every_steps=1", "--set", "rollout.max_tokens=6", "--json"]
    dry = here("trainer", "train", "examples/own-data.toml", *options, "--dry-run", cwd=tmp_path)
    assert dry.returncode == 0, dry.stderr
    done = here("trainer", "train", "examples/own-data.toml", *options, *more, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "runs" / "own-data"
    (line,) = runs.lines(folder)
    assert {"reward_accuracy_mean", "reward_names_the_unit_mean"} <= set(line)
    assert runs.lines(folder, "evaluations")[0]["prompts"] == 2
    (tmp_path / "examples" / "own_data.jsonl").unlink()
    gone = here("trainer", "train", "examples/own-data.toml", *options, "--dry-run", cwd=tmp_path)
    assert gone.returncode == 2
    assert "own_data.jsonl: cannot be read" in gone.stderr


@pytest.mark.slow
@pytest.mark.long  # docs/training.md, whose commands are run, has the same command
def test_the_tiny_example_runs_through(tmp_path: Path) -> None:
    """`gates trainer train examples/tiny.toml`, as it stands: every step, its checkpoints, and a reward that rises for all to see."""
    done = gates("trainer", "train", str(ROOT / "examples" / "tiny.toml"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "runs" / "tiny"
    rewards = [line["reward_mean"] for line in runs.lines(folder)]
    assert len(rewards) == 60
    assert 0.1 < sum(rewards[:5]) / 5 < sum(rewards[-5:]) / 5 - 0.2
    assert f"mean reward {rewards[0]:.3g} in the first and {rewards[-1]:.3g} in the last" in done.stdout
    assert (folder / "checkpoints" / "step-00000060").is_dir()
