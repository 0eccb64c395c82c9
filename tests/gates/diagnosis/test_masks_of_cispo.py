"""A mask of tokens by ratio and sign of A is a choice of CISPO; tokens beyond the cap left out whatever the sign are not."""

from collections.abc import Callable

import numpy as np
import pytest
from edited import calls

from gates.diagnosis.diagnose import diagnose
from gates.diagnosis.named import Diagnosis
from gates.families.program import Inputs, Sample
from gates.families.programs import programs
from gates.model import Array

PROGRAM = programs()["policy_loss"]
CASE, TWO_SIDED = "loss.cispo.matches-definition-ragged", "loss.cispo.matches-definition-lower-bound"
MASK = "tokens where A > 0 and the ratio is above the cap left out"
BELOW = ", and those where A < 0 and r < {:g}"
SOURCE = " (the mask M of MiniMax-M1)"
Weight = Callable[[Array, Array, float], Array]  # of ratio, advantages and cap


def diagnosed(name: str, weight: Weight) -> Diagnosis:
    """Diagnose −Σ m·stop(w)·A·lp / Σ m with these weights, written out."""
    samples = []
    for inputs in calls(PROGRAM, name):
        policy, old, a = (np.asarray(inputs[x], float) for x in ("policy", "old", "advantages"))
        mask, a = np.asarray(inputs["mask"], bool), a if a.ndim == 2 else a[:, None]
        slope = -weight(np.exp(policy - old), a * np.ones(mask.shape), cap(inputs)) * a * mask / max(mask.sum(), 1)
        samples.append(Sample(inputs, {"loss": np.asarray((slope * policy).sum()), "gradient": slope}))
    return diagnose(PROGRAM, samples)


def cap(inputs: Inputs) -> float:
    """Return c."""
    return float(inputs["epsilon_high"] + (1.0 if inputs["cispo_bound"] == "relative" else 0.0))


def test_what_is_asked() -> None:
    """The capped ratio, which leaves no token out."""
    assert diagnosed(CASE, lambda r, a, c: np.minimum(r, c)).kind == "as asked"


@pytest.mark.parametrize(
    ("low", "capped", "words"),
    [
        (0.0, True, MASK + SOURCE),
        (0.72, True, MASK + BELOW.format(0.72) + SOURCE),
        (0.8, True, MASK + BELOW.format(0.8) + SOURCE),
        (0.8, False, f"{MASK}{BELOW.format(0.8)}{SOURCE}, the others with their ratio, not capped"),
    ],
)
def test_the_mask_is_a_choice(low: float, capped: bool, words: str) -> None:
    """By the sign of A, with the capped ratio or the ratio itself."""

    def weight(r: Array, a: Array, c: float) -> Array:
        out = ((a > 0) & (r > c)) | ((a < 0) & (r < low))
        return np.where(out, 0.0, np.minimum(r, c) if capped else r)

    found = diagnosed(CASE, weight)
    assert (found.kind, found.words.partition(":")[0]) == ("convention", words)


def test_the_mask_beside_a_lower_bound() -> None:
    """Which is the mask's too."""

    def weight(r: Array, a: Array, c: float) -> Array:
        out = ((a > 0) & (r > c)) | ((a < 0) & (r < 0.8))
        return np.where(out, 0.0, np.clip(r, 0.8, c))

    found = diagnosed(TWO_SIDED, weight)
    assert (found.kind, found.words) == ("convention", MASK + BELOW.format(0.8) + SOURCE)


def test_tokens_left_out_whatever_the_sign_are_a_mistake() -> None:
    """The mask without A."""
    found = diagnosed(CASE, lambda r, a, c: np.where(r > c, 0.0, r))
    assert (found.kind, found.words) == ("mistake", "tokens beyond the cap left out, not weighed by the cap")
