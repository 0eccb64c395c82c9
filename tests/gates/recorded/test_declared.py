"""Right code is not blamed for what a setting would declare; log-probs above 0 are refused."""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from steps import EXAMPLE, OF_LOSS, verdicts, write

from gates.model import ConfigurationError

STEP = EXAMPLE.recorded("none")
TOKENS = STEP["mask"].sum()
ENTROPY = np.where(STEP["mask"], np.abs(STEP["reference"]) + 0.5, 0).astype(np.float32)
NO_SETTINGS = ("scale", "ddof", "eps", "eps_mode", "baseline")


def judged(tmp_path: Path, tensors: dict[str, Any], settings: dict[str, str] | None = None, **keywords: Any) -> Any:
    """Return the finding on the loss."""
    return verdicts(write(tmp_path / "step.safetensors", tensors, settings, **keywords))["policy_loss"]


class TestEntropyBonus:
    """A recorded loss that holds −c times the mean entropy."""

    bonus = np.float32(STEP["loss"] - np.float32(0.01) * ENTROPY.sum() / TOKENS)

    def test_declared_it_is_correct(self, tmp_path: Path) -> None:
        finding = judged(tmp_path, {"loss": self.bonus, "entropy": ENTROPY}, {"entropy_bonus": "0.01"})
        assert finding.status == "correct", finding

    def test_undeclared_the_setting_is_named(self, tmp_path: Path) -> None:
        finding = judged(tmp_path, {"loss": self.bonus, "entropy": ENTROPY})
        assert finding.status == "cannot tell"
        assert "write `entropy_bonus` 0.01" in finding.reason

    def test_averaged_like_the_loss(self, tmp_path: Path) -> None:
        rows = ENTROPY.sum(axis=1) / STEP["mask"].sum(axis=1)
        tensors = {"loss": np.float32(STEP["loss"] - np.float32(0.01) * rows.mean()), "entropy": ENTROPY}
        settings = {"entropy_bonus": "0.01", "entropy_mean": "loss"}
        assert judged(tmp_path, tensors, settings).status == "correct"
        assert "`entropy_mean` 'loss'" in judged(tmp_path, tensors).reason

    def test_another_weight_than_declared_is_not_correct(self, tmp_path: Path) -> None:
        finding = judged(tmp_path, {"loss": self.bonus, "entropy": ENTROPY}, {"entropy_bonus": "0.02"})
        assert finding.status == "cannot tell"

    def test_it_needs_the_entropies(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match="needs the tensor `entropy`"):
            judged(tmp_path, {}, {"entropy_bonus": "0.01"})


class TestAuxiliaryLoss:
    """A router's loss in the recorded loss."""

    loss = np.float32(STEP["loss"] + np.float32(0.0173))

    def test_declared_it_is_correct(self, tmp_path: Path) -> None:
        assert judged(tmp_path, {"loss": self.loss, "auxiliary_loss": np.float32(0.0173)}).status == "correct"

    def test_undeclared_the_remainder_is_reported(self, tmp_path: Path) -> None:
        finding = judged(tmp_path, {"loss": self.loss})
        assert finding.status == "cannot tell"
        assert finding.computes == "the gradient fits, the loss is off by a constant: +0.0173"
        assert "`auxiliary_loss`" in finding.reason

    def test_a_mistake_is_still_named(self, tmp_path: Path) -> None:
        """Through the declared extra, the mask is seen to be shifted."""
        wrong = EXAMPLE.recorded("mask")
        tensors = {"loss": np.float32(wrong["loss"] + np.float32(0.0173)), "auxiliary_loss": np.float32(0.0173)}
        finding = judged(tmp_path, tensors, mistake="mask")
        assert finding.status == "wrong"
        assert finding.computes.startswith("completion mask shifted by one position to the right")


class TestEmptyRows:
    """Rows without tokens, as dynamic sampling or an over-long filter leaves them."""

    def left_out(self, groups: tuple[int, ...] = (1,)) -> dict[str, Any]:
        """Return a step whose groups have no tokens, averaged over the rows that have some."""
        mask = STEP["mask"].copy()
        for group in groups:
            mask[4 * group : 4 * group + 4] = False
        kept = mask.any(axis=1)
        loss, gradient = EXAMPLE.loss({**STEP, "mask": mask}, mask, 0.2)
        factor = np.float32(len(mask) / kept.sum())
        d = np.where(mask, STEP["reference"] - STEP["policy"], 0)
        kl = (np.exp(d) - d - 1).sum() / mask.sum()
        return {"mask": mask, "loss": loss * factor, "gradient": gradient * factor, "metric.kl": np.float32(kl)}

    def test_declared_it_is_correct(self, tmp_path: Path) -> None:
        assert judged(tmp_path, self.left_out(), {"empty_rows": "left-out"}).status == "correct"

    def test_undeclared_the_setting_is_named(self, tmp_path: Path) -> None:
        finding = judged(tmp_path, self.left_out())
        assert finding.status == "cannot tell"
        assert "it fits if 4 rows without tokens are left out: write `empty_rows` 'left-out'" in finding.reason

    def test_a_mistake_of_such_a_step_is_named(self, tmp_path: Path) -> None:
        tensors = self.left_out()
        tensors["gradient"], tensors["loss"] = -tensors["gradient"], -tensors["loss"]
        finding = judged(tmp_path, tensors, {"empty_rows": "left-out"})
        assert finding.status == "wrong"
        assert "wrong sign" in finding.computes

    def test_a_group_left_out_has_no_advantages(self, tmp_path: Path) -> None:
        """They enter nothing, whatever they are."""
        advantages = STEP["advantages"].copy()
        advantages[4:8] = 0.0
        path = write(tmp_path / "step.safetensors", {**self.left_out(), "advantages": advantages})
        assert verdicts(path)["group_advantages"].status == "correct"

    @pytest.mark.long  # both settings are tried alone
    def test_statistics_of_the_batch_without_them(self, tmp_path: Path) -> None:
        """The deviation of the kept groups: undeclared the setting is named."""
        kept = np.delete(STEP["rewards"], slice(4, 8))
        groups = STEP["rewards"].reshape(4, 4)
        advantages = (groups - groups.mean(axis=1, keepdims=True)) / (kept.std(ddof=1) + np.float32(1e-4))
        tensors = {**self.left_out(), "advantages": advantages.reshape(-1).astype(np.float32)}
        path = write(tmp_path / "step.safetensors", tensors, {"scale": "batch"})
        finding = verdicts(path)["group_advantages"]
        assert finding.status == "cannot tell"
        assert "they fit without the prompts that have no tokens (1): write `empty_rows`" in finding.reason
        write(path, tensors, {"scale": "batch", "empty_rows": "left-out"})
        assert verdicts(path)["group_advantages"].status == "correct"


class TestStatisticsOverTokens:
    """REINFORCE++: rewards whitened over the tokens of the batch."""

    settings: ClassVar = {"scale": "batch", "baseline": "batch", "ddof": "1", "eps": "1e-8", "eps_mode": "inside"}

    def whitened(self, baseline: str) -> dict[str, Any]:
        """Return advantages as `masked_whiten` gives them."""
        groups = STEP["rewards"].reshape(4, 4)
        rewards = (groups - groups.mean(axis=1, keepdims=True)).reshape(-1) if baseline == "mean" else STEP["rewards"]
        wide = np.repeat(rewards, STEP["mask"].sum(axis=1))
        a = (rewards - wide.mean()) / np.sqrt(wide.var(ddof=1) + np.float32(1e-8))
        return {"advantages": a.astype(np.float32)}

    @pytest.mark.parametrize("baseline", ["batch", pytest.param("mean", marks=pytest.mark.long)])
    def test_declared_it_is_correct(self, tmp_path: Path, baseline: str) -> None:
        settings = {**self.settings, "baseline": baseline, "statistics": "tokens"}
        path = write(tmp_path / "step.safetensors", self.whitened(baseline), settings, without=OF_LOSS)
        assert verdicts(path)["group_advantages"].status == "correct"

    @pytest.mark.parametrize("baseline", [pytest.param("batch", marks=pytest.mark.long), "mean"])
    def test_undeclared_the_setting_is_named(self, tmp_path: Path, baseline: str) -> None:
        settings = {**self.settings, "baseline": baseline}
        path = write(tmp_path / "step.safetensors", self.whitened(baseline), settings, without=OF_LOSS)
        finding = verdicts(path)["group_advantages"]
        assert finding.status == "cannot tell"
        assert f"write `statistics` 'tokens', `baseline` '{baseline}'" in finding.reason

    def test_without_settings_it_is_identified(self, tmp_path: Path) -> None:
        path = write(tmp_path / "step.safetensors", self.whitened("batch"), without=(*NO_SETTINGS, *OF_LOSS))
        assert "whitened over the batch's tokens" in verdicts(path)["group_advantages"].computes


@pytest.mark.parametrize("name", ["policy", "old", "reference", "sampling"])
def test_log_probs_above_0_are_refused(tmp_path: Path, name: str) -> None:
    """The message names tensor, row and slot; a masked slot may hold anything."""
    row, slot = (int(i) for i in np.argwhere(STEP["mask"])[50])
    array = STEP[name].copy()
    array[row, slot] = 0.5
    path = write(tmp_path / "step.safetensors", {name: array})
    with pytest.raises(
        ConfigurationError, match=rf"tensor `{name}` is 0.5 in row {row}, slot {slot}, must be a log-prob"
    ):
        verdicts(path)
    array = np.where(STEP["mask"], STEP[name], np.float32(3.0))
    verdicts(write(path, {name: array}))
