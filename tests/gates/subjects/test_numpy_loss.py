"""The NumPy baseline's policy losses, on numbers worked out by hand and by differences."""

import math
from typing import Any

import numpy as np
import pytest

from gates.subjects.numpy_baseline import loss as subject
from gates.subjects.numpy_baseline import ratio as numpy_ratio
from gates.subjects.numpy_baseline import subject as whole
from gates.subjects.numpy_baseline import terms
from reference.algorithms import ALGORITHMS as LOSSES

Array = np.ndarray[Any, Any]
NAN, INF = math.nan, math.inf
ALGORITHMS = tuple(subject.PRESETS)


def loss_inputs(algorithm: str, **changes: Any) -> dict[str, Any]:
    """Six ragged rows, one of them empty, NaN in every masked slot."""
    rng = np.random.default_rng(7)
    mask = np.arange(5) < np.array([5, 2, 0, 4, 1, 3])[:, None]
    policy, old, reference = (np.where(mask, -rng.gamma(1.0, 1.0, mask.shape), NAN) for _ in range(3))
    preset = LOSSES.get(algorithm, LOSSES["grpo"])
    lacking = {name for name in ("epsilon_low", "epsilon_high") if name not in preset.constants}
    own: dict[str, Any] = dict.fromkeys(lacking if preset.two_sided else lacking | {"delta"})
    if "sapo_temperature_positive" in preset.constants:
        own |= {"sapo_temperature_positive": 1.0, "sapo_temperature_negative": 1.5}
    if "cispo_bound" in preset.constants:
        own["cispo_bound"] = "relative"
    own |= {name: value for name, value in preset.constants.items() if name.startswith("vespo")}
    return {
        "policy": policy,
        "old": policy + 0.4 * (old - policy),
        "reference": reference,
        "advantages": np.array([1.0, -0.5, 2.0, 0.0, -1.5, 0.7]),
        "mask": mask,
        "algorithm": algorithm,
        "epsilon_low": 0.2,
        "epsilon_high": 0.3,
        "max_length": 8,
        "micro_batches": [2, 4],
        "group_size": 3,
        **changes,
        **own,
    }


class TestPolicyLoss:
    """Losses and their gradients with respect to the policy's log-probs."""

    @pytest.mark.parametrize(
        ("algorithm", "changes", "expected"),
        [
            # Two rows of log-ratios (ln 2, 0) and (ln 2); A = 1 and -1; clip at 0.8 and 1.2.
            # Token losses: -1.2, -1 | 2. Rows of n = 2 and 1.
            pytest.param("grpo", {}, (-1.1 + 2) / 2, id="grpo"),
            pytest.param("dapo", {"dapo_denominator": "global"}, (-2.2 + 2) / 3, id="dapo-global"),
            pytest.param("dapo", {"dapo_denominator": "group", "group_size": 1}, (-1.1 + 2) / 2, id="dapo-group"),
            pytest.param("bnpo-trl", {"micro_batches": [2]}, (-2.2 + 2) / 3, id="bnpo-one-micro-batch"),
            pytest.param("bnpo-trl", {"micro_batches": [1, 1]}, (-1.1 + 2) / 2, id="bnpo-two-micro-batches"),
            pytest.param("dr_grpo", {"max_length": 10}, (-2.2 + 2) / 20, id="dr-grpo"),
            pytest.param("grpo", {"delta": 1.5}, (-1.1 + 1.5) / 2, id="two-sided-clip"),
            pytest.param("gspo", {}, (-1.2 + 2) / 2, id="gspo"),  # exp(ln 2 / 2) = 1.414, clipped at 1.2
            pytest.param("rloo", {"epsilon_low": None, "epsilon_high": None}, (-2 + 2) / 2, id="rloo"),
            pytest.param("grpo", {"old": None}, (-1 + 1) / 2, id="on-policy"),
        ],
    )
    def test_hand_worked_values(self, algorithm: str, changes: dict[str, Any], expected: float) -> None:
        """Each algorithm's value is what a hand computes for two short rows."""
        inputs: dict[str, Any] = {
            "policy": np.array([[math.log(0.5), -1.0], [math.log(0.4), NAN]]),
            "old": np.array([[math.log(0.25), -1.0], [math.log(0.2), NAN]]),
            "reference": None,
            "advantages": np.array([1.0, -1.0]),
            "mask": np.array([[1, 1], [1, 0]], bool),
            "epsilon_low": 0.2,
            "epsilon_high": 0.2,
        }
        loss, _ = subject.policy_loss(**{**inputs, "algorithm": algorithm, **changes})
        assert loss == pytest.approx(expected, abs=1e-15)

    @pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if LOSSES[name].bound not in {"cap", "taper"}])
    @pytest.mark.parametrize(
        "changes",
        [
            pytest.param({}, id="plain"),
            pytest.param({"delta": 1.4}, id="delta"),
            pytest.param({"dapo_denominator": "group"}, id="group"),
            pytest.param({"beta": 0.3, "kl_ratio": "none"}, id="kl"),
            pytest.param({"beta": 0.3, "kl_ratio": "token"}, id="kl-token"),
            pytest.param({"beta": 0.3, "kl_ratio": "sequence"}, id="kl-sequence"),
            pytest.param({"beta": 0.3, "kl_ratio": "none", "kl_estimator": "k1"}, id="k1"),
            pytest.param({"beta": 0.3, "kl_ratio": "token", "kl_estimator": "k1"}, id="k1-token"),
            pytest.param({"beta": 0.3, "kl_ratio": "token", "kl_estimator": "k2"}, id="k2-token"),
            pytest.param({"beta": 0.3, "kl_ratio": "sequence", "kl_estimator": "k2"}, id="k2-sequence"),
            pytest.param({"beta": 0.3, "kl_ratio": "none", "kl_clamp": 0.02}, id="clamp"),
            pytest.param({"beta": 0.3, "kl_ratio": "token", "kl_clamp": 0.02}, id="clamp-token"),
            pytest.param({"beta": 0.3, "kl_ratio": "sequence", "kl_clamp": 0.02}, id="clamp-sequence"),
            pytest.param({"epsilon_low": 0.1, "epsilon_high": 0.15}, id="epsilon"),
            pytest.param({"weights": np.array([0.5, 0.0, 1.0, 2.0, 0.3, 1.7])}, id="weights"),
        ],
    )
    def test_gradient_is_the_slope(self, algorithm: str, changes: dict[str, Any]) -> None:
        """The gradient is the central difference of the loss, and exactly 0 in masked slots."""
        if not LOSSES[algorithm].kl_in_loss:
            changes = {name: x for name, x in changes.items() if name.startswith("epsilon")}  # it has no KL term
        inputs = loss_inputs(algorithm, **{"dapo_denominator": "global", **changes})
        inputs |= changes if algorithm == "rloo" else {}  # its optional clip
        _, gradient = subject.policy_loss(**inputs)
        step, slope = 1e-6, np.zeros(gradient.shape)
        for index in np.argwhere(inputs["mask"]):
            nudge = np.zeros(gradient.shape)
            nudge[tuple(index)] = step
            up, down = (
                subject.policy_loss(**{**inputs, "policy": inputs["policy"] + side * nudge})[0] for side in (1, -1)
            )
            slope[tuple(index)] = (up - down) / (2 * step)
        np.testing.assert_allclose(gradient, slope, rtol=1e-6, atol=1e-9)
        assert not gradient[~inputs["mask"]].any()

    @pytest.mark.parametrize(
        "changes",
        [{}, {"beta": 0.3}, {"cispo_bound": "absolute", "epsilon_high": 0.7}],
        ids=["plain", "kl", "absolute"],
    )
    def test_cispo_gradient_is_the_slope_at_held_ratios(self, changes: dict[str, Any]) -> None:
        """If the old log-probs move with the policy, every ratio is constant, and the slope is the gradient."""
        inputs = {**loss_inputs("cispo", dapo_denominator="global"), **changes}
        _, gradient = subject.policy_loss(**inputs)
        slope = np.zeros(gradient.shape)
        for index in np.argwhere(inputs["mask"]):
            nudge = np.zeros(gradient.shape)
            nudge[tuple(index)] = 1e-6
            sides = [
                subject.policy_loss(**{**inputs, **{name: inputs[name] + side * nudge for name in ("policy", "old")}})[
                    0
                ]
                for side in (1, -1)
            ]
            slope[tuple(index)] = (sides[0] - sides[1]) / 2e-6
        np.testing.assert_allclose(gradient, slope, rtol=1e-6, atol=1e-9)

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_every_layout_gives_the_same_loss(self, algorithm: str) -> None:
        """A mask, equivalent lengths and flat arrays give the same loss and gradients."""
        inputs = loss_inputs(algorithm, dapo_denominator="group")
        mask = inputs["mask"]
        loss, gradient = subject.policy_loss(**inputs)
        by_length = {"mask": None, "lengths": mask.sum(axis=1)}
        prefix = subject.policy_loss(**{**inputs, **by_length})
        flat = {name: inputs[name][mask] for name in ("policy", "old", "reference")}
        ragged = subject.policy_loss(**{**inputs, **by_length, **flat})
        assert loss == prefix[0] == ragged[0]
        np.testing.assert_array_equal(prefix[1], gradient)
        np.testing.assert_array_equal(ragged[1], gradient[mask])

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_on_policy_gradient_is_alive(self, algorithm: str) -> None:
        """Without old log-probs the ratio is 1 and the gradient is that of old log-probs equal to the policy's."""
        inputs = loss_inputs(algorithm, dapo_denominator="global")
        loss, gradient = subject.policy_loss(**{**inputs, "old": None})
        same_loss, same_gradient = subject.policy_loss(**{**inputs, "old": inputs["policy"]})
        assert loss == same_loss
        np.testing.assert_array_equal(gradient, same_gradient)
        assert np.abs(gradient).max() > 1e-3

    def test_clip_acts_only_strictly_outside(self) -> None:
        """At the bound the gradient passes; one step beyond it is 0, on the side that the advantage's sign clips."""
        ratios = np.array([[1.25, np.nextafter(1.25, 2), 0.75, np.nextafter(0.75, 0)]])
        for sign, alive in ((1.0, [True, False, True, True]), (-1.0, [True, True, True, False])):
            value, slope = subject.clipped(ratios, np.full((1, 4), sign), 0.75, 1.25, INF)
            assert (slope[0] != 0).tolist() == alive
            assert np.all(value * sign < 0)

    def test_overflowing_ratio_is_never_nan(self) -> None:
        """A ratio beyond exp's range is clipped under A > 0, gives 0 under A = 0 and +inf under A < 0."""
        inputs = {"old": np.array([[-1000.0]]), "reference": None, "mask": np.ones((1, 1), bool), "algorithm": "grpo"}
        for gain, expected in ((1.0, -1.25), (0.0, 0.0), (-1.0, INF)):
            loss, gradient = subject.policy_loss(
                policy=np.zeros((1, 1)), advantages=np.array([gain]), epsilon_low=0.25, epsilon_high=0.25, **inputs
            )
            assert loss == expected
            assert not np.isnan(gradient).any()

    def test_token_advantages_reach_their_tokens(self) -> None:
        """An advantage per token equals one per row where it is constant, and differs where it is not."""
        inputs = loss_inputs("grpo")
        rows = np.repeat(inputs["advantages"][:, None], 5, axis=1)
        loss, _ = subject.policy_loss(**inputs)
        assert subject.policy_loss(**{**inputs, "advantages": rows})[0] == loss
        assert subject.policy_loss(**{**inputs, "advantages": rows * np.arange(5)})[0] != loss

    def test_float32_gradient_is_float32(self) -> None:
        """The gradient has the dtype of the policy's log-probs."""
        inputs = loss_inputs("dr_grpo")
        inputs["policy"] = inputs["policy"].astype(np.float32)
        assert subject.policy_loss(**inputs)[1].dtype == np.float32

    @pytest.mark.parametrize(
        ("algorithm", "changes", "message"),
        [
            pytest.param("topr", {}, "`algorithm` is 'topr'", id="algorithm"),
            pytest.param("grpo", {"delta": 1.3}, "`delta` is 1.3, must be above 1 \\+ epsilon_high", id="delta"),
            pytest.param("grpo", {"epsilon_low": None}, "`epsilon_low`", id="no-epsilon"),
            pytest.param("grpo", {"beta": 0.1, "reference": None}, "`beta` is 0.1", id="no-reference"),
            pytest.param("rloo", {"beta": 0.1}, "`beta` is 0.1", id="rloo-beta"),
            pytest.param("grpo", {"beta": 0.1, "kl_ratio": "row"}, "`kl_ratio` is 'row'", id="kl-ratio"),
            pytest.param("dr_grpo", {"max_length": None}, "`max_length` is None", id="no-max-length"),
            pytest.param("bnpo-trl", {"micro_batches": [2, 3]}, "`micro_batches` gives blocks", id="micro-batches"),
            pytest.param("dapo", {"dapo_denominator": None}, "`dapo_denominator` is None", id="no-denominator"),
            pytest.param("dapo", {"dapo_denominator": "group", "group_size": 4}, "`group_size` gives", id="groups"),
            pytest.param("gspo", {"advantages": np.zeros((6, 5))}, "`advantages` has shape", id="gspo-by-token"),
            pytest.param("grpo", {"advantages": np.zeros(5)}, "`advantages` has shape", id="advantages"),
            pytest.param("grpo", {"policy": np.zeros((0, 5))}, "`policy` has shape", id="no-rows"),
        ],
    )
    def test_errors_name_the_argument(self, algorithm: str, changes: dict[str, Any], message: str) -> None:
        """A missing or invalid convention raises a ValueError."""
        with pytest.raises(ValueError, match=message):
            subject.policy_loss(**{**loss_inputs(algorithm), **changes})

    def test_window_of_a_generation_batch(self) -> None:
        """TRL's denominator is the given one, and is required."""
        inputs = loss_inputs("dapo", dapo_denominator="trl")
        whole_step, _ = subject.policy_loss(**loss_inputs("dapo", dapo_denominator="global"))
        tokens = float(inputs["mask"].sum())
        assert subject.policy_loss(**inputs, tokens_in_step=2 * tokens)[0] == pytest.approx(whole_step / 2, rel=1e-15)
        with pytest.raises(ValueError, match="`tokens_in_step` is None"):
            subject.policy_loss(**inputs)


class TestSubject:
    """The ops of the subject."""

    def test_ops_answer_with_named_outputs(self) -> None:
        """Every op returns its declared outputs."""
        pair = np.array([[-1.0, -2.0]])
        calls = {
            "group_advantages": {"rewards": np.array([1.0, 2.0]), "group_size": 2},
            "token_kl": {"policy": pair, "reference": pair},
            "pack_sequences": {"lengths": np.array([1]), "max_length": 2},
            "policy_loss": loss_inputs("grpo"),
            "importance_ratio": {"policy": pair, "old": pair, "level": "token"},
            "importance_weights": {"old": pair, "sampling": pair, "correction": "tis", "level": "token", "c_max": 2.0},
        }
        outputs = {name: sorted(whole.OPS[name](**inputs)) for name, inputs in calls.items()}
        assert outputs == {
            "importance_ratio": ["ratio"],
            "importance_weights": ["weights"],
            "group_advantages": ["advantages"],
            "token_kl": ["kl"],
            "pack_sequences": ["efficiency", "indices", "offsets"],
            "policy_loss": ["gradient", "loss"],
        }
        assert set(whole.OPS) >= {*calls, "ratio_statistics"}

    @pytest.mark.parametrize(
        ("module", "target", "mistake"),
        [
            (whole.advantages, "scale_divisor", lambda *_: np.full((1, 1), 2.0)),
            (whole.advantages, "constant_groups", lambda rewards: np.ones(len(rewards), bool)),
            (terms, "k3", lambda d: d * 0.0),
            (terms, "select", lambda values, _: values),
            (terms, "total", lambda values: float(values.size)),
            (subject, "dr_grpo_denominator", lambda mask, _: float(mask.size)),
            (subject, "old_or_policy", lambda policy, _: policy),
            (subject, "clipped", lambda ratio, gain, *_: (ratio * gain, ratio * gain)),
            (subject, "estimate", lambda d, *_: (d, d)),
            (numpy_ratio, "token_ratio", lambda policy, _: np.ones_like(policy)),
        ],
    )
    def test_patch_targets_are_alive(
        self, module: Any, target: str, mistake: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Replacing a patch target changes the results of the ops."""

        def answers() -> list[bytes]:
            inputs = loss_inputs("dr_grpo", beta=0.1)
            loss, gradient = subject.policy_loss(**inputs)
            spread = whole.advantages.group_advantages(np.array([1.0, 3.0, 0.0, 8.0]), 2)
            kl = whole.kl.token_kl(inputs["policy"], inputs["reference"], mask=inputs["mask"])
            return [np.float64(loss).tobytes(), gradient.tobytes(), spread.tobytes(), kl.tobytes()]

        before = answers()
        monkeypatch.setattr(module, target, mistake)
        assert answers() != before


def test_an_overflowing_kl_is_infinite_and_never_nan() -> None:
    """At d = 1000 k3 is +inf and its slope -inf, with an exact and with a rounded difference."""
    for lost in (0.0, 1e-14):
        with np.errstate(over="ignore"):
            value, slope = subject.estimate(np.array([1000.0]), np.array([lost]), "k3")
        assert value.tolist() == [INF]
        assert slope.tolist() == [-INF]
