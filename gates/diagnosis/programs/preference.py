"""The forward definition of the preference losses, and what people write instead.

Log-ratios of tokens are added up to one number of each row; a loss is a function of the chosen and the rejected row's number,
perhaps plus a likelihood. Its gradient is the derivative of what is computed. Source: docs/definitions.md, "Preference losses".
"""

from __future__ import annotations

from collections.abc import Mapping

from gates.diagnosis.arithmetic import Value
from gates.diagnosis.program import Choices, Data, Inputs, Program
from gates.diagnosis.programs import preference_edits, preference_inputs
from gates.diagnosis.programs.preference_rows import Sides, likelihood
from gates.diagnosis.programs.preference_terms import loss_of_pairs

MEANS = frozenset(("simpo", "orpo"))  # whose rows are averaged over their tokens
FORMS = {"hinge": "hinge", "ipo": "ipo"}  # what they make of the margin; all others take −log σ


def asked(inputs: Inputs) -> Choices:
    """Return the choices that the keywords of `preference_loss` ask for."""
    name = inputs["loss"]
    likelihoods = {"cpo": "chosen tokens", "orpo": "row means" if inputs.get("attention_mask") is None else "attended"}
    return {
        "mask": "given",
        "row": "mean" if name in MEANS or inputs.get("lengths") == "mean" else "sum",
        "reference": "none" if inputs.get("reference") is None else "given",
        "sides": "in turn",
        "gradient": "both",
        "number": "odds" if name == "orpo" else "log-ratio",
        "form": FORMS.get(name, "logistic"),
        "beta": inputs["beta"],
        "place": "outside" if name == "orpo" else "inside",
        "smoothing": inputs.get("label_smoothing") or 0.0,
        "smoothed": "conservative",
        "target": "1/(2β)",
        "penalty": inputs.get("penalty") or 0.0,
        "penalised": "chosen",
        "margin": inputs.get("margin") or 0.0,
        "nll": likelihoods.get(name, "none"),
        "alpha": inputs["nll"] if name == "cpo" else 1.0,
        "pairs": "mean",
        "sign": 1.0,
        "name": name,
    }


def compute(data: Data, chosen: Choices, variable: Value) -> Mapping[str, Value]:
    """Return the loss."""
    sides = Sides(data, chosen, variable)
    pairs = loss_of_pairs(sides)
    share = {"mean": 1.0, "sum": float(pairs.shape[0]), "rows": 0.5}[chosen["pairs"]]
    loss = pairs.mean() * share * chosen["sign"]
    if chosen["nll"] == "none":
        return {"loss": loss}
    return {"loss": loss + likelihood(sides, chosen["nll"]) * sides.scalar("alpha")}


PROGRAM = Program(
    op="preference_loss",
    asked=asked,
    compute=compute,
    edits=preference_edits.edits,
    inputs=preference_inputs.designed,
    outputs=("loss", "gradient"),
    variable="policy",
    places=preference_inputs.places,
    presets=preference_edits.presets,
    examples=preference_inputs.examples,
)
PROGRAMS = (PROGRAM,)
