"""The NumPy baseline's preference losses, on hand-worked numbers and central differences."""

import math
from typing import Any

import numpy as np
import pytest

from gates.subjects.numpy_baseline import preference as subject
from gates.subjects.numpy_baseline import subject as whole

NONE = dict.fromkeys(("label_smoothing", "lengths", "penalty", "margin", "nll"))
MASK = np.array([[0, 1, 1], [1, 1, 0], [1, 1, 1], [0, 1, 0]], bool)
CONSTANTS: dict[str, dict[str, Any]] = {
    "dpo": {"beta": 0.3, "label_smoothing": 0.1},
    "hinge": {"beta": 0.3},
    "ipo": {"beta": 0.3, "lengths": "mean"},
    "dpop": {"beta": 0.3, "penalty": 4.0},
    "orpo": {"beta": 0.3},
    "simpo": {"beta": 2.0, "margin": 0.3},
    "cpo": {"beta": 0.3, "nll": 0.5},
}


def inputs(loss: str) -> dict[str, Any]:
    """Two pairs, NaN in masked slots."""
    rng = np.random.default_rng(5)
    policy, reference = (np.where(MASK, -rng.gamma(2.0, 1.0, MASK.shape), math.nan) for _ in range(2))
    alone = loss in {"orpo", "simpo", "cpo"}
    return {
        "policy": policy,
        "reference": None if alone else reference,
        "mask": MASK,
        "loss": loss,
        **NONE,
        **CONSTANTS[loss],
    }


@pytest.mark.parametrize("loss", CONSTANTS)
def test_the_gradient_is_the_slope_of_the_loss(loss: str) -> None:
    """Central differences of the loss agree with the gradient, which is 0 in masked slots."""
    arguments = inputs(loss)
    _, gradient = subject.preference_loss(**arguments)
    for i, t in np.argwhere(MASK):
        values = []
        for h in (1e-6, -1e-6):
            moved = arguments["policy"].copy()
            moved[i, t] += h
            values.append(subject.preference_loss(**{**arguments, "policy": moved})[0])
        assert gradient[i, t] == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-6, abs=1e-9)
    assert not gradient[~MASK].any()


@pytest.mark.parametrize(
    ("loss", "constants", "want"),
    [
        ("dpo", {"beta": 1.0, "label_smoothing": 0.0}, math.log(1 + math.exp(-1.5))),
        ("hinge", {"beta": 0.5}, 0.25),
        ("ipo", {"beta": 0.5, "lengths": "sum"}, 0.25),
        ("dpop", {"beta": 1.0, "penalty": 2.0}, math.log(1 + math.exp(-1.5))),
        ("simpo", {"beta": 1.0, "margin": 0.5, "reference": None}, math.log(1 + math.exp(-1.0))),
        ("cpo", {"beta": 1.0, "nll": 2.0, "reference": None}, math.log(1 + math.exp(-1.5)) + 1.0),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_losses_by_hand(loss: str, constants: dict[str, Any], want: float) -> None:
    """One pair of one token each, policy -0.5 and -2, reference -1.5 twice: both differences are 1.5."""
    arguments = {"policy": [[-0.5], [-2.0]], "reference": [[-1.5], [-1.5]], "mask": [[1], [1]], "loss": loss, **NONE}
    arrays = {name: np.array(arguments[name], np.float64) for name in ("policy", "reference", "mask")}
    assert subject.preference_loss(**{**arguments, **arrays, **constants})[0] == pytest.approx(want, rel=1e-14)


def test_kto_by_hand() -> None:
    """A desirable row of ratio 1 against z0 = 0.25 with beta 2: 1 - sigma(1.5), slope -2 sigma' at it."""
    loss, gradient = subject.kto_loss(
        policy=np.array([[-0.5]]),
        reference=np.array([[-1.5]]),
        mask=np.array([[True]]),
        desirable=np.array([True]),
        mismatched=np.array([1.0, -0.5]),
        beta=2.0,
        desirable_weight=1.0,
        undesirable_weight=1.0,
    )
    opened = 1 / (1 + math.exp(-1.5))
    assert loss == pytest.approx(1 - opened, rel=1e-14)
    assert gradient[0, 0] == pytest.approx(-2 * opened * (1 - opened), rel=1e-14)


def test_choices() -> None:
    """Ties take the first, NaN never wins, and a group of NaN alone is an error that says so."""
    assert whole.OPS["prefer"](scores=np.array([1, 1, 0, 2, math.nan, 1.0]))["signs"].tolist() == [1, -1, -1, 1, 0, 0]
    rows = whole.OPS["best_of_n"](scores=np.array([math.nan, 2, 2, -math.inf, math.nan, math.nan]), group_size=3)[
        "rows"
    ]
    assert rows.tolist() == [1, 3]
    with pytest.raises(ValueError, match="group 0 are all NaN"):
        subject.best_of_n(np.array([math.nan, math.nan]), 2)


def test_an_odd_number_of_rows_is_an_error() -> None:
    """An odd number of rows, and an unknown loss, are refused."""
    arguments = inputs("dpo")
    with pytest.raises(ValueError, match=r"must be \(2 P, T\)"):
        subject.preference_loss(**{**arguments, "policy": arguments["policy"][:3]})
    with pytest.raises(ValueError, match="'dpo2'"):
        subject.preference_loss(**{**arguments, "loss": "dpo2"})
