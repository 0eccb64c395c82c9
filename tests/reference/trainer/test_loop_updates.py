"""The updates of a run: the finite guard, what the optimizer's keys do, and the passes before them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import mlx.core as mx
import numpy as np
import pytest
import runs
from mlx.utils import tree_flatten
from plain_grpo import PlainGrpo

from gates_reference.trainer import logprobs
from gates_reference.trainer.algorithms import entropy, protocol, registry
from gates_reference.trainer.config import algorithm as algorithms
from gates_reference.trainer.config import sections
from gates_reference.trainer.engine import guard, optimizer
from gates_reference.trainer.engine import step as engine
from gates_reference.trainer.loop import run as loop_run
from gates_reference.trainer.metrics import numbers


class TestGuard:
    """A number that is not finite stops the run or skips the update, and the sample is on file."""

    class Spoilt(PlainGrpo):
        """The loss of the third row is NaN."""

        def loss(self, part: protocol.MicroBatch, whole: protocol.StepTotals) -> protocol.Loss:
            right = super().loss(part, whole)
            marked = mx.array((part.advantages == self.bad).any())
            value = mx.where(marked, mx.array(float("nan")), right.value)
            return protocol.Loss(value, right.policy, right.kl, right.entropy)

        def advantages(self, rewards: protocol.Rewards, *, old_kl: np.ndarray | None = None) -> np.ndarray:
            values = super().advantages(rewards)
            values[2] = 12345.0
            self.bad = mx.array(12345.0)
            return values

    @pytest.mark.parametrize("rows", [0, 2])
    def test_stop_writes_the_offending_sample(self, tmp_path: Path, rows: int) -> None:
        """The run ends with an error that names the file, which holds the third row and no other."""
        loop_settings = {"steps": 2, "micro_batch_rows": rows, "evaluate_every_steps": 0}
        config = runs.config(tmp_path / "run", loop=loop_settings)
        with pytest.raises(guard.NonFiniteError, match=r"nonfinite-step-1\.json"):
            runs.train(config, self.Spoilt())
        saved = json.loads((tmp_path / "run" / "nonfinite-step-1.json").read_text())
        assert saved["offending_rows"] == [2]
        assert set(saved["samples"][0]) >= {"prompt", "completion", "tokens", "rewards", "sampler_logprobs"}

    class Steep(PlainGrpo):
        """The loss is finite and its gradient is not: a square root at 0."""

        def loss(self, part: protocol.MicroBatch, whole: protocol.StepTotals) -> protocol.Loss:
            right = super().loss(part, whole)
            value = right.value + mx.sqrt(0 * (part.policy**2).sum())
            return protocol.Loss(value, right.policy, right.kl, right.entropy)

    def test_nonfinite_gradient_of_a_finite_loss_is_skipped(self, tmp_path: Path) -> None:
        """A finite loss with a gradient that is not: no bit of the adapters moves, and every sample is on file."""
        config = runs.config(tmp_path / "run", loop={"steps": 1, "nonfinite": "skip", "evaluate_every_steps": 0})
        summary = runs.train(config, self.Steep())
        used = json.loads((tmp_path / "run" / "used.json").read_text())
        assert summary.adapter_digest == used["adapter"]["start_digest"]
        saved = json.loads((tmp_path / "run" / "nonfinite-step-1.json").read_text())
        assert saved["offending_rows"] == list(range(8))

    def test_skip_changes_no_adapter(self, tmp_path: Path) -> None:
        """With nonfinite = 'skip' the run goes on, and no bit of the adapters has moved."""
        config = runs.config(tmp_path / "run", loop={"steps": 2, "nonfinite": "skip", "evaluate_every_steps": 0})
        summary = runs.train(config, self.Spoilt())
        assert [line["updates_skipped"] for line in runs.lines(tmp_path / "run")] == [1, 1]
        used = json.loads((tmp_path / "run" / "used.json").read_text())
        assert summary.adapter_digest == used["adapter"]["start_digest"]


class TestOptimizer:
    """Learning rates and clipping."""

    @pytest.mark.parametrize(
        ("schedule", "expected"),
        [
            pytest.param("constant", [0.5, 1.0, 1.0, 1.0, 1.0, 1.0], id="constant"),
            pytest.param("linear", [0.5, 1.0, 1.0, 0.8, 0.6, 0.4], id="linear"),
            pytest.param("cosine", [0.5, 1.0, 1.0, 0.8828, 0.6, 0.3172], id="cosine"),
        ],
    )
    def test_learning_rate_follows_the_schedule(self, schedule: str, expected: list[float]) -> None:
        """Two steps of warm-up, then the schedule over the four that are left, down towards a fifth; by hand.

        Linear: 0.2 + 0.8 (1 - k/4). Cosine: 0.2 + 0.8 (1 + cos(pi k/4)) / 2.
        """
        settings = sections.Optimizer.model_validate(
            {"learning_rate": 1.0, "schedule": schedule, "warmup_steps": 2, "final_share": 0.2}
        )
        found = [optimizer.learning_rate(settings, step, 6) for step in range(6)]
        assert found == pytest.approx(expected, abs=1e-4)

    def test_clipping_uses_the_global_norm(self) -> None:
        """Two arrays of norm 3 and 4 have norm 5: at the limit 1 each shrinks by 5, at 6 none changes a bit."""
        gradient = {"a": mx.array([3.0, 0.0]), "b": [mx.array([0.0, 4.0])]}
        assert engine.global_norm(gradient) == 5.0
        clipped = dict(tree_flatten(engine.clipped(gradient, 5.0, 1.0)))
        assert clipped["a"].tolist() == pytest.approx([0.6, 0.0])
        assert clipped["b.0"].tolist() == pytest.approx([0.0, 0.8])
        assert engine.clipped(gradient, 5.0, 6.0) is gradient
        assert engine.clipped(gradient, 5.0, "off") is gradient

    def test_run_without_gradient_limit_can_be_resumed(self, tmp_path: Path) -> None:
        """Checkpoints hold the configuration; updates are those of a limit that no gradient comes near."""
        free, wide = (
            runs.config(
                tmp_path / f"run{n}",
                optimizer={"name": "sgd", "learning_rate": 1e-2, "max_gradient_norm": limit},
                loop={"steps": 2, "evaluate_every_steps": 0},
            )
            for n, limit in enumerate(("off", 1e9))
        )
        assert runs.train(free).adapter_digest == runs.train(wide).adapter_digest
        assert runs.train(free, resume=True).steps == 2

    @pytest.mark.parametrize("name", ["adam", "adamw", "sgd", "muon"])
    def test_optimizer_changes_the_adapters(self, tmp_path: Path, name: str) -> None:
        config = runs.config(tmp_path / "run", optimizer={"name": name}, loop={"steps": 1, "evaluate_every_steps": 0})
        summary = runs.train(config)
        used = json.loads((tmp_path / "run" / "used.json").read_text())
        assert summary.adapter_digest != used["adapter"]["start_digest"]

    @pytest.mark.parametrize(
        ("name", "key", "value"),
        [
            ("muon", "momentum", 0.9),
            ("muon", "weight_decay", 0.5),
            ("sgd", "weight_decay", 0.5),
            ("adamw", "betas", [0.5, 0.9]),
            ("adamw", "epsilon", 1e-2),
        ],
    )
    def test_optimizer_key_changes_the_run(self, tmp_path: Path, name: str, key: str, value: object) -> None:
        """Two steps with and without it end elsewhere; with which optimizers it is refused stands in test_config.py."""
        ends = [
            runs.train(
                runs.config(
                    tmp_path / f"run{n}", optimizer={"name": name, **more}, loop={"steps": 2, "evaluate_every_steps": 0}
                )
            ).adapter_digest
            for n, more in enumerate(({}, {key: value}))
        ]
        assert ends[0] != ends[1]


class TestMaskTruncatedCompletions:
    """`mask_truncated_completions`: what has no end token is in no loss and in no statistic of it."""

    MASKED: ClassVar = {"algorithm": {"settings": {"beta": 0.1, "mask_truncated_completions": True}}}
    ONE: ClassVar = {"loop": {"steps": 1, "evaluate_every_steps": 0}}

    def test_only_ended_completions_are_scored(self, tmp_path: Path) -> None:
        """No token of a truncated completion has a log-prob; the KL is the mean over the tokens of the others."""
        sampled = {"rollout": {"max_tokens": 2, "samples_per_prompt": 8, "stop_ids": list(range(3, 160))}}
        config = runs.config(tmp_path / "run", **self.MASKED, **sampled)
        run = loop_run.Run(config, algorithms.create(config), resume=False)
        generation = run.engine.generate(run._upcoming(), 0)
        learned = run.engine.learn(generation, 1, 1e-3)
        run.close()
        assert 0 < generation.ended.sum() < len(generation.ended)
        assert learned.lengths is not None
        assert learned.policy is not None
        assert learned.reference is not None
        assert learned.lengths.tolist() == np.where(generation.ended, generation.lengths, 0).tolist()
        assert not learned.policy[~generation.ended].any()
        live = np.arange(learned.policy.shape[1]) < learned.lengths[:, None]
        d = (learned.reference.astype(np.float64) - learned.policy)[live]
        found = numbers.of_step(generation, learned, ["low"], 1e-3, registry.create("grpo", {}))
        assert found["kl"] == pytest.approx(float((np.exp(d) - d - 1).mean()), rel=1e-9)
        assert found["truncated_share"] == np.mean(~generation.ended)

    @pytest.mark.parametrize("name", ["grpo", "dapo", "bnpo-trl", "gspo"])
    def test_step_of_truncated_completions_alone_changes_nothing(self, tmp_path: Path, name: str) -> None:
        """Loss and gradient are 0, not NaN, and no bit of the adapters moves."""
        masked = {"algorithm": {"name": name, **self.MASKED["algorithm"]}}
        config = runs.config(tmp_path / "run", rollout={"max_tokens": 1}, **masked, **self.ONE)
        summary = runs.train(config)
        (line,) = runs.lines(tmp_path / "run")
        assert line["truncated_share"] == 1.0
        assert (line["loss"], line["gradient_norm"]) == (0.0, 0.0)
        used = json.loads((tmp_path / "run" / "used.json").read_text())
        assert summary.adapter_digest == used["adapter"]["start_digest"]


def test_entropy_threshold_has_the_dropout_of_its_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The entropies that decide which tokens train are those of the update, bit for bit, though they come from a pass of their own."""
    seen: list[np.ndarray] = []
    threshold = entropy.threshold

    def spy(entropies: Any, *rest: Any) -> Any:
        seen.append(np.asarray(entropies))
        return threshold(entropies, *rest)

    monkeypatch.setattr(entropy, "threshold", spy)
    config = runs.config(
        tmp_path / "run",
        adapter={"dropout": 0.5, "b_std": 0.2},
        algorithm={"name": "dapo", "settings": {"entropy_share": 0.4, "dynamic_sampling": "off"}},
        loop={"steps": 1, "micro_batch_rows": 3, "evaluate_every_steps": 0},
    )
    run = loop_run.Run(config, algorithms.create(config), resume=False)
    learned = run.engine.learn(run.engine.generate(run._upcoming(), 0), 1, 1e-3)
    run.close()
    assert learned.entropy is not None
    assert np.array_equal(seen[0], learned.entropy)


@pytest.mark.parametrize(
    ("name", "settings", "passes"),
    [
        ("grpo", {"beta": 0.1}, (0, 1)),
        ("grpo", {}, (0, 0)),
        ("grpo", {"beta": 0.1, "kl_in_reward": True, "kl_estimator": "k1"}, (1, 1)),
        ("rloo", {"beta": 0.1}, (1, 1)),
        ("online_dpo", {}, (0, 1)),
        ("best_of_n", {}, (0, 0)),
    ],
    ids=["kl", "nothing", "in-reward", "rloo", "pairs", "best"],
)
def test_unneeded_passes_are_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, settings: dict[str, Any], passes: tuple[int, int]
) -> None:
    """One update of a rollout: the old log-probs are the policy's own, and only a KL in the reward is told them before."""
    made: list[str] = []
    for which in ("of_policy", "of_reference"):
        monkeypatch.setattr(logprobs, which, _counted(which, getattr(logprobs, which), made))
    runs.train(
        runs.config(
            tmp_path / "run",
            rollout={"samples_per_prompt": 2},
            algorithm={"name": name, "settings": settings},
            loop={"steps": 1, "evaluate_every_steps": 0},
        )
    )
    assert (made.count("of_policy"), made.count("of_reference")) == passes


def _counted(name: str, function: Callable[..., Any], made: list[str]) -> Callable[..., Any]:
    def counting(*given: Any, **options: Any) -> Any:
        made.append(name)
        return function(*given, **options)

    return counting
