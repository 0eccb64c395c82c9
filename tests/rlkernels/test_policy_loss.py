"""`rlkernels.policy_loss`: every algorithm against its definition in 50 digits, its layouts, metrics and messages."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

import rlkernels

FLOATS = [np.float32, np.float64]
LIMIT = {np.float32: 4 * 2 * 2.0**-24, np.float64: 8 * 2 * 2.0**-53}
BOUNDS = {"epsilon_low": 0.25, "epsilon_high": 0.5}
SETTINGS: dict[str, dict[str, Any]] = {
    "grpo": BOUNDS | {"delta": 2.0},
    "dapo": BOUNDS | {"dapo_denominator": "group", "group_size": 2},
    "bnpo-trl": BOUNDS | {"micro_batches": [1, 3]},
    "dr_grpo": BOUNDS | {"max_length": 9},
    "gspo": BOUNDS,
    "gspo-token": BOUNDS,
    "rloo": {},
    "cispo": {"epsilon_high": 0.5, "cispo_bound": "relative", "dapo_denominator": "trl", "tokens_in_step": 21.5},
    "sapo": {"sapo_temperature_positive": 1.5, "sapo_temperature_negative": 2.0},
    "gmpo": BOUNDS,
    "luspo": BOUNDS,
}
STEP = mpmath.mpf(10) ** -25


def definition(step: dict[str, list[list[Any]]], frozen: list[list[Any]], algorithm: str, beta: float) -> Any:
    """The loss of rows of tokens in mpmath; what the papers hold constant is taken of `frozen`."""
    low, high = 1 - BOUNDS["epsilon_low"], 1 + BOUNDS["epsilon_high"]
    counts = [len(row) for row in step["policy"]]
    losses = []
    for i, policy in enumerate(step["policy"]):
        d = [p - o for p, o in zip(policy, step["old"][i], strict=True)]
        d_frozen = [p - o for p, o in zip(frozen[i], step["old"][i], strict=True)]
        a, n = step["advantages"][i], len(policy)
        mean = mpmath.exp(mpmath.fsum(d) / n)
        for t, lp in enumerate(policy):
            r = mpmath.exp(d[t])
            if algorithm in {"gspo", "luspo"}:
                r = mean
            if algorithm == "gspo-token":
                r = mpmath.exp(mpmath.fsum(d_frozen) / n) * mpmath.exp(lp - frozen[i][t])
            capped = min(r, 2.0) if algorithm == "grpo" else r
            loss = -min(capped * a, min(max(r, low), high) * a)
            if algorithm == "rloo":
                loss = -mpmath.exp(mpmath.fsum(d)) * a
            if algorithm == "cispo":
                loss = -min(mpmath.exp(d_frozen[t]), high) * a * lp
            if algorithm == "sapo":
                tau = 1.5 if a > 0 else 2.0
                loss = -(4 / mpmath.mpf(tau)) / (1 + mpmath.exp(-tau * (r - 1))) * a
            if algorithm == "gmpo":
                loss = -mpmath.exp(mpmath.fsum(min(x, 0.5) if a > 0 else max(x, -0.25) for x in d) / n) * a
            away = step["reference"][i][t] - lp
            losses.append((i, loss + beta * (mpmath.exp(away) - 1 - away)))
    pairs = [sum(counts[:2]), sum(counts[2:])]
    share = {
        "dapo": lambda i: mpmath.mpf(1) / (2 * pairs[i // 2]),
        "bnpo-trl": lambda i: mpmath.mpf(1) / (2 * (counts[0] if i == 0 else sum(counts[1:]))),
        "dr_grpo": lambda _: mpmath.mpf(1) / (4 * 9),
        "cispo": lambda _: 1 / mpmath.mpf(21.5),
        "luspo": lambda _: mpmath.mpf(1) / 4,
    }.get(algorithm, lambda i: mpmath.mpf(1) / (4 * counts[i]))
    return mpmath.fsum(share(i) * loss for i, loss in losses)


def rows(seed: int, kind: Any) -> dict[str, Any]:
    """Four rows of three to five tokens whose ratios reach from exp(-3) to exp(3)."""
    numbers = np.random.default_rng(seed)
    lengths = np.array([3, 5, 4, 3])
    policy = -4 * numbers.random(15)
    return {
        "lengths": lengths,
        "policy": policy.astype(kind),
        "old": (policy + numbers.choice([0.01, 0.45, 3.0], 15) * numbers.standard_normal(15).clip(-1, 1)).astype(kind),
        "reference": (policy + 0.5 * numbers.standard_normal(15)).astype(kind),
        "advantages": numbers.standard_normal(4).astype(kind),
    }


class TestDefinition:
    """Loss and gradient are within k * 2u of the definition's, the gradient by differences in 50 digits."""

    @pytest.mark.parametrize("algorithm", SETTINGS)
    @pytest.mark.parametrize("kind", FLOATS)
    @pytest.mark.parametrize("seed", range(3))
    def test_loss_and_gradient(self, algorithm: str, kind: Any, seed: int) -> None:
        """Rows of three to five tokens, with a KL term where the algorithm has one."""
        step = rows(seed, kind)
        beta = 0.0 if algorithm == "rloo" else 0.125
        got = rlkernels.policy_loss(**step, algorithm=algorithm, beta=beta, **SETTINGS[algorithm])
        with mpmath.workdps(50):
            ends = np.cumsum(step["lengths"])
            exact: dict[str, Any] = {
                name: [[mpmath.mpf(float(x)) for x in row] for row in np.split(step[name], ends[:-1])]
                for name in ("policy", "old", "reference")
            }
            exact["advantages"] = [mpmath.mpf(float(a)) for a in step["advantages"]]
            frozen = [list(row) for row in exact["policy"]]

            def loss(row: int, token: int, move: Any, weight: float) -> Any:
                moved = [list(x) for x in frozen]
                moved[row][token] += move
                return definition(exact | {"policy": moved}, frozen, algorithm, weight)

            def slope(row: int, token: int, weight: float) -> Any:
                return (loss(row, token, STEP, weight) - loss(row, token, -STEP, weight)) / (2 * STEP)

            want = loss(0, 0, 0, beta)
            size = abs(loss(0, 0, 0, 0.0)) + abs(want - loss(0, 0, 0, 0.0))
            terms = size + mpmath.fsum(abs(a) for a in exact["advantages"])  # at least what the terms add up to
            assert abs(got.loss - want) <= LIMIT[kind] * terms
            gradient = np.split(got.gradient, ends[:-1])
            for row, values in enumerate(gradient):
                for token, value in enumerate(values):
                    whole, policy_part = slope(row, token, beta), slope(row, token, 0.0)
                    scale = abs(policy_part) + abs(whole - policy_part)
                    if algorithm == "sapo":
                        scale *= 1 + 2 * np.exp(float(step["policy"][token] - step["old"][token]).__abs__() + 3)
                    assert abs(float(value) - whole) <= LIMIT[kind] * scale + mpmath.mpf(10) ** -20

    def test_by_hand(self) -> None:
        """One token of ratio e**0.5 = 1.65: A > 0 is held at 1.5 without a gradient, A < 0 is not held."""
        arrays = {"policy": np.array([[-0.5], [-0.5]]), "old": np.array([[-1.0], [-1.0]])}
        got = rlkernels.policy_loss(**arrays, advantages=np.array([1.0, -1.0]), algorithm="grpo", **BOUNDS)
        np.testing.assert_allclose(got.gradient, [[0.0], [np.exp(0.5) / 2]], rtol=1e-15)
        assert got.loss == pytest.approx((np.exp(0.5) - 1.5) / 2, rel=1e-15)


class TestLayouts:
    """The same step in other layouts has the same bits, and what is no token is never used."""

    @pytest.mark.parametrize("algorithm", SETTINGS)
    @pytest.mark.parametrize("kind", FLOATS)
    def test_padding_is_inert(self, algorithm: str, kind: Any) -> None:
        """Mask, prefix and ragged agree, and NaN in the padding changes nothing."""
        flat = rows(7, kind)
        lengths = flat.pop("lengths")
        mask = np.arange(6) < lengths[:, None]
        wide = {name: np.full(mask.shape, np.nan, kind) for name in ("policy", "old", "reference")}
        for name, array in wide.items():
            array[mask] = flat[name]
        options = {"algorithm": algorithm, "beta": 0.0 if algorithm == "rloo" else 0.5, **SETTINGS[algorithm]}
        ragged = rlkernels.policy_loss(**flat, lengths=lengths, **options)
        for layout in ({"mask": mask}, {"lengths": lengths}):
            padded = rlkernels.policy_loss(**wide, advantages=flat["advantages"], **layout, **options)
            assert padded.loss == ragged.loss
            assert padded.gradient.dtype == kind
            np.testing.assert_array_equal(padded.gradient[mask], ragged.gradient)
            assert not padded.gradient[~mask].view(np.uint8).any()
            assert padded.metrics == ragged.metrics

    def test_out_takes_the_gradient(self) -> None:
        """The array that was given comes back; one that an input lies in is refused."""
        step = rows(1, np.float64)
        out = np.empty(15)
        got = rlkernels.policy_loss(**step, algorithm="grpo", **BOUNDS, out=out)
        assert got.gradient is out
        with pytest.raises(ValueError, match="`out` shares memory with an input"):
            rlkernels.policy_loss(**step, algorithm="grpo", **BOUNDS, out=step["policy"])

    def test_weights_leave_the_kl_alone(self) -> None:
        """Weights of 0 leave the same as advantages of 0."""
        step = rows(2, np.float64)
        options: dict[str, Any] = {"algorithm": "grpo", "beta": 1.0, **BOUNDS}
        nothing = rlkernels.policy_loss(**step, weights=np.zeros(4), **options)
        only_kl = rlkernels.policy_loss(**step | {"advantages": np.zeros(4)}, **options)
        assert nothing.loss == only_kl.loss
        np.testing.assert_array_equal(nothing.gradient, only_kl.gradient)


class TestMetrics:
    """What a step logs."""

    def test_names(self) -> None:
        """Only what the algorithm has is there."""
        step = rows(3, np.float32)
        common = {"tokens", "sequences", "ratio_mean", "ratio_min", "ratio_max", "ratio_k3"}
        of = {name: rlkernels.policy_loss(**step, algorithm=name, **SETTINGS[name]).metrics for name in SETTINGS}
        assert set(of["rloo"]) == common
        assert set(of["cispo"]) == common | {"outside_high", "clipped_high"}
        sides = {"outside_low", "outside_high", "clipped_low", "clipped_high"}
        assert set(of["gspo"]) == common | sides
        assert set(of["grpo"]) == common | sides | {"clipped_delta"}

    def test_values(self) -> None:
        """Every number is NumPy's."""
        step = rows(3, np.float64)
        found = rlkernels.policy_loss(**step, algorithm="grpo", beta=0.5, **BOUNDS).metrics
        d = step["policy"] - step["old"]
        ratio, sign = np.exp(d), np.repeat(step["advantages"], step["lengths"])
        away = step["reference"] - step["policy"]
        want = {
            "tokens": 15.0,
            "sequences": 4.0,
            "ratio_mean": ratio.mean(),
            "ratio_min": ratio.min(),
            "ratio_max": ratio.max(),
            "ratio_k3": np.mean(ratio - 1 - d),
            "outside_low": np.mean(ratio < 0.75),
            "outside_high": np.mean(ratio > 1.5),
            "clipped_low": np.mean((ratio < 0.75) & (sign < 0)),
            "clipped_high": np.mean((ratio > 1.5) & (sign > 0)),
            "kl": np.mean(np.expm1(away) - away),
        }
        assert found == pytest.approx(want, rel=1e-13)


class TestMessages:
    """What is wrong is named with its value."""

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"algorithm": "ppo"}, '`algorithm` is "ppo", must be one of "grpo"'),
            ({"delta": 1.5}, "`delta` is 1.5, must be finite and above 1 \\+ `epsilon_high` = 1.5"),
            (
                {"algorithm": "cispo", "epsilon_low": None, "epsilon_high": None, "cispo_bound": "absolute"}
                | {"dapo_denominator": "global"},
                '`epsilon_high` is not given, must be for algorithm "cispo" as it is set',
            ),
            ({"max_length": 4}, "`max_length` is 4, must be None"),
            ({"micro_batches": np.array([4])}, "`micro_batches` is given, must be None"),
            ({"kl_estimator": "k4"}, '`kl_estimator` is "k4", must be one of "k1", "k2", "k3"'),
            ({"beta": 1.0, "reference": None}, "`reference` is not given, must be where `beta` is 1"),
            (
                {"advantages": np.zeros(3)},
                r"`advantages` has shape \(3,\), must be \(4,\), one for every row, or \(15,\)",
            ),
            ({"policy": np.full(15, np.nan)}, "`policy` is NaN in row 0, slot 0, must be finite on tokens"),
        ],
    )
    def test_wrong_values(self, change: dict[str, Any], message: str) -> None:
        """The argument, what was found, what must be."""
        step = rows(4, np.float64) | {"algorithm": "grpo"} | BOUNDS | change
        with pytest.raises(ValueError, match=message):
            rlkernels.policy_loss(**step)

    def test_another_type(self) -> None:
        """Nothing is converted silently."""
        step = rows(4, np.float64)
        step["old"] = step["old"].astype(np.float32)
        with pytest.raises(TypeError, match="`policy` is float64 and `old` is float32"):
            rlkernels.policy_loss(**step, algorithm="grpo", **BOUNDS)


class TestPickle:
    """What `policy_loss` returns goes to other processes."""

    @pytest.mark.parametrize(
        "through",
        [copy.copy, copy.deepcopy, lambda loss: pickle.loads(pickle.dumps(loss))],  # noqa: S301  a pickle of our own
        ids=["copy", "deepcopy", "pickle"],
    )
    def test_it_comes_back_as_it_was(self, through: Callable[[Any], Any]) -> None:
        """Loss, gradient, metrics and what is shown, to the bit, once more through the same."""
        policy = np.random.default_rng(5).normal(-2.0, 0.5, (4, 6)).astype(np.float32)
        found = rlkernels.policy_loss(
            policy, old=policy - np.float32(0.1), advantages=np.ones(4, np.float32), algorithm="rloo"
        )
        again = through(found)
        for back in (again, through(again)):
            assert type(back) is rlkernels.PolicyLoss
            assert (back.loss, back.metrics, repr(back)) == (found.loss, found.metrics, repr(found))
            assert list(back.metrics) == list(found.metrics)
            assert back.gradient.dtype == np.float32
            assert np.array_equal(back.gradient, found.gradient)
        again.metrics["kl"] = 1.0
        assert again.metrics == found.metrics

    def test_other_arguments_are_refused(self) -> None:
        """The constructor takes a number, an array and a dictionary."""
        with pytest.raises(TypeError, match="metrics"):
            rlkernels.PolicyLoss(1.0, np.zeros(2), [("tokens", 2.0)])  # type: ignore[arg-type]
