"""Preference losses equal hand computations and 60-digit definitions, and their gradients central differences of these."""

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

from gates_reference.oracle import preference as oracle
from gates_reference.oracle.preference_choice import best_of_n, prefer

MASK = np.array([[0, 1, 1, 1], [0, 1, 1, 0], [1, 1, 0, 0], [0, 1, 1, 1], [1, 1, 1, 1], [0, 0, 1, 0]], bool)
CONSTANTS: dict[str, dict[str, Any]] = {
    "dpo": {"loss": "dpo", "beta": 0.3, "label_smoothing": 0.0},
    "dpo-smoothed": {"loss": "dpo", "beta": 0.3, "label_smoothing": 0.2},
    "dpo-reference-free": {"loss": "dpo", "beta": 0.3, "label_smoothing": 0.0, "reference": None},
    "hinge": {"loss": "hinge", "beta": 0.3},
    "ipo-sum": {"loss": "ipo", "beta": 0.3, "lengths": "sum"},
    "ipo-mean": {"loss": "ipo", "beta": 0.3, "lengths": "mean"},
    "dpop": {"loss": "dpop", "beta": 0.3, "penalty": 5.0},
    "orpo": {"loss": "orpo", "beta": 0.3, "reference": None},
    "simpo": {"loss": "simpo", "beta": 2.0, "margin": 0.5, "reference": None},
    "cpo": {"loss": "cpo", "beta": 0.3, "nll": 0.7, "reference": None},
}


def batch() -> dict[str, Any]:
    """Three pairs; NaN in masked slots."""
    rng = np.random.default_rng(8)
    policy = rng.uniform(-3, -0.3, MASK.shape)
    reference = policy + rng.normal(0, 0.8, MASK.shape)
    return {name: np.where(MASK, x, math.nan) for name, x in (("policy", policy), ("reference", reference))} | {
        "mask": MASK
    }


def definition(given: dict[str, Any], policy: Any = None) -> Any:
    """The loss as the papers write it, in mpmath, for log-probs as nested lists."""
    mp = mpmath.mpf
    lp = given["policy"].tolist() if policy is None else policy
    ref = np.zeros(MASK.shape).tolist() if given["reference"] is None else given["reference"].tolist()
    rows = [[t for t in range(4) if MASK[i, t]] for i in range(6)]
    sums = [mpmath.fsum(mp(lp[i][t]) for t in rows[i]) for i in range(6)]
    ratios = [mpmath.fsum(mp(lp[i][t]) - mp(ref[i][t]) for t in rows[i]) for i in range(6)]
    beta = mp(given["beta"])

    def log_sigmoid(x: Any) -> Any:
        return -mpmath.log(1 + mpmath.exp(-x))

    def odds(i: int) -> Any:
        p = mpmath.exp(sums[i] / len(rows[i]))
        return mpmath.log(p / (1 - p))

    chosen_tokens = sum(len(rows[i]) for i in (0, 2, 4))
    losses: dict[str, Callable[[int, int], Any]] = {
        "dpo": lambda c, r: (
            -(1 - mp(given["label_smoothing"])) * log_sigmoid(beta * (ratios[c] - ratios[r]))
            - mp(given["label_smoothing"]) * log_sigmoid(-beta * (ratios[c] - ratios[r]))
        ),
        "hinge": lambda c, r: max(mp(0), 1 - beta * (ratios[c] - ratios[r])),
        "ipo": lambda c, r: (
            (
                (
                    ratios[c] - ratios[r]
                    if given["lengths"] == "sum"
                    else ratios[c] / len(rows[c]) - ratios[r] / len(rows[r])
                )
                - 1 / (2 * beta)
            )
            ** 2
        ),
        "dpop": lambda c, r: (
            -log_sigmoid(beta * (ratios[c] - ratios[r]) - beta * mp(given["penalty"]) * max(mp(0), -ratios[c]))
        ),
        "orpo": lambda c, r: -sums[c] / len(rows[c]) - beta * log_sigmoid(odds(c) - odds(r)),
        "simpo": lambda c, r: (
            -log_sigmoid(beta * (sums[c] / len(rows[c]) - sums[r] / len(rows[r])) - mp(given["margin"]))
        ),
        "cpo": lambda c, r: (
            -log_sigmoid(beta * (sums[c] - sums[r])) - mp(given["nll"]) * (sums[0] + sums[2] + sums[4]) / chosen_tokens
        ),
    }
    return mpmath.fsum(losses[given["loss"]](2 * k, 2 * k + 1) for k in range(3)) / 3


@pytest.mark.parametrize("name", CONSTANTS)
def test_loss_and_gradient(name: str) -> None:
    """The loss agrees with 60 digits to 1e-14, the gradient with central differences of them to 1e-13; masked slots are 0."""
    given = batch() | CONSTANTS[name]
    got = oracle.preference_loss(**given)
    with mpmath.workdps(60):
        assert got.loss == pytest.approx(float(definition(given)), rel=1e-14)
        step = mpmath.mpf(10) ** -20
        for i, t in np.argwhere(MASK):
            found = []
            for sign in (1, -1):
                moved = [[mpmath.mpf(x) for x in row] for row in np.nan_to_num(given["policy"]).tolist()]
                moved[i][t] += sign * step
                found.append(definition(given, moved))
            assert got.gradient[i, t] == pytest.approx(float((found[0] - found[1]) / (2 * step)), rel=1e-12, abs=1e-15)
    assert not got.gradient[~MASK].any()
    assert (got.gradient_scale >= np.abs(got.gradient) * (1 - 1e-14)).all()
    assert got.loss_scale >= abs(got.loss) * (1 - 1e-14)


class TestByHand:
    """One pair of one token each: policy 0 against -2, reference -1 and -1.5, so Delta = beta (1 + 0.5)."""

    POLICY, REFERENCE = np.array([[-0.5], [-2.0]]), np.array([[-1.5], [-1.5]])

    def test_kto(self) -> None:
        """Z0 = max(0, (1 - 0.5)/2) = 0.25: rows of ratio 1 (good) and -0.5 (bad) with beta 2 and weights 1.5 and 1."""
        found = oracle.kto_loss(
            self.POLICY,
            reference=self.REFERENCE,
            mask=np.ones((2, 1)),
            desirable=[1, 0],
            mismatched=[1.0, -0.5],
            beta=2.0,
            desirable_weight=1.5,
            undesirable_weight=1.0,
        )
        up, down = 1 / (1 + math.exp(-2 * 0.75)), 1 / (1 + math.exp(-2 * 0.75))
        assert found.loss == pytest.approx((1.5 * (1 - up) + (1 - down)) / 2, rel=1e-14)
        slope = 2 * up * (1 - up)
        assert found.gradient[:, 0] == pytest.approx([-1.5 * slope / 2, slope / 2], rel=1e-14)

    def test_kto_anchor_is_never_negative(self) -> None:
        """With a negative mean of mismatched ratios z0 is 0."""
        given = {"reference": self.REFERENCE, "mask": np.ones((2, 1)), "desirable": [1, 1], "beta": 1.0}
        weights = {"desirable_weight": 1.0, "undesirable_weight": 1.0}
        found = [oracle.kto_loss(self.POLICY, **given, **weights, mismatched=[x]).loss for x in (-3.0, 0.0)]
        assert found[0] == found[1]

    @pytest.mark.parametrize("name", ["dpo", "hinge", "dpop", "cpo"])
    def test_huge_margins_do_not_overflow(self, name: str) -> None:
        """A margin of 1e5 the wrong way costs that much; the right way nothing, and neither is NaN."""
        for good in (True, False):
            policy = np.array([[0.0], [-1e5]])[:: 1 if good else -1]
            given = CONSTANTS[name] | {"beta": 1.0, "reference": None}
            found = oracle.preference_loss(policy, mask=np.ones((2, 1)), **given)
            assert np.isfinite(found.loss)
            assert np.isfinite(found.gradient).all()


class TestChoices:
    """Who wins."""

    @pytest.mark.parametrize(
        ("scores", "want"),
        [
            ([1, 0], [1, -1]),
            ([0, 1], [-1, 1]),
            ([1, 1], [1, -1]),
            ([math.nan, 1], [0, 0]),
            ([-math.inf, -math.inf], [1, -1]),
        ],
        ids=["first", "second", "tie", "unscored", "both-worst"],
    )
    def test_prefer(self, scores: list[float], want: list[float]) -> None:
        """The higher score is chosen, a tie takes the first, and without two scores nothing is."""
        assert prefer(scores).tolist() == want

    @pytest.mark.parametrize(
        ("scores", "want"),
        [([1, 3, 2], 1), ([3, 3, 2], 0), ([math.nan, 1, 1], 1), ([-math.inf, math.nan, -math.inf], 0)],
        ids=["highest", "tie", "nan", "worst-of-all"],
    )
    def test_best_of_n(self, scores: list[float], want: int) -> None:
        """The highest score that is no NaN wins, and the first of several."""
        assert best_of_n(scores, 3).tolist() == [want]

    def test_groups_are_independent(self) -> None:
        """Winners are rows of the whole batch."""
        assert best_of_n([1, 2, 4, 3], 2).tolist() == [1, 2]

    @pytest.mark.parametrize(
        ("call", "words"),
        [
            (lambda: best_of_n([1, 2, math.nan, math.nan], 2), "group 1 are all NaN"),
            (lambda: best_of_n([1, 2, 3], 2), "multiple of group_size 2"),
            (lambda: prefer([1, 2, 3]), "3 elements, must be two"),
        ],
        ids=["all-nan", "uneven", "odd"],
    )
    def test_errors(self, call: Callable[[], Any], words: str) -> None:
        with pytest.raises(ValueError, match=words):
            call()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"loss": "dpoo"}, "`loss` is 'dpoo'"),
        ({"beta": 0.0}, "`beta` is 0.0"),
        ({"label_smoothing": 0.5}, "`label_smoothing` is 0.5"),
        ({"label_smoothing": None}, "`label_smoothing` is None"),
        ({"lengths": "sum"}, "`lengths` is sum, must be None for 'dpo'"),
        ({"policy": np.zeros((3, 4)), "mask": np.ones((3, 4)), "reference": None}, "3 rows, must be pairs"),
        ({"loss": "simpo", "margin": 0.1, "label_smoothing": None}, "`reference` is given"),
        ({"loss": "orpo", "label_smoothing": None, "reference": None, "policy": np.zeros((6, 4))}, "probability 1"),
    ],
    ids=["loss", "beta", "smoothing", "missing", "anothers", "odd", "reference", "certain"],
)
def test_what_does_not_fit_is_an_error(changes: dict[str, Any], words: str) -> None:
    """Unknown names, missing constants and constants of another loss are refused with their values."""
    with pytest.raises(ValueError, match=words):
        oracle.preference_loss(**batch() | CONSTANTS["dpo"] | changes)
