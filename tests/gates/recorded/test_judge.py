"""Verdicts of `gates judge` on correct and wrong steps."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import here
from steps import EXAMPLE, OF_LOSS, verdicts, write

from gates.recorded import loss
from gates.recorded.file import open_step
from gates.recorded.step import Step
from gates_reference.algorithms import ALGORITHMS
from gates_reference.oracle import losses
from gates_reference.oracle import ratio as oracle
from gates_reference.oracle.losses import KL_AGGREGATIONS

STEP = EXAMPLE.recorded("none")
NO_ADVANTAGES = ("scale", "ddof", "eps", "eps_mode", "baseline")
LOSS = ("algorithm", "epsilon_low", "epsilon_high", "beta", "kl_estimator", "kl_ratio")


def defined(settings: dict[str, Any], **tensors: Any) -> dict[str, Any]:
    """Return the example's step with loss and gradient of the definition, rounded to float32."""
    arrays = {**STEP, **tensors}
    names = ("policy", "old", "reference", "advantages", "mask", "weights")
    result = losses.policy_loss(**{name: arrays.get(name) for name in names}, **settings)
    rounded = {"loss": np.float32(result.loss), "gradient": result.gradient.astype(np.float32)}
    return {**arrays, **{name: np.asarray(x) for name, x in rounded.items()}}


def keywords(algorithm: str) -> dict[str, Any]:
    """Return the constants of an algorithm as keywords of the definition."""
    empty = {"epsilon_low": None, "epsilon_high": None, "delta": None, "beta": 0.0, "kl_ratio": None}
    constants = dict(ALGORITHMS[algorithm].constants)
    if "micro_batches" in constants:
        constants["micro_batches"] = [4, 8, 4]
    return {**empty, "algorithm": algorithm, **constants}


def metadata(settings: dict[str, Any]) -> dict[str, str]:
    """Return the keywords as settings of a file."""
    plain = {name: value for name, value in settings.items() if value is not None}
    return {name: ",".join(map(str, x)) if isinstance(x, list) else str(x) for name, x in plain.items()}


class TestExample:
    """The example's correct step and its mistakes."""

    def test_a_correct_step_is_correct(self, tmp_path: Path) -> None:
        """Every quantity is correct; the loss counts the mistakes that it would reveal."""
        findings = verdicts(write(tmp_path / "step.safetensors"), strength=True)
        assert {name: finding.status for name, finding in findings.items()} == {
            "group_advantages": "correct",
            "importance_weights": "unsupported",
            "policy_loss": "correct",
            "metric.kl": "correct",
            "sampler drift": "finding",
        }
        seen, known = map(int, re.findall(r"(\d+) of (\d+) other ways", findings["policy_loss"].strength)[0])
        assert 0.9 * known < seen < known

    @pytest.mark.parametrize(
        ("mistake", "quantity", "status", "computes"),
        [
            ("mask", "policy_loss", "wrong", "completion mask shifted by one position to the right"),
            ("clip", "policy_loss", "differs", "r·A without a clip"),
            ("ddof", "group_advantages", "differs", "group z-score with ddof 0, ε 0.0001 add (mlx-lm-lora) (asked: group z-"),
            ("kl", "metric.kl", "wrong", "k3, averaged over the padded width"),
        ],
    )  # fmt: skip
    def test_a_mistake_is_named(self, tmp_path: Path, mistake: str, quantity: str, status: str, computes: str) -> None:
        """One quantity is wrong, or another choice, and named; the others are correct."""
        findings = verdicts(write(tmp_path / "step.safetensors", mistake=mistake))
        bad = {name: finding.status for name, finding in findings.items() if finding.status in {"wrong", "differs"}}
        assert bad == {quantity: status}
        assert findings[quantity].computes.startswith(computes)

    def test_another_sampler_temperature_is_reported(self, tmp_path: Path) -> None:
        """The drift is a finding with numbers, not a verdict."""
        right, hotter = (
            verdicts(write(tmp_path / "step.safetensors", mistake=mistake))["sampler drift"]
            for mistake in ("none", "sampler")
        )
        assert (right.status, hotter.status) == ("finding", "finding")
        assert "as the same model in float32 on another path" in right.reason
        assert "another distribution at some tokens" in hotter.reason
        assert hotter.numbers["max_abs"] > 0.5


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
            metadata(settings),
            without=("row_losses", *set(LOSS) - set(metadata(settings))),
        )
        step = Step(open_step(path))
        for at_once in (1 << 16, 48):
            errors = loss.compare(step, step.file.settings, at_once=at_once)
            assert errors.gradient is not None
            assert errors.holds, (errors.loss.summary, errors.gradient.summary)
        tensors["gradient"] = tensors["gradient"] * np.float32(1.001)
        step = Step(
            open_step(write(path, tensors, metadata(settings), without=tuple(set(LOSS) - set(metadata(settings)))))
        )
        assert not loss.compare(step, step.file.settings, at_once=48).holds

    @pytest.mark.parametrize("denominator", ["global", "group", "trl"])
    def test_every_denominator_adds_up(self, tmp_path: Path, denominator: str) -> None:
        """Each of dapo's, in pieces too."""
        settings = {**keywords("dapo"), "dapo_denominator": denominator}
        settings |= {"group_size": 4} if denominator == "group" else {}
        settings |= {"tokens_in_step": 500.0} if denominator == "trl" else {}
        path = write(
            tmp_path / "step.safetensors", defined(settings), metadata(settings), without=("kl_estimator", "kl_ratio")
        )
        step = Step(open_step(path))
        for at_once in (1 << 16, 48):
            assert loss.compare(step, step.file.settings, at_once=at_once).holds

    @pytest.mark.parametrize("algorithm", ["grpo", "dapo", "dr_grpo"])
    @pytest.mark.parametrize("mean", KL_AGGREGATIONS)
    def test_a_kl_with_its_own_mean_adds_up(self, tmp_path: Path, algorithm: str, mean: str) -> None:
        """`kl_aggregation` is a setting; in pieces the KL has its own share of the step."""
        settings = {**keywords(algorithm), "beta": 0.3, "kl_estimator": "k3", "kl_ratio": "none"}
        settings["kl_aggregation"] = mean
        path = write(tmp_path / "step.safetensors", defined(settings), metadata(settings))
        step = Step(open_step(path))
        for at_once in (1 << 16, 48):
            errors = loss.compare(step, step.file.settings, at_once=at_once)
            assert errors.holds, (errors.loss.summary, errors.gradient)
        assert not loss.compare(step, {**step.file.settings, "beta": 0.303}, at_once=48).holds

    def test_a_kl_with_its_own_mean_and_rows_left_out(self, tmp_path: Path) -> None:
        """Rows without tokens change the mean over rows, not that of the KL over tokens."""
        settings = {**keywords("grpo"), "beta": 0.3, "kl_estimator": "k3", "kl_ratio": "none"}
        settings["kl_aggregation"] = "token-mean"
        kept = np.arange(16) // 4 != 1
        arrays = {name: STEP[name][kept] for name in ("policy", "old", "reference", "advantages", "mask")}
        rows = losses.policy_loss(**arrays, **settings)
        gradient = np.zeros(STEP["policy"].shape, np.float32)
        gradient[kept] = rows.gradient
        mask = STEP["mask"] & kept[:, None]
        tensors = {"mask": mask, "loss": np.float32(rows.loss), "gradient": gradient}
        path = write(tmp_path / "step.safetensors", tensors, {**metadata(settings), "empty_rows": "left-out"})
        step = Step(open_step(path))
        for at_once in (1 << 16, 48):
            assert loss.compare(step, step.file.settings, at_once=at_once).holds

    def test_a_wrong_row_loss_is_caught(self, tmp_path: Path) -> None:
        """Row losses add up to the loss, and a wrong one is found."""
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
        path = write(tmp_path / "step.safetensors", tensors, metadata(settings), without=left)
        assert verdicts(path)["policy_loss"].status == "correct"
        tensors["row_losses"][5] *= np.float32(1.01)
        finding = verdicts(write(path, tensors, metadata(settings), without=left))["policy_loss"]
        assert finding.status == "wrong"
        assert "row loss error" in finding.reason
        assert "at [5]" in finding.reason

    def test_a_long_loss_without_gradient_is_undecided(self, tmp_path: Path) -> None:
        """More than 1,000 tokens without gradient and row losses: never correct."""
        tensors = {name: np.tile(x, (8, 1)) if x.ndim == 2 else np.tile(x, 8) for name, x in STEP.items() if x.ndim}
        settings = keywords("grpo")
        names = ("policy", "old", "advantages", "mask")
        result = losses.policy_loss(**{name: tensors[name] for name in names}, reference=None, **settings)
        tensors["loss"] = np.asarray(result.loss, np.float32)
        left = ("gradient", "metric.kl", "kl_estimator", "kl_ratio")
        path = write(tmp_path / "step.safetensors", tensors, metadata(settings), without=left)
        judged = verdicts(path)["policy_loss"]
        assert judged.status == "cannot tell"
        assert "record `gradient` or `row_losses`" in judged.reason
        tensors["loss"] = np.asarray(2 * result.loss, np.float32)
        assert verdicts(write(path, tensors, metadata(settings), without=left))["policy_loss"].status == "wrong"

    def test_a_mistake_in_a_large_step_is_named(self, tmp_path: Path) -> None:
        tensors = {name: np.tile(x, (16, 1)) if x.ndim == 2 else np.tile(x, 16) for name, x in STEP.items() if x.ndim}
        tensors["loss"], tensors["gradient"] = EXAMPLE.loss(
            tensors, np.pad(tensors["mask"][:, 1:], ((0, 0), (0, 1))), 0.2
        )
        finding = verdicts(write(tmp_path / "step.safetensors", tensors, without=("metric.kl",)))["policy_loss"]
        assert tensors["policy"].size > 4096
        assert finding.status == "wrong"
        assert finding.computes.startswith("completion mask shifted by one position to the left")

    @pytest.mark.parametrize(
        ("in_half", "status"), [(True, "imprecise"), pytest.param(False, "wrong", marks=pytest.mark.long)]
    )
    def test_half_precision(self, tmp_path: Path, *, in_half: bool, status: str) -> None:
        """A loss rounded to half precision is imprecise if the log-probs are numbers of half precision too."""
        dtype = np.float16 if in_half else np.float32
        step = {**STEP, "policy": STEP["policy"].astype(dtype).astype(np.float32)}
        wide = EXAMPLE.loss(step, STEP["mask"], 0.2)
        tensors = {
            "policy": step["policy"],
            "loss": wide[0].astype(np.float16).astype(np.float32),
            "gradient": wide[1].astype(np.float16).astype(np.float32),
        }
        path = write(tmp_path / "step.safetensors", tensors)
        finding = verdicts(path)["policy_loss"]
        assert finding.status == status
        assert finding.computes == "cannot be told from half-precision arithmetic of what is asked"
        assert finding.computes in " ".join(here("judge", str(path), cwd=tmp_path).stdout.split())

    def test_nan_in_masked_slots_is_fragile(self, tmp_path: Path) -> None:
        """NaN may stand in the inputs; if it reaches the gradient, the loss is fragile."""
        old = np.where(STEP["mask"], STEP["old"], np.float32(np.nan))
        clean = verdicts(write(tmp_path / "step.safetensors", {"old": old}))["policy_loss"]
        assert clean.status == "correct"
        gradient = np.where(STEP["mask"], STEP["gradient"], np.float32(np.nan))
        finding = verdicts(write(tmp_path / "step.safetensors", {"old": old, "gradient": gradient}))["policy_loss"]
        assert finding.status == "fragile"
        assert "masked slots" in finding.reason
        nan = verdicts(write(tmp_path / "step.safetensors", {"loss": np.float32(np.nan)}))["policy_loss"]
        assert nan.status == "wrong"
        assert "loss is not finite" in nan.reason

    def test_a_number_that_must_be_0_is_not_called_infinite(self, tmp_path: Path) -> None:
        """A row without an advantage has no gradient; a finite number there is "not 0"."""
        settings = keywords("grpo")
        tensors = defined(settings, advantages=np.where(np.arange(16) == 3, np.float32(0), STEP["advantages"]))
        tensors["gradient"] = tensors["gradient"].copy()
        tensors["gradient"][3, 0] = 0.0028
        left = ("rewards", "metric.kl", "kl_estimator", "kl_ratio")
        finding = verdicts(write(tmp_path / "step.safetensors", tensors, metadata(settings), without=left))[
            "policy_loss"
        ]
        assert finding.status == "wrong"
        assert "gradient is not 0 (at [3, 0]: got 0.00279" in finding.reason
        assert "not finite" not in finding.reason

    def test_finite_mistakes_are_not_blamed_on_masked_slots(self, tmp_path: Path) -> None:
        """NaN reaches one slot of the gradient, and another is off by half."""
        old = np.where(STEP["mask"], STEP["old"], np.float32(np.nan))
        gradient = STEP["gradient"].copy()
        row, slot = np.argwhere(STEP["mask"])[7]
        gradient[0, 0], gradient[row, slot] = np.nan, 1.5 * gradient[row, slot]
        finding = verdicts(write(tmp_path / "step.safetensors", {"old": old, "gradient": gradient}))["policy_loss"]
        assert finding.status == "wrong"

    def test_corrections_are_judged(self, tmp_path: Path) -> None:
        """Recorded weights are judged; otherwise they are computed from the sampler's log-probs."""
        sampling = np.minimum(STEP["old"] - np.float32(0.1) * STEP["policy"], 0.0).astype(np.float32)
        bounds: dict[str, Any] = {"correction": "tis", "level": "token", "c_min": None, "c_max": 1.05}
        weights = oracle.importance_weights(STEP["old"], sampling, STEP["mask"], **bounds).astype(np.float32)
        settings = keywords("grpo")
        tensors = {**defined(settings, weights=weights), "sampling": sampling}
        file_settings = {
            **metadata(settings),
            "correction": "tis",
            "correction_level": "token",
            "correction_high": "1.05",
        }
        left = ("kl_estimator", "kl_ratio")
        findings = verdicts(write(tmp_path / "step.safetensors", tensors, file_settings, without=left))
        assert findings["importance_weights"].status == findings["policy_loss"].status == "correct"
        identified = verdicts(write(tmp_path / "step.safetensors", tensors, file_settings, without=(*left, "weights")))
        assert identified["policy_loss"].status == "correct"
        tensors["weights"] = np.clip(weights, 0.97, None)
        assert (
            verdicts(write(tmp_path / "step.safetensors", tensors, file_settings, without=left))[
                "importance_weights"
            ].status
            == "wrong"
        )


class TestIdentified:
    """Steps without settings."""

    def test_the_loss_and_the_convention_are_named(self, tmp_path: Path) -> None:
        findings = verdicts(write(tmp_path / "step.safetensors", without=(*NO_ADVANTAGES, *LOSS)))
        assert findings["group_advantages"].computes == "group z-score with ddof 1, ε 0.0001 add (TRL's default)"
        assert findings["policy_loss"].status == "correct"
        assert findings["policy_loss"].computes == "grpo with ε_low 0.2, ε_high 0.2, β 0.04"

    @pytest.mark.slow
    def test_a_mistake_without_settings_is_not_wrong(self, tmp_path: Path) -> None:
        finding = verdicts(write(tmp_path / "step.safetensors", mistake="mask", without=LOSS))["policy_loss"]
        assert finding.status == "cannot tell"
        assert finding.computes.startswith("grpo with: completion mask shifted by one position to the right")

    def test_definitions_that_agree_on_a_step_are_listed(self, tmp_path: Path) -> None:
        """With rows of equal length, a mean over rows is a mean over tokens."""
        mask = np.zeros((16, 24), bool)
        mask[:, :10] = True
        settings = keywords("grpo")
        path = write(
            tmp_path / "step.safetensors", defined(settings, mask=mask), without=(*LOSS, "reference", "metric.kl")
        )
        finding = verdicts(path)["policy_loss"]
        assert finding.status == "cannot tell"
        assert "“grpo” or “dapo (global)”" in finding.computes


def of_advantages(
    folder: Path, tensors: dict[str, Any], settings: dict[str, str] | None = None, without: tuple[str, ...] = ()
) -> Any:
    """Return the finding on the advantages of a step without a loss."""
    path = write(folder / "step.safetensors", tensors, settings, without=(*OF_LOSS, *without))
    return verdicts(path)["group_advantages"]


class TestAdvantages:
    """Advantages from rewards."""

    def test_equal_rewards_are_fragile(self, tmp_path: Path) -> None:
        """Rounding noise divided by ε instead of 0."""
        rewards = STEP["rewards"].copy()
        rewards[:4] = 0.1
        advantages = EXAMPLE.advantages(rewards, 1)
        advantages[:4] = 1e-3
        tensors = {"rewards": rewards, "advantages": advantages}
        finding = of_advantages(tmp_path, tensors)
        assert finding.status == "fragile"
        assert "equal rewards give up to 0.001, must be 0" in finding.reason

    def test_prompts_may_be_scattered_and_of_different_sizes(self, tmp_path: Path) -> None:
        ids = np.array([0, 1, 2, 2, 1, 0, 1, 2, 0, 2, 2, 1, 0, 2, 1, 2])
        rewards = np.random.default_rng(3).normal(size=16).astype(np.float32)
        advantages = np.zeros(16, np.float32)
        for prompt in range(3):
            group = rewards[ids == prompt]
            advantages[ids == prompt] = (group - group.mean()) / (group.std(ddof=1) + np.float32(1e-4))
        tensors = {"groups": ids, "rewards": rewards, "advantages": advantages}
        finding = of_advantages(tmp_path, tensors, without=("group_size",))
        assert finding.status == "correct"

    def test_the_baseline_of_the_batch(self, tmp_path: Path) -> None:
        """A group of equal rewards keeps its distance from the batch's mean; 0 there is wrong."""
        rewards = np.repeat(np.array([1, 0, 0.5, 0.25], np.float32), 4)
        rewards[-1] = 0.0
        advantages = (rewards - rewards.mean()) / (rewards.std(ddof=1) + np.float32(1e-4))
        batch, tensors = {"baseline": "batch", "scale": "batch"}, {"rewards": rewards, "advantages": advantages}
        found = of_advantages(tmp_path, tensors, batch)
        assert found.status == "correct"
        tensors["advantages"] = np.where(np.arange(16) < 4, np.float32(0), advantages)
        found = of_advantages(tmp_path, tensors, batch)
        assert found.status == "wrong"

    def test_the_words_of_a_baseline(self, tmp_path: Path) -> None:
        """Advantages of the example, which are its group's z-scores, where the batch's are asked for."""
        batch = {"baseline": "batch", "scale": "batch"}
        found = verdicts(write(tmp_path / "step.safetensors", settings=batch))["group_advantages"]
        assert (found.status, found.declare) == (
            "differs",
            "write `scale` 'group', `baseline` 'mean' if it is meant",
        )
        assert "asked: batch z-score with ddof 1" in found.computes

    def test_advantages_may_be_repeated_on_tokens(self, tmp_path: Path) -> None:
        """Advantages that differ within a row are unsupported."""
        wide = np.where(STEP["mask"], STEP["advantages"][:, None], np.float32(0))
        assert of_advantages(tmp_path, {"advantages": wide}).status == "correct"
        wide[1, 1] += 1
        finding = of_advantages(tmp_path, {"advantages": wide})
        assert finding.status == "unsupported"


class TestMetrics:
    """Logged metrics."""

    def test_a_mean_over_many_tokens_may_be_undecided(self, tmp_path: Path) -> None:
        """The limit of a long sum admits k2; the definition must be 30 times nearer."""
        rng = np.random.default_rng(5)
        policy = -rng.exponential(1.0, (512, 256)).astype(np.float32)
        reference = np.minimum(policy + rng.normal(0.0, 0.02, policy.shape), 0.0).astype(np.float32)
        d = (reference - policy).astype(np.float64)
        k2, k3 = (d * d / 2).mean(), (np.exp(d) - d - 1).mean()
        left = tuple(
            name
            for name in (*STEP, *LOSS, *NO_ADVANTAGES, "group_size")
            if name not in {"policy", "reference", "metric.kl"}
        )
        for value, status in ((k3, "correct"), ((k2 + k3) / 2, "cannot tell")):
            tensors = {"policy": policy, "reference": reference, "metric.kl": np.float64(value)}
            finding = verdicts(write(tmp_path / "step.safetensors", tensors, without=left))["metric.kl"]
            assert finding.status == status, finding

    def test_every_metric_is_judged(self, tmp_path: Path) -> None:
        """Values of plain NumPy in float32 are correct, and wrong if off by 1%."""
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
            findings = verdicts(write(tmp_path / "step.safetensors", {**tensors, "entropy": entropy}))
            assert {name: findings[f"metric.{name}"].status for name in logged} == dict.fromkeys(logged, status)

    def test_another_average_is_named_and_correct(self, tmp_path: Path) -> None:
        """The mean of the rows' means, as some libraries log it."""
        d = np.where(STEP["mask"], STEP["reference"] - STEP["policy"], 0)
        rows = (np.exp(d) - d - 1).sum(axis=1) / STEP["mask"].sum(axis=1)
        finding = verdicts(write(tmp_path / "step.safetensors", {"metric.kl": np.asarray(rows.mean(), np.float32)}))[
            "metric.kl"
        ]
        assert finding.status == "correct"
        assert finding.computes == "k3, averaged by rows, then over rows (defined: k3)"

    def test_an_unknown_metric_is_unsupported(self, tmp_path: Path) -> None:
        """The reason suggests the nearest name."""
        finding = verdicts(write(tmp_path / "step.safetensors", {"metric.ratio_men": np.float32(1)}))[
            "metric.ratio_men"
        ]
        assert finding.status == "unsupported"
        assert "did you mean 'ratio_mean'?" in finding.reason


class TestOnPolicy:
    """Steps without old log-probs."""

    def test_an_on_policy_step_is_correct(self, tmp_path: Path) -> None:
        """The ratio is 1 with a gradient, and the mistakes that it cannot reveal are counted."""
        settings = keywords("grpo")
        tensors = defined(settings, old=None)
        file_settings = {**metadata(settings), "ratio": "on-policy"}
        path = write(tmp_path / "step.safetensors", tensors, file_settings, without=("old", "kl_estimator", "kl_ratio"))
        finding = verdicts(path, strength=True)["policy_loss"]
        assert finding.status == "correct"
        seen, known = (int(word) for word in finding.strength.split()[:3:2])
        assert seen < known - 20

    def test_a_file_of_advantages_alone_is_judged(self, tmp_path: Path) -> None:
        """A file of rewards and advantages; everything else is unsupported."""
        left = tuple(name for name in STEP if name not in {"rewards", "advantages"})
        findings = verdicts(write(tmp_path / "step.safetensors", without=(*left, *LOSS)))
        assert findings["group_advantages"].status == "correct"
        assert {finding.status for name, finding in findings.items() if name != "group_advantages"} == {"unsupported"}
