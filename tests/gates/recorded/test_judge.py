"""What `gates judge` says of right steps and of wrong ones."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from steps import EXAMPLE, verdicts, write

from gates.recorded import loss
from gates.recorded.file import open_step
from gates.recorded.step import Step
from reference.algorithms import ALGORITHMS
from reference.oracle import losses
from reference.oracle import ratio as oracle

STEP = EXAMPLE.recorded("none")
NO_ADVANTAGES = ("scale", "ddof", "eps", "eps_mode", "baseline")
LOSS = ("algorithm", "epsilon_low", "epsilon_high", "beta", "kl_estimator", "kl_ratio")


def defined(settings: dict[str, Any], **tensors: Any) -> dict[str, Any]:
    """The example's step with loss and gradient of the definition, rounded to float32."""
    arrays = {**STEP, **tensors}
    names = ("policy", "old", "reference", "advantages", "mask", "weights")
    found = losses.policy_loss(**{name: arrays.get(name) for name in names}, **settings)
    rounded = {"loss": np.float32(found.loss), "gradient": found.gradient.astype(np.float32)}
    return {**arrays, **{name: np.asarray(x) for name, x in rounded.items()}}


def keywords(algorithm: str) -> dict[str, Any]:
    """The constants of an algorithm, by the keywords of the definition."""
    empty = {"epsilon_low": None, "epsilon_high": None, "delta": None, "beta": 0.0, "kl_ratio": None}
    constants = dict(ALGORITHMS[algorithm].constants)
    if "micro_batches" in constants:
        constants["micro_batches"] = [4, 8, 4]
    return {**empty, "algorithm": algorithm, **constants}


def words(settings: dict[str, Any]) -> dict[str, str]:
    """The same as settings of a file."""
    plain = {name: value for name, value in settings.items() if value is not None}
    return {name: ",".join(map(str, x)) if isinstance(x, list) else str(x) for name, x in plain.items()}


class TestExample:
    """The example's right step and its mistakes."""

    def test_a_right_step(self, tmp_path: Path) -> None:
        """Everything is correct; the loss says what it would have shown."""
        found = verdicts(write(tmp_path / "step.safetensors"))
        assert {name: one.status for name, one in found.items()} == {
            "group_advantages": "correct",
            "importance_weights": "unsupported",
            "policy_loss": "correct",
            "metric.kl": "correct",
            "sampler drift": "finding",
        }
        seen, known = map(int, re.findall(r"(\d+) of (\d+) other ways", found["policy_loss"].strength)[0])
        assert 0.9 * known < seen < known

    @pytest.mark.parametrize(
        ("mistake", "quantity", "computes"),
        [
            ("mask", "policy_loss", "completion mask shifted by one position to the right"),
            ("clip", "policy_loss", "r·A without a clip"),
            ("ddof", "group_advantages", "group z-score with ddof 0, ε 0.0001 add (mlx-lm-lora) (asked: group z-score with"),
            ("kl", "metric.kl", "k3, averaged over the padded width"),
        ],
    )  # fmt: skip
    def test_a_mistake_has_its_name(self, tmp_path: Path, mistake: str, quantity: str, computes: str) -> None:
        """One quantity is wrong, the others stay correct."""
        found = verdicts(write(tmp_path / "step.safetensors", mistake=mistake))
        assert [name for name, one in found.items() if one.status == "wrong"] == [quantity]
        assert found[quantity].computes.startswith(computes)

    def test_a_sampler_of_another_temperature(self, tmp_path: Path) -> None:
        """A finding with its numbers, and no verdict."""
        right, other = (
            verdicts(write(tmp_path / "step.safetensors", mistake=mistake))["sampler drift"]
            for mistake in ("none", "sampler")
        )
        assert (right.status, other.status) == ("finding", "finding")
        assert "as the same model in float32 on another path" in right.reason
        assert "another distribution at some tokens" in other.reason
        assert other.numbers["max_abs"] > 0.5


class TestLoss:
    """Loss, row losses and gradient."""

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_pieces_add_up_to_the_step(self, tmp_path: Path, algorithm: str) -> None:
        """Every algorithm, in one piece and in pieces of two rows or so, is the definition of the whole step."""
        settings = keywords(algorithm)
        tensors = defined(settings)
        path = write(
            tmp_path / "step.safetensors",
            tensors,
            words(settings),
            without=("row_losses", *set(LOSS) - set(words(settings))),
        )
        step = Step(open_step(path))
        for at_once in (1 << 16, 48):
            found = loss.compare(step, step.file.settings, at_once=at_once)
            assert found.gradient is not None
            assert found.holds, (found.loss.words, found.gradient.words)
        tensors["gradient"] = tensors["gradient"] * np.float32(1.001)
        step = Step(open_step(write(path, tensors, words(settings), without=tuple(set(LOSS) - set(words(settings))))))
        assert not loss.compare(step, step.file.settings, at_once=48).holds

    @pytest.mark.parametrize("denominator", ["global", "group", "trl"])
    def test_denominators(self, tmp_path: Path, denominator: str) -> None:
        """Each of dapo's, in pieces too."""
        settings = {**keywords("dapo"), "dapo_denominator": denominator}
        settings |= {"group_size": 4} if denominator == "group" else {}
        settings |= {"tokens_in_step": 500.0} if denominator == "trl" else {}
        path = write(
            tmp_path / "step.safetensors", defined(settings), words(settings), without=("kl_estimator", "kl_ratio")
        )
        step = Step(open_step(path))
        for at_once in (1 << 16, 48):
            assert loss.compare(step, step.file.settings, at_once=at_once).holds

    def test_row_losses(self, tmp_path: Path) -> None:
        """They add up to the loss, and one that is off is found."""
        settings = keywords("grpo")
        tensors = defined(settings)
        rows = [
            losses.policy_loss(
                **{name: tensors[name][row : row + 1] for name in ("policy", "old", "advantages", "mask")},
                reference=None,
                **settings,
            ).loss / 16
            for row in range(16)
        ]  # fmt: skip
        tensors["row_losses"] = np.asarray(rows, np.float32)
        left = ("gradient", "kl_estimator", "kl_ratio")
        path = write(tmp_path / "step.safetensors", tensors, words(settings), without=left)
        assert verdicts(path)["policy_loss"].status == "correct"
        tensors["row_losses"][5] *= np.float32(1.01)
        found = verdicts(write(path, tensors, words(settings), without=left))["policy_loss"]
        assert found.status == "wrong"
        assert "row loss error" in found.reason
        assert "at [5]" in found.reason

    def test_a_long_loss_alone_decides_nothing(self, tmp_path: Path) -> None:
        """More than 1,000 tokens without gradient and row losses: never correct."""
        tensors = {name: np.tile(x, (8, 1)) if x.ndim == 2 else np.tile(x, 8) for name, x in STEP.items() if x.ndim}
        settings = keywords("grpo")
        names = ("policy", "old", "advantages", "mask")
        found = losses.policy_loss(**{name: tensors[name] for name in names}, reference=None, **settings)
        tensors["loss"] = np.asarray(found.loss, np.float32)
        left = ("gradient", "metric.kl", "kl_estimator", "kl_ratio")
        path = write(tmp_path / "step.safetensors", tensors, words(settings), without=left)
        judged = verdicts(path)["policy_loss"]
        assert judged.status == "cannot tell"
        assert "record `gradient` or `row_losses`" in judged.reason
        tensors["loss"] = np.asarray(2 * found.loss, np.float32)
        assert verdicts(write(path, tensors, words(settings), without=left))["policy_loss"].status == "wrong"

    def test_a_mistake_in_a_step_that_is_too_large_to_search(self, tmp_path: Path) -> None:
        """Some of its rows and their gradient name it."""
        tensors = {name: np.tile(x, (16, 1)) if x.ndim == 2 else np.tile(x, 16) for name, x in STEP.items() if x.ndim}
        tensors["loss"], tensors["gradient"] = EXAMPLE.loss(
            tensors, np.pad(tensors["mask"][:, 1:], ((0, 0), (0, 1))), 0.2
        )
        found = verdicts(write(tmp_path / "step.safetensors", tensors, without=("metric.kl",)))["policy_loss"]
        assert tensors["policy"].size > 4096
        assert found.status == "wrong"
        assert found.computes.startswith("completion mask shifted by one position to the left")

    def test_lower_precision_is_imprecise(self, tmp_path: Path) -> None:
        """A loss whose terms were rounded to half precision."""
        wide = EXAMPLE.loss(STEP, STEP["mask"], 0.2)
        tensors = {
            "loss": wide[0].astype(np.float16).astype(np.float32),
            "gradient": wide[1].astype(np.float16).astype(np.float32),
        }
        found = verdicts(write(tmp_path / "step.safetensors", tensors))["policy_loss"]
        assert found.status == "imprecise"
        assert found.computes == "what is asked, in lower precision"

    def test_nan_in_masked_slots(self, tmp_path: Path) -> None:
        """It may stand in the inputs; where it reaches the gradient, the loss is fragile."""
        old = np.where(STEP["mask"], STEP["old"], np.float32(np.nan))
        clean = verdicts(write(tmp_path / "step.safetensors", {"old": old}))["policy_loss"]
        assert clean.status == "correct"
        gradient = np.where(STEP["mask"], STEP["gradient"], np.float32(np.nan))
        found = verdicts(write(tmp_path / "step.safetensors", {"old": old, "gradient": gradient}))["policy_loss"]
        assert found.status == "fragile"
        assert "masked slots" in found.reason
        nan = verdicts(write(tmp_path / "step.safetensors", {"loss": np.float32(np.nan)}))["policy_loss"]
        assert nan.status == "wrong"
        assert "loss is not finite" in nan.reason

    def test_corrections(self, tmp_path: Path) -> None:
        """Weights that are recorded are judged; those that are not are made of the sampler's log-probs."""
        sampling = (STEP["old"] - np.float32(0.1) * STEP["policy"]).astype(np.float32)
        bounds: dict[str, Any] = {"correction": "tis", "level": "token", "c_min": None, "c_max": 1.05}
        weights = oracle.importance_weights(STEP["old"], sampling, STEP["mask"], **bounds).astype(np.float32)
        settings = keywords("grpo")
        tensors = {**defined(settings, weights=weights), "sampling": sampling}
        asked = {**words(settings), "correction": "tis", "correction_level": "token", "correction_high": "1.05"}
        left = ("kl_estimator", "kl_ratio")
        found = verdicts(write(tmp_path / "step.safetensors", tensors, asked, without=left))
        assert found["importance_weights"].status == found["policy_loss"].status == "correct"
        made = verdicts(write(tmp_path / "step.safetensors", tensors, asked, without=(*left, "weights")))
        assert made["policy_loss"].status == "correct"
        tensors["weights"] = np.clip(weights, 0.97, None)
        assert (
            verdicts(write(tmp_path / "step.safetensors", tensors, asked, without=left))["importance_weights"].status
            == "wrong"
        )


class TestIdentified:
    """Nothing is asked."""

    def test_the_loss_and_the_convention_are_named(self, tmp_path: Path) -> None:
        """With their constants."""
        found = verdicts(write(tmp_path / "step.safetensors", without=(*NO_ADVANTAGES, *LOSS)))
        assert found["group_advantages"].computes == "group z-score with ddof 1, ε 0.0001 add (TRL's default)"
        assert found["policy_loss"].status == "correct"
        assert found["policy_loss"].computes == "grpo with ε_low 0.2, ε_high 0.2, β 0.04"

    @pytest.mark.slow
    def test_a_mistake_is_named_and_not_called_wrong(self, tmp_path: Path) -> None:
        """Nothing was asked that it could depart from."""
        found = verdicts(write(tmp_path / "step.safetensors", mistake="mask", without=LOSS))["policy_loss"]
        assert found.status == "cannot tell"
        assert found.computes.startswith("grpo with: completion mask shifted by one position to the right")

    def test_what_one_step_does_not_separate(self, tmp_path: Path) -> None:
        """Rows of one length: a mean over rows is a mean over tokens."""
        mask = np.zeros((16, 24), bool)
        mask[:, :10] = True
        settings = keywords("grpo")
        path = write(
            tmp_path / "step.safetensors", defined(settings, mask=mask), without=(*LOSS, "reference", "metric.kl")
        )
        found = verdicts(path)["policy_loss"]
        assert found.status == "cannot tell"
        assert "“grpo” or “dapo (global)”" in found.computes


class TestAdvantages:
    """Advantages from rewards."""

    def test_equal_rewards_are_fragile(self, tmp_path: Path) -> None:
        """Rounding noise over ε, and nothing else."""
        rewards = STEP["rewards"].copy()
        rewards[:4] = 0.1
        advantages = EXAMPLE.advantages(rewards, 1)
        advantages[:4] = 1e-3
        tensors = {"rewards": rewards, "advantages": advantages}
        found = verdicts(write(tmp_path / "step.safetensors", tensors))["group_advantages"]
        assert found.status == "fragile"
        assert "equal rewards give up to 0.001, must be 0" in found.reason

    def test_prompts_in_any_order_and_of_several_sizes(self, tmp_path: Path) -> None:
        """As TRL computes them, for each prompt alone."""
        ids = np.array([0, 1, 2, 2, 1, 0, 1, 2, 0, 2, 2, 1, 0, 2, 1, 2])
        rewards = np.random.default_rng(3).normal(size=16).astype(np.float32)
        advantages = np.zeros(16, np.float32)
        for one in range(3):
            group = rewards[ids == one]
            advantages[ids == one] = (group - group.mean()) / (group.std(ddof=1) + np.float32(1e-4))
        tensors = {"groups": ids, "rewards": rewards, "advantages": advantages}
        found = verdicts(write(tmp_path / "step.safetensors", tensors, without=("group_size",)))["group_advantages"]
        assert found.status == "correct"

    def test_the_baseline_of_the_batch(self, tmp_path: Path) -> None:
        """A group of equal rewards keeps its distance from the batch's mean; 0 there is wrong."""
        rewards = np.repeat(np.array([1, 0, 0.5, 0.25], np.float32), 4)
        rewards[-1] = 0.0
        advantages = (rewards - rewards.mean()) / (rewards.std(ddof=1) + np.float32(1e-4))
        batch, tensors = {"baseline": "batch", "scale": "batch"}, {"rewards": rewards, "advantages": advantages}
        found = verdicts(write(tmp_path / "step.safetensors", tensors, batch))["group_advantages"]
        assert found.status == "correct"
        tensors["advantages"] = np.where(np.arange(16) < 4, np.float32(0), advantages)
        found = verdicts(write(tmp_path / "step.safetensors", tensors, batch))["group_advantages"]
        assert found.status == "wrong"

    def test_the_words_of_a_baseline(self, tmp_path: Path) -> None:
        """Advantages of the example, which are its group's z-scores, where the batch's are asked for."""
        batch = {"baseline": "batch", "scale": "batch"}
        found = verdicts(write(tmp_path / "step.safetensors", settings=batch))["group_advantages"]
        assert found.status == "wrong"
        assert "asked: batch z-score with ddof 1" in found.computes

    def test_advantages_of_tokens(self, tmp_path: Path) -> None:
        """One number a row, repeated on its tokens, is judged; several are not."""
        wide = np.where(STEP["mask"], STEP["advantages"][:, None], np.float32(0))
        assert (
            verdicts(write(tmp_path / "step.safetensors", {"advantages": wide}))["group_advantages"].status == "correct"
        )
        wide[1, 1] += 1
        found = verdicts(write(tmp_path / "step.safetensors", {"advantages": wide}))["group_advantages"]
        assert found.status == "unsupported"


class TestMetrics:
    """Logged numbers."""

    def test_a_mean_over_many_tokens(self, tmp_path: Path) -> None:
        """Its limit is so wide that k2 lies within it; the definition is 30 times nearer, or nobody can tell."""
        rng = np.random.default_rng(5)
        policy = -rng.exponential(1.0, (512, 256)).astype(np.float32)
        reference = (policy + rng.normal(0.0, 0.02, policy.shape)).astype(np.float32)
        d = (reference - policy).astype(np.float64)
        k2, k3 = (d * d / 2).mean(), (np.exp(d) - d - 1).mean()
        left = tuple(
            name
            for name in (*STEP, *LOSS, *NO_ADVANTAGES, "group_size")
            if name not in {"policy", "reference", "metric.kl"}
        )
        for value, status in ((k3, "correct"), ((k2 + k3) / 2, "cannot tell")):
            tensors = {"policy": policy, "reference": reference, "metric.kl": np.float64(value)}
            found = verdicts(write(tmp_path / "step.safetensors", tensors, without=left))["metric.kl"]
            assert found.status == status, found

    def test_each_metric(self, tmp_path: Path) -> None:
        """From plain NumPy in float32, and the same a hundredth off."""
        mask, ratio = STEP["mask"], np.exp(STEP["policy"] - STEP["old"])[STEP["mask"]]
        a = np.broadcast_to(STEP["advantages"][:, None], mask.shape)[mask]
        low, high = ratio < 0.8, ratio > 1.2
        entropy = np.abs(STEP["reference"])
        logged = {
            "entropy": entropy[mask].mean(),
            "ppo_kl": (STEP["old"] - STEP["policy"])[mask].mean(),
            "ratio_mean": ratio.mean(),
            "ratio_min": ratio.min(),
            "ratio_max": ratio.max(),
            "outside_low": low.mean(),
            "outside_high": high.mean(),
            "clipped_low": (low & (a < 0)).mean(),
            "clipped_high": (high & (a > 0)).mean(),
            "clip_ratio": ((low & (a < 0)) | (high & (a > 0))).mean(),
            "reward_mean": STEP["rewards"].mean(),
            "tokens": mask.sum(),
        }
        for factor, status in ((1.0, "correct"), (1.01, "wrong")):
            tensors = {f"metric.{name}": np.asarray(factor * value, np.float32) for name, value in logged.items()}
            found = verdicts(write(tmp_path / "step.safetensors", {**tensors, "entropy": entropy}))
            assert {name: found[f"metric.{name}"].status for name in logged} == dict.fromkeys(logged, status)

    def test_another_way_to_average_is_named_and_not_wrong(self, tmp_path: Path) -> None:
        """The mean of the rows' means, as some libraries log it."""
        d = np.where(STEP["mask"], STEP["reference"] - STEP["policy"], 0)
        rows = (np.exp(d) - d - 1).sum(axis=1) / STEP["mask"].sum(axis=1)
        found = verdicts(write(tmp_path / "step.safetensors", {"metric.kl": np.asarray(rows.mean(), np.float32)}))[
            "metric.kl"
        ]
        assert found.status == "correct"
        assert found.computes == "k3, averaged by rows, then over rows (defined: k3)"

    def test_an_unknown_metric_is_unsupported(self, tmp_path: Path) -> None:
        """With the nearest name."""
        found = verdicts(write(tmp_path / "step.safetensors", {"metric.ratio_men": np.float32(1)}))["metric.ratio_men"]
        assert found.status == "unsupported"
        assert "did you mean 'ratio_mean'?" in found.reason


class TestOnPolicy:
    """Steps without old log-probs."""

    def test_the_ratio_is_one(self, tmp_path: Path) -> None:
        """With its gradient alive; what the step does not show is said."""
        settings = keywords("grpo")
        tensors = defined(settings, old=None)
        asked = {**words(settings), "ratio": "on-policy"}
        path = write(tmp_path / "step.safetensors", tensors, asked, without=("old", "kl_estimator", "kl_ratio"))
        found = verdicts(path)["policy_loss"]
        assert found.status == "correct"
        seen, known = (int(word) for word in found.strength.split()[:3:2])
        assert seen < known - 20

    def test_advantages_alone(self, tmp_path: Path) -> None:
        """A file of rewards and advantages; everything else is unsupported."""
        left = tuple(name for name in STEP if name not in {"rewards", "advantages"})
        found = verdicts(write(tmp_path / "step.safetensors", without=(*left, *LOSS)))
        assert found["group_advantages"].status == "correct"
        assert {one.status for name, one in found.items() if name != "group_advantages"} == {"unsupported"}
