"""The GRPO loss in MLX, and the path from logits to it."""

import math

import numpy as np
import pytest

from gates.subjects.mlx_trainer import loss as subject
from reference.oracle import logprobs as oracle_logprobs
from reference.oracle import losses

UNIT = 2.0**-23
LIMIT = 4.0
"""docs/definitions.md, "Accuracy": k = 4 for float32 data."""
CONSTANTS = {
    "algorithm": "grpo",
    "epsilon_low": 0.25,
    "epsilon_high": 0.25,
    "delta": None,
    "beta": 0.0,
    "kl_ratio": "none",
    "kl_estimator": "k3",
}


def _loss(policy: list[list[float]], old: object, advantages: list[float], mask: object, **changes: object) -> dict:
    rows = [np.array(x, np.float32) if x is not None else None for x in (policy, old, changes.pop("reference", None))]
    return subject.policy_loss(
        policy=rows[0],
        old=rows[1],
        reference=rows[2],
        advantages=np.array(advantages, np.float32),
        mask=np.array(mask, bool),
        **{**CONSTANTS, **changes},
    )


class TestByHand:
    """Losses and gradients worked out on paper."""

    def test_two_rows(self) -> None:
        """Two rows with one clipped, one free and two on-policy ratios give the loss worked out here."""
        # Row 0, A = 1: ratios 2 (clipped to 1.25) and 1: l = -1.25, -1; mean -1.125; its clipped token has no gradient,
        # the other -A r / (n B) = -1/4. Row 1, A = -2: ratio 1/2 is below 0.75: max(.5, .75) = .75, l = 1.5, clipped.
        # One token only: mean 1.5. Loss (-1.125 + 1.5) / 2 = 0.1875.
        two = math.log(2)
        result = _loss([[-1, -1], [-1 - two, -9]], [[-1 - two, -1], [-1, -3]], [1, -2], [[1, 1], [1, 0]])
        assert result["loss"] == pytest.approx(0.1875, rel=1e-6)
        assert result["gradient"].tolist() == [[0.0, -0.25], [0.0, 0.0]]

    def test_on_policy_ratio_is_one_with_a_gradient(self) -> None:
        """Without old log-probs the loss is -mean A and the gradient -A / (n B)."""
        result = _loss([[-1, -2], [-3, -4]], None, [1, -3], [[1, 1], [1, 1]])
        assert result["loss"] == 1.0  # -(1 - 3) / 2
        assert result["gradient"].tolist() == [[-0.25, -0.25], [0.75, 0.75]]

    def test_kl(self) -> None:
        """With A = 0 and d = reference - policy = ln 2 the loss is beta (2 - 1 - ln 2), its gradient -beta (2 - 1)."""
        two = math.log(2)
        result = _loss([[-1 - two]], None, [0], [[1]], reference=[[-1]], beta=0.5)
        assert result["loss"] == pytest.approx(0.5 * (1 - two), rel=1e-6)
        assert result["gradient"][0, 0] == pytest.approx(-0.5, rel=1e-6)

    def test_delta_bounds_the_ratio_of_a_negative_advantage(self) -> None:
        """With A = -1, r = 4 and delta = 2 the loss is 2 and flat; without delta it is 4 with slope 4."""
        four = math.log(4)
        bounded = _loss([[0]], [[-four]], [-1], [[1]], delta=2.0)
        assert (bounded["loss"], bounded["gradient"].tolist()) == (2.0, [[0.0]])
        free = _loss([[0]], [[-four]], [-1], [[1]])
        assert (free["loss"], free["gradient"][0, 0]) == (pytest.approx(4), pytest.approx(4))

    def test_a_row_without_tokens_counts(self) -> None:
        """Two rows, one empty: the loss is half the other's."""
        assert _loss([[-1], [-1]], None, [-1, 5], [[1], [0]])["loss"] == 0.5


class TestMasks:
    """What masked slots and overflowing ratios may do: nothing, and never NaN."""

    @pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf], ids=str)
    def test_masked_slots_do_not_matter(self, poison: float) -> None:
        """Any value in a masked slot of any input leaves value and gradient as they were, and its own gradient 0."""
        rng = np.random.default_rng(0)
        mask = np.array([[1, 1, 0], [1, 0, 0]], bool)
        clean = [rng.normal(-1, 0.3, (2, 3)).astype(np.float32) for _ in range(3)]
        dirty = [np.where(mask, x, np.float32(poison)) for x in clean]
        results = [
            subject.policy_loss(
                policy=policy,
                old=old,
                reference=ref,
                advantages=np.array([1, -1], np.float32),
                mask=mask,
                **CONSTANTS | {"beta": 0.1},
            )
            for policy, old, ref in (clean, dirty)
        ]
        assert results[0]["loss"] == results[1]["loss"]
        assert np.array_equal(results[0]["gradient"], results[1]["gradient"])
        assert (results[1]["gradient"][~mask] == 0).all()

    @pytest.mark.parametrize(
        ("advantage", "loss"), [(1.0, -1.25), (-1.0, math.inf), (0.0, 0.0)], ids=["clipped", "open", "zero"]
    )
    def test_an_overflowing_ratio_is_infinite_and_never_nan(self, advantage: float, loss: float) -> None:
        """R = exp(200): clipped for A > 0, +inf for A < 0, nothing for A = 0."""
        result = _loss([[0]], [[-200]], [advantage], [[1]])
        assert result["loss"] == loss
        assert result["gradient"][0, 0] == (math.inf if advantage < 0 else 0)


@pytest.mark.parametrize("beta", [0.0, 0.04], ids=["plain", "kl"])
@pytest.mark.parametrize("delta", [None, 2.0], ids=["two-bounds", "delta"])
@pytest.mark.parametrize("spread", [0.01, 0.5, 4.0])
def test_loss_and_gradient_are_the_oracles(spread: float, delta: float | None, beta: float) -> None:
    """Over random rows value and gradient are the float64 oracle's to 4 roundings of their scale."""
    rng = np.random.default_rng(int(100 * spread))
    policy = rng.normal(-2, 1, (6, 50)).astype(np.float32)
    inputs = {
        "old": (policy + rng.normal(0, spread, policy.shape)).astype(np.float32),
        "reference": (policy + rng.normal(0, spread, policy.shape)).astype(np.float32),
        "advantages": rng.normal(0, 1, 6).astype(np.float32),
        "mask": np.arange(50) < np.array([50, 1, 7, 0, 31, 44])[:, None],
    }
    constants = CONSTANTS | {"delta": delta, "beta": float(np.float32(beta))}
    want = losses.policy_loss(policy, **inputs, **constants)
    got = subject.policy_loss(policy=policy, **inputs, **constants)
    assert abs(got["loss"] - want.loss) <= LIMIT * UNIT * want.loss_scale
    far = ~want.near_branch
    assert (np.abs(got["gradient"] - want.gradient) <= LIMIT * UNIT * want.gradient_scale)[far].all()


class TestFromLogits:
    """The trainer's own path from logits to the loss."""

    LENGTHS = np.array([3, 1, 4])
    PROMPTS = np.array([2, 5, 1])

    def _inputs(self) -> dict:
        rng = np.random.default_rng(1)
        return {
            "logits": rng.normal(0, 2, (3, 8, 11)).astype(np.float32),
            "ids": rng.integers(0, 11, (3, 8)).astype(np.int32),
            "prompt_lengths": self.PROMPTS,
            "lengths": self.LENGTHS,
            "old": None,
            "reference": None,
            "advantages": np.array([1.0, -0.5, 0.25], np.float32),
            "temperature": 0.7,
        }

    def test_logprobs_are_the_oracles(self) -> None:
        """The logits at position t score token t + 1, at the temperature, 0 past the end."""
        inputs = self._inputs()
        found = subject.loss_from_logits(**inputs, **CONSTANTS)["logprobs"]
        names = ("logits", "ids", "prompt_lengths", "lengths")
        want = oracle_logprobs.completion_logprobs(*(inputs[name] for name in names), 4, temperature=0.7)
        assert np.abs(found - want).max() < 2e-6
        assert (found[np.arange(4) >= self.LENGTHS[:, None]] == 0).all()

    def test_gradient_is_zero_where_no_completion_token_is_scored(self) -> None:
        """Even with NaN in every other logit only scoring positions have a gradient, and it is finite."""
        inputs = self._inputs()
        scores = np.zeros((3, 8), bool)
        for row in range(3):  # prompt of P tokens, completion of n: positions P - 1 .. P + n - 2 score
            scores[row, self.PROMPTS[row] - 1 : self.PROMPTS[row] + self.LENGTHS[row] - 1] = True
        clean = subject.loss_from_logits(**inputs, **CONSTANTS)["gradient"]
        inputs["logits"] = np.where(scores[..., None], inputs["logits"], np.float32(np.nan))
        poisoned = subject.loss_from_logits(**inputs, **CONSTANTS)["gradient"]
        assert np.array_equal(clean, poisoned)
        assert ((np.abs(clean).max(axis=2) > 0) == scores).all()

    def test_large_vocabulary_is_accurate(self) -> None:
        """At V = 152,000 the log-probs are right to 2e-6 nats, where MLX's own logsumexp is off by more than 1e-5."""
        rng = np.random.default_rng(2)
        logits = rng.normal(0, 1, (1, 3, 152_000)).astype(np.float32)
        found = subject.loss_from_logits(
            **self._inputs()
            | {
                "logits": logits,
                "ids": np.array([[1, 2, 3]], np.int32),
                "prompt_lengths": np.array([1]),
                "lengths": np.array([2]),
            }
            | {"advantages": np.ones(1, np.float32), "temperature": 1.0},
            **CONSTANTS,
        )["logprobs"]
        exact = logits[0].astype(np.float64)
        want = [exact[0, 2] - np.logaddexp.reduce(exact[0]), exact[1, 3] - np.logaddexp.reduce(exact[1])]
        assert np.abs(found[0] - want).max() < 2e-6


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"algorithm": "trpo"}, NotImplementedError),
        ({"cispo_bound": "relative"}, ValueError),
        ({"delta": 1.1}, ValueError),
        ({"beta": 0.1}, ValueError),
        ({"frobnicate": 1}, TypeError),
    ],
    ids=["algorithm", "anothers", "delta", "no-reference", "unknown"],
)
def test_what_is_not_offered_is_said(changes: dict[str, object], error: type[Exception]) -> None:
    """Unsupported conventions, impossible values and unknown keywords have their own errors."""
    with pytest.raises(error):
        _loss([[-1]], None, [1], [[1]], **changes)
