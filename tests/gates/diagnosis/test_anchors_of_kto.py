"""Where KTO's reference point z0 comes from is a choice: mismatched pairs, the batch itself, the other label, nowhere."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from command_line import here
from edited import calls

from gates.diagnosis.diagnose import diagnose, identify
from gates.diagnosis.named import Diagnosis
from gates.families.program import Inputs, Sample
from gates.families.programs import programs
from gates.model import Array

PROGRAM = programs()["kto_loss"]
CASE = "preference.kto.matches-definition-ahead-ordinary-float64"
BEHIND = "preference.kto.matches-definition-behind-ordinary-float64"
Anchor = Callable[
    [Inputs, Array, Array], tuple[Array, Array]
]  # of call, log-ratios, desirable: z0 and its Jacobian by rows
TRL = (
    'z0 of each label from the other label\'s own log-ratios (paired KTO, TRL loss_type="kto_pair": z0 has a gradient)'
)


def constant(z0: Callable[[Inputs, Array, Array], Array | float]) -> Anchor:
    """Return an anchor without gradient."""

    def anchor(inputs: Inputs, lr: Array, good: Array) -> tuple[Array, Array]:
        return z0(inputs, lr, good) * np.ones(len(lr)), np.zeros((len(lr), len(lr)))

    return anchor


def answered(anchor: Anchor, case: str = CASE) -> list[Sample]:
    """Return the loss λ(1 − σ(±β(lr − z0))) with this z0, written out."""
    samples = []
    for inputs in calls(PROGRAM, case):
        mask, good = (np.asarray(inputs[name], bool) for name in ("mask", "desirable"))
        lr = np.where(mask, inputs["policy"] - inputs["reference"], 0.0).sum(axis=1)
        z0, jacobian = anchor(inputs, lr, good)
        sign = np.where(good, 1.0, -1.0)
        weight = np.where(good, inputs["desirable_weight"], inputs["undesirable_weight"])
        s = 1.0 / (1.0 + np.exp(-inputs["beta"] * sign * (lr - z0)))
        slope = -weight * sign * inputs["beta"] * s * (1.0 - s) / len(lr)
        by_row = slope - slope @ jacobian
        samples.append(
            Sample(inputs, {"loss": np.asarray((weight * (1.0 - s)).mean()), "gradient": by_row[:, None] * mask})
        )
    return samples


def diagnosed(anchor: Anchor) -> Diagnosis:
    """Diagnose KTO with another z0."""
    return diagnose(PROGRAM, answered(anchor))


def of_other_label(lr: Array, good: Array) -> Array:
    """Return max(0, the mean log-ratio of the rows of the other label)."""
    return np.where(good, max(0.0, lr[~good].mean()), max(0.0, lr[good].mean()))


def test_what_is_asked() -> None:
    """The mean of the mismatched log-ratios, at least 0."""
    assert diagnosed(constant(lambda x, lr, good: max(0.0, x["mismatched"].mean()))).kind == "as asked"


@pytest.mark.parametrize(
    ("anchor", "words"),
    [
        (constant(lambda x, lr, good: 0.0), 'no z0 (as in TRL loss_type="apo_zero_unpaired")'),
        (
            constant(lambda x, lr, good: max(0.0, lr.mean())),
            "z0 from the rows' own log-ratios, not from mismatched ones",
        ),
        (
            constant(lambda x, lr, good: of_other_label(lr, good)),
            "z0 of each label from the other label's own log-ratios (paired KTO)",
        ),
    ],
    ids=["none", "own", "the other label's"],
)
def test_another_anchor_is_a_choice(anchor: Anchor, words: str) -> None:
    """And a preset of `gates identify`."""
    found = diagnosed(anchor)
    assert (found.kind, found.words) == ("convention", words)
    assert identify(PROGRAM, answered(anchor)).kind == "convention"


def test_an_anchor_with_a_gradient() -> None:
    """As TRL's paired loss had it."""

    def anchor(inputs: Inputs, lr: Array, good: Array) -> tuple[Array, Array]:
        z0 = of_other_label(lr, good)
        shares = np.where(good, good[:, None] == 0, good[:, None] == 1) / np.where(good, good.sum(), (~good).sum())
        return z0, np.where(z0[:, None] > 0.0, shares, 0.0)

    found = diagnosed(anchor)
    assert (found.kind, found.words) == ("convention", TRL)


def test_an_anchor_that_is_not_clamped_is_a_mistake() -> None:
    """Where the mismatched pairs are behind."""
    found = diagnose(PROGRAM, answered(constant(lambda x, lr, good: x["mismatched"].mean()), BEHIND))
    assert (found.kind, found.words) == ("mistake", "z0 without max(0, ·)")


OWN = """
import numpy as np

def kto_loss(*, policy, reference, mask, desirable, mismatched, beta, desirable_weight, undesirable_weight):
    policy, reference = policy.astype(float), reference.astype(float)
    lr = np.where(mask, policy - reference, 0.0).sum(1)
    z0 = max(0.0, lr.mean())
    sign = np.where(desirable, 1.0, -1.0)
    weight = np.where(desirable, desirable_weight, undesirable_weight)
    s = 1 / (1 + np.exp(-beta * sign * (lr - z0)))
    slope = -weight * sign * beta * s * (1 - s) / len(lr)
    return {"loss": (weight * (1 - s)).mean(), "gradient": slope[:, None] * mask}

OPS = {"kto_loss": kto_loss}
CONVENTIONS = {"kto_loss": {}}
"""


def test_the_grade_is_differs(tmp_path: Path) -> None:
    """Never wrong."""
    (tmp_path / "mine.py").write_text(OWN)
    done = here("check", "preference.kto", "--subject", "./mine.py", "--no-minimise", cwd=tmp_path)
    text = " ".join(done.stdout.split())
    assert "DIFFERS kto_loss computes: z0 from the rows' own log-ratios, not from mismatched ones" in text, text
