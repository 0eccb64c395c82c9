"""Runs of families without a NumPy forward pass are replayed by transformers in a peer's environment."""

import dataclasses
import json
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from replayed_runs import failing_of, model_of, traced
from typer.testing import CliRunner

from gates.cli.verbs import app
from gates.errors import ConfigurationError
from gates.replay import run as replays_run
from gates.replay.forward import UnsupportedError
from gates.replay.forward import load as in_numpy
from gates.replay.peer import Peer, load
from gates.replay.run import load_run
from gates.subjects.peers import environments
from gates_reference import tiny

FAKE = Peer(Path(sys.executable), Path(__file__).parent / "scripts" / "numpy_in_place_of_transformers.py")
LEAVES = ("lora_a", "lora_b")
SMALL = {"loop": {"steps": 1, "evaluate_every_steps": 0}, "algorithm": {"settings": {"beta": 0.2}}}
FAMILIES = ("olmo2", "granite", "phi3", "glm4", "helium", "stablelm", "smollm3", "hunyuan_v1_dense", "exaone4")
EXPERTS = ("qwen2_moe", "glm4_moe")


@pytest.fixture
def no_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the forward passes in NumPy."""

    def unknown(folder: Path) -> Any:
        raise UnsupportedError(f"{folder}: model_type is unknown")

    monkeypatch.setattr(replays_run, "load", unknown)


@pytest.mark.usefixtures("no_numpy")
@pytest.mark.parametrize("kind", ["lora", "dora"])
def test_a_run_is_replayed_by_a_process(tmp_path: Path, kind: str) -> None:
    """Adapters are merged into the weights that are handed over, embeddings included; the process computes the logits."""
    folder = traced(tmp_path / "run", {**SMALL, "adapter": {"kind": kind, "b_std": 0.1, "embeddings": True}})
    run = load_run(folder, model_of(folder), partial(load, peer=FAKE))
    try:
        assert run.base.computed_by == "transformers 0"
        assert failing_of(run) == {}
        broken = dataclasses.replace(run, base=run.base.adapted(run.trace.first, kind=kind, scale=1.0))
        assert "log-probs" in failing_of(broken)
    finally:
        run.base.close()


def adapters_everywhere(model: Any) -> dict[str, Any]:
    """Random LoRA adapters of rank 2 on every layer of a model."""
    rng, arrays = np.random.default_rng(0), {}
    for path in model.linear_layers:
        *stack, outputs, inputs = model.modules.weights[f"{path}.weight"].shape
        if stack:
            shapes = (*stack, 2, inputs), (*stack, outputs, 2)
        else:
            shapes = ((outputs, 2), (2, inputs)) if path.endswith("embed_tokens") else ((inputs, 2), (2, outputs))
        arrays |= {
            f"{path}.{leaf}": 0.2 * rng.standard_normal(shape) for leaf, shape in zip(LEAVES, shapes, strict=True)
        }
    return arrays


def agree(family: str, peer: Peer) -> None:
    """Compare the logits of both forward passes, of a model by itself and with adapters, and again by itself."""
    folder, ids = (
        tiny.build({"family": family, "seed": 11, "vocab": 272}),
        np.random.default_rng(0).integers(3, 270, (3, 12)),
    )
    ours, theirs = in_numpy(folder), load(folder, peer)
    arrays = adapters_everywhere(ours)
    try:
        adapted = [model.adapted(arrays, kind="lora", scale=0.5) for model in (theirs, ours)]
        pairs = ((theirs, ours), adapted, (theirs, ours))
        want = [right.logits(ids) for _, right in pairs]
        got = [left.head(left.hidden(ids)) for left, _ in pairs]
    finally:
        theirs.close()
    assert np.abs(want[0] - want[1]).max() > 0.01 * np.abs(want[0]).max()
    assert max(np.abs(x - y).max() / np.abs(y).max() for x, y in zip(got, want, strict=True)) < 1e-13


@pytest.mark.parametrize("family", ["qwen3", "qwen3_moe", "cohere"])
def test_adapters_are_merged(family: str) -> None:
    """On linear layers, stacks of experts, a table of embeddings and a tied head."""
    agree(family, FAKE)


def test_what_transformers_lacks_is_refused() -> None:
    """The family is named, and the program's reason."""
    folder = tiny.build({"family": "lfm2", "seed": 11, "vocab": 272})
    with pytest.raises(UnsupportedError, match="does not compute model_type 'lfm2': its files lack a weight"):
        load(folder, FAKE)
    with pytest.raises(ConfigurationError, match="does not start"):
        load(folder, Peer(Path("/nowhere/python")))


def test_the_command_names_what_makes_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an environment a family that NumPy lacks is refused, with the command that makes one."""
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = traced(tmp_path / "run", SMALL, {"family": "olmo2", "seed": 11, "vocab": 272})
    monkeypatch.setenv(environments.CACHE_VARIABLE, str(tmp_path / "none"))
    result = CliRunner().invoke(app, ["trainer", "replay", str(folder)])
    assert isinstance(result.exception, ConfigurationError)
    assert "model_type is 'olmo2'" in str(result.exception)
    assert "`gates peers sync transformers`" in str(result.exception)


@pytest.mark.long
@pytest.mark.parametrize(
    ("family", "kind"), [*((family, "lora") for family in (*FAMILIES, *EXPERTS)), ("olmo2", "dora"), ("phi3", "dora")]
)
def test_families_that_numpy_lacks_hold(tmp_path: Path, family: str, kind: str) -> None:
    """The trainer's run on a family of mlx-lm is what transformers makes of it in float64."""
    made = environments.environment("transformers")
    if not made.ready:
        pytest.skip("`gates peers sync transformers` makes the environment")
    changes = {
        "adapter": {"kind": kind},
        "algorithm": {"name": "grpo", "settings": {"beta": 0.2, "entropy_bonus": 0.01}},
        "loop": {"iterations": 2, "micro_batch_rows": 5, "steps": 2},
    }
    folder = traced(tmp_path / "run", changes, {"family": family, "seed": 11, "vocab": 272})
    run = load_run(folder, model_of(folder), partial(load, peer=Peer(made.python)))
    try:
        assert run.base.computed_by.startswith("transformers ")
        assert failing_of(run) == {}
    finally:
        run.base.close()


@pytest.mark.long
def test_an_activation_that_mlx_lm_takes_for_another_is_seen(tmp_path: Path) -> None:
    """mlx-lm 0.32 computes GELU exactly in starcoder2, whose default is the tanh approximation: 7e-4 nats on this model."""
    made = environments.environment("transformers")
    if not made.ready:
        pytest.skip("`gates peers sync transformers` makes the environment")
    folder = traced(tmp_path / "run", SMALL, {"family": "starcoder2", "seed": 11, "vocab": 272})
    model = shutil.copytree(model_of(folder), tmp_path / "exact")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "hidden_act": "gelu"}))
    stages = []
    for path in (model_of(folder), model):
        run = load_run(folder, path, partial(load, peer=Peer(made.python)))
        stages.append(failing_of(run))
        run.base.close()
    assert set(stages[0]) == {"rollouts", "log-probs", "gradient"}
    assert stages[1] == {}


@pytest.mark.long
@pytest.mark.parametrize("family", ["qwen3", "llama", "qwen2", "cohere", "gemma2", "olmoe", "qwen3_moe"])
def test_both_forward_passes_agree(family: str) -> None:
    """NumPy and transformers, which share nothing, give the same logits to the rounding of float64."""
    made = environments.environment("transformers")
    if not made.ready:
        pytest.skip("`gates peers sync transformers` makes the environment")
    agree(family, Peer(made.python))
