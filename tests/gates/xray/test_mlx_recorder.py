"""The MLX recorder of `gates xray`: scripts run with the recorder, in forks of one process but for the first and the trainer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripted import run_mlx

from gates.model import Array
from gates.xray import launch, recording, step
from gates.xray.recording import Recording
from gates_reference import tiny

SCRIPT = Path(__file__).parent / "scripts" / "mlx_loops.py"
CLIP = 0.2
SECONDS = 10.0  # most that an update of about 100 tokens may take
TINY = {"bits": 32}
EXPERTS = {"family": "qwen3_moe"}
QUANTISED = {"bits": 4, "hidden": 64}
CONFIGURATION = """
model.tiny = {gain = 2.0}
adapter.rank = 4
data = {kind = "sums", style = "plain", count = 8, max_prompt_tokens = 32}
rollout = {samples_per_prompt = 4, max_tokens = 6}
algorithm = {name = "grpo", settings = {beta = 0.05}}
optimizer = {name = "adam", learning_rate = 1e-3}
loop = {steps = 2, prompts_per_step = 3, micro_batch_rows = 5}
rewards.functions = [{name = "regex", pattern = "[a-m]"}]
"""


def run(folder: Path, command: list[str], **asked: Any) -> str:
    """Run a program with the recorder, and return what it printed."""
    options = {"folder": str(folder), "updates": 2, "columns": 4000, "seconds": 300.0, "parameters": [], "stop": False}
    environment = {
        **os.environ,
        launch.OPTIONS: json.dumps(options | asked),
        "PYTHONPATH": str(launch.RECORDER),
    }
    done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def record(
    folder: Path, variant: str, spec: dict[str, Any] | None = None, **asked: Any
) -> tuple[Recording, dict[str, Any]]:
    """Record a variant of the script, and return the recording and what the script wrote."""
    out = folder / "facts.json"
    run_mlx(folder / "xray", [str(SCRIPT), str(tiny.build(spec or TINY)), variant, str(out)], **asked)
    return recording.load(folder / "xray"), json.loads(out.read_text(encoding="utf-8"))


def coefficients(facts: dict[str, Any], log_probs: Array) -> Array:
    """Return the derivative (R, T-1) of GRPO's loss with respect to the log-probs, from the papers' formula in float64."""
    mask, old = np.array(facts["mask"]), np.array(facts["old"])
    advantages = np.broadcast_to(np.array(facts["advantages"])[:, None], mask.shape)
    ratio = np.exp(log_probs - old)
    inside = np.where(advantages > 0, ratio < 1 + CLIP, ratio > 1 - CLIP)
    return np.asarray(-advantages * ratio * inside * mask / mask.sum(-1, keepdims=True) / len(mask))


def by_column(seen: step.Step, values: Array) -> Array:
    """Add up values (R, T-1) of tokens that share a column."""
    result = np.zeros(len(seen.update.document.keys))
    for row, line in zip(seen.update.document.rows, values, strict=True):
        for column, value in zip(row.columns[1:], line, strict=True):
            if column >= 0:
                result[column] += value
    return result


def at_rows(seen: step.Step, values: Array) -> Array:
    """Give the values of columns to the tokens (R, T-1), 0 where a token has none."""
    columns = np.array([row.columns[1:] for row in seen.update.document.rows])
    return np.asarray(np.where(columns >= 0, np.asarray(values, np.float64)[columns], 0.0))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recording, dict[str, Any]]:
    """A GRPO loop in plain MLX, recorded once, in a process of its own whose path has the recorder."""
    folder = tmp_path_factory.mktemp("grpo")
    out = folder / "facts.json"
    run(folder / "xray", [str(SCRIPT), str(tiny.build(TINY)), "grpo", str(out)])
    return recording.load(folder / "xray"), json.loads(out.read_text(encoding="utf-8"))


class TestGrpo:
    """A GRPO loop in plain MLX, recorded once."""

    def test_explains_the_gradient(self, recorded: tuple[Recording, dict[str, Any]]) -> None:
        """Two updates are recorded, and the log-probs of their tokens explain both gradients."""
        seen = [step.step(update) for update in recorded[0].updates]
        assert [one.update.document.update for one in seen] == [1, 2]
        assert [one.update.document.kinds[0][0] for one in seen] == ["log_prob", "log_prob"]
        assert all(one.fit.unexplained <= 1e-5 for one in seen)

    def test_coefficients_are_the_formula_s(self, recorded: tuple[Recording, dict[str, Any]]) -> None:
        """Coefficients equal the clipped surrogate's derivative, with ratios of 1 and, at the second update, with others."""
        files, facts = recorded
        for update in files.updates:
            seen = step.step(update)
            expected = by_column(seen, coefficients(facts, at_rows(seen, update.log_probs)))
            np.testing.assert_allclose(seen.fit.coefficients, expected, rtol=0, atol=1e-5)

    def test_rows_tell_prompts_and_padding(self, recorded: tuple[Recording, dict[str, Any]]) -> None:
        """The sampler's prompts are known, and the run of zeros behind a row is no part of it."""
        document = recorded[0].updates[0].document
        assert [row.prompt for row in document.rows] == [4] * 4 + [3] * 4
        assert [sum(row.attended) for row in document.rows] == [9, 12, 10, 13, 8, 11, 9, 12]

    def test_old_policy_is_a_scorer(self, recorded: tuple[Recording, dict[str, Any]]) -> None:
        """The pass for the old log-probs is recorded as the trained model's, before the first update."""
        for update in recorded[0].updates:
            scorer, scored = update.scored[0]
            assert (scorer.by, scorer.update) == ("trained model", 0)
            assert np.abs(scored - update.start_log_probs).max() < 1e-5

    def test_sampler_s_request_is_an_event(self, recorded: tuple[Recording, dict[str, Any]]) -> None:
        """What mlx-lm's sampler was asked is written in the words of a generation config."""
        events = recorded[0].of("generate")
        assert len(events) == 8
        assert events[0].get("request")["temperature"] == 1.0
        assert events[1].get("request")["max_new_tokens"] == 8

    def test_sampled_rows_are_events(self, recorded: tuple[Recording, dict[str, Any]]) -> None:
        """The tokens that the sampler yielded are written behind their prompts: those of the rows that train."""
        drawn = [[*event.get("prompt"), *event.get("completion")] for event in recorded[0].of("sampled")]
        rows = recorded[0].updates[0].document.rows
        assert [list(row.ids[: sum(row.attended)]) for row in rows] == drawn

    def test_optimizer_s_arithmetic_can_be_checked(self, recorded: tuple[Recording, dict[str, Any]]) -> None:
        """AdamW without bias correction, computed from the sample, gives the sampled weights after the update."""
        update = recorded[0].updates[1]
        group = update.document.optimizer.groups[0]
        kept = {name: np.asarray(values, np.float64) for name, values in update.sample.items()}
        first, second = group["betas"]
        mean = first * kept["state.exp_avg"] + (1 - first) * kept["gradient"]
        square = second * kept["state.exp_avg_sq"] + (1 - second) * kept["gradient"] ** 2
        decayed = kept["before"] * (1 - group["lr"] * group["weight_decay"])
        expected = decayed - group["lr"] * mean / (np.sqrt(square) + group["eps"])
        np.testing.assert_allclose(kept["after"], expected, rtol=2e-6, atol=2e-7)

    def test_takes_seconds(self, recorded: tuple[Recording, dict[str, Any]]) -> None:
        """An update of about 100 tokens takes less than ten seconds."""
        assert all(event.get("seconds") < SECONDS for event in recorded[0].of("update"))

    def test_script_computes_what_it_did(self, recorded: tuple[Recording, dict[str, Any]], tmp_path: Path) -> None:
        """The losses of the script, three updates of its own draws, are the same without the recorder, to the bit."""
        out = tmp_path / "facts.json"
        run_mlx(tmp_path / "alone", [str(SCRIPT), str(tiny.build(TINY)), "grpo", str(out)], recorder=False)
        assert json.loads(out.read_text(encoding="utf-8")) == recorded[1]


@pytest.mark.slow
class TestVariants:
    """Loops that are written in other ways."""

    @pytest.mark.parametrize(
        "variant",
        [
            "compiled",
            "accumulation",
            pytest.param("checkpoints", marks=pytest.mark.long),
            pytest.param("clip", marks=pytest.mark.long),
            pytest.param("head apart", marks=pytest.mark.long),
            "inputs without the last token",
            "own loop",
            pytest.param("several optimizers", marks=pytest.mark.long),
            pytest.param("value head", marks=pytest.mark.long),
            pytest.param("weights by hand", marks=pytest.mark.long),
        ],
    )
    def test_is_explained(self, variant: str, tmp_path: Path) -> None:
        """Log-probs explain the gradient, and what no log-prob reaches is named."""
        files, _ = record(tmp_path, variant)
        assert len(files.updates) == 2
        for update in files.updates:
            assert [kind for kind, _ in update.document.kinds] == ["log_prob"]
            assert step.step(update).fit.unexplained <= 1e-5
            assert update.document.outside == (("value.bias", "value.weight") if variant == "value head" else ())

    @pytest.mark.parametrize(
        ("variant", "kind", "number"),
        [("padding trains", "padding", 1), ("entropy", "entropy", 1), ("divergence", "kl", 2)],
    )
    def test_needs_another_kind(self, variant: str, kind: str, number: int, tmp_path: Path) -> None:
        """Columns of one more kind explain what log-probs leave."""
        update = record(tmp_path, variant)[0].updates[number - 1]
        assert [name for name, _ in update.document.kinds] == ["log_prob", kind]
        assert step.step(update).fit.unexplained <= 1e-5

    @pytest.mark.parametrize(
        ("variant", "columns"), [("router", 1), pytest.param("router by layer", 2, marks=pytest.mark.long)]
    )
    def test_the_loss_of_routers_has_its_coefficient(self, variant: str, columns: int, tmp_path: Path) -> None:
        """A load-balancing loss that the script adds is explained by the router's columns, with the script's own factor."""
        for update in record(tmp_path, variant, EXPERTS)[0].updates:
            fit = step.step(update).fit
            assert update.document.kinds[1:] == (("router", columns),)
            assert fit.unexplained <= 1e-5
            np.testing.assert_allclose(fit.least[-columns:], 0.3, rtol=1e-4)

    def test_quantised_base_with_adapters(self, tmp_path: Path) -> None:
        """Columns of adapters do without batched backward passes, which MLX lacks for quantised products."""
        files, _ = record(tmp_path, "adapters", QUANTISED)
        for update in files.updates:
            assert step.step(update).fit.unexplained <= 1e-5
            assert all(event.get("seconds") < SECONDS for event in files.of("update"))

    def test_temperature_of_the_sampler(self, tmp_path: Path) -> None:
        """Logits that the loss divides by the sampler's temperature are tried after plain ones."""
        document = record(tmp_path, "temperature")[0].updates[0].document
        assert document.temperature == 0.7
        assert document.temperatures["1.0"] > 1e-3 > document.temperatures["0.7"]

    def test_clip_is_recorded(self, tmp_path: Path) -> None:
        """The gradient's norm before and the limit of clip_grad_norm are in the document."""
        document = record(tmp_path, "clip")[0].updates[0].document
        assert document.clip is not None
        assert document.gradient_norm == pytest.approx(document.clip.factor * document.clip.norm, rel=1e-4)

    @pytest.mark.parametrize("variant", ["own loop", "own cache"])
    def test_own_loop_tells_its_prompts(self, variant: str, tmp_path: Path) -> None:
        """A loop of forward passes that samples without mlx-lm tells where completions begin, and is no scorer."""
        document = record(tmp_path, variant)[0].updates[0].document
        assert [row.prompt for row in document.rows] == [4] * 3
        assert [scorer.by for scorer in document.scorers] == ["trained model"]

    def test_half_precision_measures_its_noise(self, tmp_path: Path) -> None:
        """What bfloat16 leaves is of the size that the recorder measured for one backward pass."""
        for update in record(tmp_path, "grpo", {"dtype": "bfloat16"})[0].updates:
            assert update.document.dtype == "bfloat16"
            assert step.step(update).fit.unexplained < 2 * update.document.noise < 0.2


@pytest.mark.slow
class TestLimits:
    """What is not recorded says so, and the script goes on."""

    def test_too_many_columns(self, tmp_path: Path) -> None:
        """An update with more columns than allowed is an event with estimates, and the script makes its updates."""
        files = tmp_path / "xray"
        out = tmp_path / "facts.json"
        said = run_mlx(files, [str(SCRIPT), str(tiny.build(TINY)), "grpo", str(out)], columns=10)
        assert "the update is too large" in said
        lines = next(files.glob("*/events.jsonl")).read_text(encoding="utf-8").splitlines()
        events = {event["event"]: event for event in map(json.loads, lines)}
        assert events["too large"]["columns"] > 10
        assert events["end"]["updates"] == 3
        assert len(json.loads(out.read_text(encoding="utf-8"))["losses"]) == 3

    def test_stop_ends_the_script(self, tmp_path: Path) -> None:
        """With `stop` the script ends after the last recorded update."""
        out = tmp_path / "facts.json"
        said = run_mlx(tmp_path / "xray", [str(SCRIPT), str(tiny.build(TINY)), "grpo", str(out)], updates=1, stop=True)
        assert "the script is stopped" in said
        assert not out.exists()

    def test_parameters_restrict_the_fit(self, tmp_path: Path) -> None:
        """Patterns of names choose what is fitted."""
        files, _ = record(tmp_path, "grpo", parameters=["*layers.1.mlp*"])
        document = files.updates[0].document
        assert document.trained.tensors == 3
        assert step.step(files.updates[0]).fit.unexplained <= 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_own_trainer(temperature: float, tmp_path: Path) -> None:
    """`gates trainer train`, unchanged: both steps are explained, prompts do not train, the reference has no adapters."""
    configuration = tmp_path / "run.toml"
    configuration.write_text(CONFIGURATION, encoding="utf-8")
    settings = [f"output.folder={tmp_path}/run", f"rollout.temperature={temperature}"]
    command = ["-m", "gates", "trainer", "train", str(configuration)]
    run(tmp_path / "xray", [*command, *(word for setting in settings for word in ("--set", setting))])
    files = recording.load(tmp_path / "xray")
    assert [update.document.temperature for update in files.updates] == [temperature] * 2
    for update in files.updates:
        seen = step.step(update)
        assert seen.fit.unexplained <= 1e-5
        assert {scorer.by for scorer in update.document.scorers} == {"trained model with adapters off"}
        for index, row in enumerate(seen.rows):
            assert row.begins == "sampler"
            assert "trains" not in {seen.state(index, int(position)) for position in row.prompt}


@pytest.mark.long
def test_scores_at_the_tokens_themselves(tmp_path: Path) -> None:
    """A loss without the shift is explained by columns of the tokens' own positions."""
    files, _ = record(tmp_path, "unshifted")
    seen = [step.step(update) for update in files.updates]
    assert [one.update.document.shift for one in seen] == [0, 0]
    assert all(one.fit.unexplained <= 1e-5 for one in seen)
    assert [left > 0.1 for _, left in seen[0].update.document.tried[:1]] == [True]
