"""The edits of KTO's loss: conventions of libraries, and mistakes."""

from __future__ import annotations

from collections.abc import Iterator

from gates.families.edits import mistakes, numbers
from gates.families.preference.edits import BETAS, QUANTITIES, REFERENCES, ROWS, SLOTS
from gates.families.program import Choices, Edit

ANCHORS = {
    "unclamped": "z0 without max(0, ·)",
    "none": "no z0",
    "absolute": "|z0| in the place of max(0, z0)",
    "sum": "z0 as the sum of the mismatched log-ratios, not their mean",
    "own": "z0 from the rows' own log-ratios, not from mismatched ones",
    "own, alive": "z0 from the rows' own log-ratios, with gradient",
    "own, unclamped": "z0 from the rows' own log-ratios, without max(0, ·)",
    "added": "z0 added, not subtracted",
    "without β": "z0 not multiplied by β",
    "smaller": "min(0, z0) in the place of max(0, z0)",
    "first": "z0 of the first mismatched log-ratio alone",
    "rows": "the sum of the mismatched log-ratios over the rows of the batch",
    "both sides": "z0 subtracted on both sides: σ(±β·lr − β·z0)",
    "desirable only": "z0 for desirable rows only",
    "undesirable only": "z0 for undesirable rows only",
}
KTO_LOSSES = {
    "log": "λ·(−log σ) in the place of λ·(1 − σ)",
    "value": "λ·σ, the value in the place of the loss",
    "negative value": "−λ·σ without its constant λ",
    "weight inside": "λ inside the sigmoid: 1 − σ(λ·z)",
    "square": "λ times the square of 1 − σ",
    "linear": "−λ·z without a sigmoid",
}
LABELS = {
    "swapped": "desirable and undesirable swapped",
    "all desirable": "every row taken as desirable in the sigmoid",
    "all undesirable": "every row taken as undesirable in the sigmoid",
}
MEANS = {
    "by label": "the mean over desirable rows plus that over undesirable rows",
    "half by label": "half of the mean over desirable rows plus half of that over undesirable rows",
    "sum": "summed over rows, not averaged",
    "weights": "divided by the sum of the weights λ",
    "desirable": "divided by the number of desirable rows",
    "undesirable": "divided by the number of undesirable rows",
    "pairs": "divided by half of the rows",
}
OTHERS = frozenset(
    ("next token", "added", "none", "own", "without β", "twice", "half", "exchanged", "previous token", "next row")
)  # edits of the reference that also exist for single rows


def edits_of_kto(asked: Choices) -> Iterator[Edit]:
    """Yield the edits of KTO's loss, conventions first."""
    own = "z0 from the rows' own log-ratios, not from mismatched ones"
    yield Edit(own, {"anchor": "own"}, convention=True)
    yield Edit('no z0 (as in TRL loss_type="apo_zero_unpaired")', {"anchor": "none"}, convention=True)
    paired = "z0 of each label from the other label's own log-ratios (paired KTO"
    yield Edit(f"{paired})", {"anchor": "other label"}, convention=True)
    yield Edit(
        f'{paired}, TRL loss_type="kto_pair": z0 has a gradient)', {"anchor": "other label, alive"}, convention=True
    )
    yield from mistakes("anchor", ANCHORS, without=("own", "none"))
    yield from mistakes("loss", KTO_LOSSES)
    yield from mistakes("labels", LABELS)
    yield from mistakes("mean", MEANS)
    yield from mistakes("mask", SLOTS)
    yield from mistakes("quantity", QUANTITIES)
    yield from (Edit(REFERENCES[name], {"reference": name}) for name in sorted(OTHERS))
    for name in ("mean", "width", "longest", "root"):
        yield Edit(ROWS[name][0], {"row": name}, asked="summed over tokens")
    yield from _constants_of_kto(asked)


def _constants_of_kto(asked: Choices) -> Iterator[Edit]:
    up, down = asked["weights"]
    beta = asked["beta"]
    if up != down:
        yield Edit("λ_D and λ_U swapped", {"weights": (down, up)})
        yield Edit("λ_D on every row", {"weights": (up, up)})
        yield Edit("λ_U on every row", {"weights": (down, down)})
    if {up, down} != {1.0}:
        yield Edit("no weights λ", {"weights": (1.0, 1.0)})
    yield Edit("undesirable rows left out", {"weights": (up, 0.0)})
    yield Edit("desirable rows left out", {"weights": (0.0, down)})
    yield Edit("β doubled", {"beta": 2.0 * beta})
    yield Edit("half of β", {"beta": 0.5 * beta})
    yield Edit("1 over the weights λ", {"weights": (1.0 / up, 1.0 / down)})
    yield Edit("β missing (1)", {"beta": 1.0}, asked=f"{beta:g}")
    yield Edit("β squared", {"beta": beta * beta})
    yield from numbers("β", "beta", [x for x in BETAS if x not in {2 * beta, beta / 2}], asked)
    yield Edit("weights λ squared", {"weights": (up * up, down * down)})
    yield Edit("the roots of the weights λ", {"weights": (up**0.5, down**0.5)})
    yield Edit("the loss with the wrong sign", {"sign": -1.0})


def presets_of_kto(asked: Choices) -> Iterator[Edit]:
    """Yield KTO's loss with its reference point, with that of the rows themselves, and without one."""
    del asked
    yield Edit('kto (TRL KTOTrainer loss_type="kto")', {"anchor": "clamped"}, convention=True)
    yield Edit("kto without a reference point z0", {"anchor": "none"}, convention=True)
    yield Edit("kto with z0 from the rows' own log-ratios", {"anchor": "own"}, convention=True)
    yield Edit("paired kto: z0 of each label from the other label's rows", {"anchor": "other label"}, convention=True)
