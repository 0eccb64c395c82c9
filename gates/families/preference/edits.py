"""The edits of the preference losses: other losses, conventions of libraries, and mistakes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gates.families.edits import conventions_first, mistakes, numbers
from gates.families.program import Choices, Edit
from gates.families.rows import MASKS

LOGISTIC: dict[str, Any] = {"form": "logistic", "number": "log-ratio", "place": "inside", "margin": None, "nll": "none"}
PLAIN = {**LOGISTIC, "row": "sum", "penalty": None, "smoothing": 0.0}
AVERAGED = "dpo averaged over tokens"  # equals an edit of the rows
ALONE = frozenset(("simpo", "orpo", "cpo"))  # losses without a reference

ROWS = {  # description of the reduction of a row, and whether a library does it on purpose
    "sum": ("log-ratios summed over tokens", True),
    "mean": ("log-ratios averaged over each completion's tokens", True),
    "width": ("log-ratios averaged over the padded width", False),
    "longest": ("log-ratios divided by the longest completion of the batch", False),
    "root": ("log-ratios divided by √n", False),
    "chosen length": ("both log-ratios divided by the length of the chosen completion", False),
    "both lengths": ("both log-ratios divided by the length of the two completions together", False),
    "rejected length": ("both log-ratios divided by the length of the rejected completion", False),
    "chosen averaged": ("the chosen side averaged over its tokens, the rejected side summed", False),
    "rejected averaged": ("the rejected side averaged over its tokens, the chosen side summed", False),
    "mean length": ("log-ratios divided by the mean length of the batch", False),
}
REFERENCES = {
    "none": "the reference ignored",
    "own": "the policy taken for its own reference: every margin is 0",
    "swapped": "each completion with the reference log-probs of the other one of its pair",
    "added": "reference log-probs added, not subtracted",
    "chosen only": "the reference subtracted from the chosen completion only",
    "rejected only": "the reference subtracted from the rejected completion only",
    "next token": "reference log-probs shifted by one token",
    "next pair": "each pair with the reference log-probs of the next one",
    "without β": "β on the policy's log-probs only, not on the reference's",
    "twice": "the reference subtracted twice",
    "half": "half of the reference subtracted",
}
NOT_ALIKE = {  # the reference reduced unlike the policy, by the reduction that is asked
    "sum": {"averaged": "reference log-probs averaged over tokens, those of the policy summed"},
    "mean": {"summed": "reference log-probs summed over tokens, those of the policy averaged"},
}
SMOOTHED = {
    "first term": "(1 − s)·log σ without the smoothed term",
    "second term": "s·log σ(−z) alone, without the first term of label smoothing",
    "subtracted": "the smoothed term with the wrong sign",
    "first whole": "label smoothing adds its term s·log σ(−z) and leaves the first one its weight 1, not 1 − s",
    "second whole": "label smoothing with the weight 1 of the smoothed term, not s",
    "both whole": "both terms of label smoothing with the weight 1",
    "both halves": "both terms of label smoothing with the weight ½",
    "divided": "label smoothing divided by 1 − 2s, both terms added",
    "of the margin": "label smoothing of the margin: log σ((1 − 2s)·z)",
    "of the labels": "label smoothing of the labels' distance: log σ(z − s)",
    "first doubled": "label smoothing with the weights 1 − 2s and s",
    "robust whole": "log σ(z) − s·log σ(−z), over 1 − 2s: the first term with the weight 1",
}
SLOTS = {  # what is counted; a completion has no holes
    **{name: words for name, words in MASKS.items() if name != "filled"},
    "prompt too": "the prompt counted",
    "without last column": "the last column of the batch not counted",
    "without first column": "the first column of the batch not counted",
}
SIDES = {
    "swapped": "chosen and rejected swapped",
    "halves": "the first half of the rows taken as chosen, the second as rejected",
    "next pair": "each chosen completion against the rejected one of the next pair",
}
LIKELIHOODS = {
    "none": "no likelihood term",
    "chosen tokens": "the mean −log π over all chosen tokens",
    "row means": "the mean over pairs of each chosen completion's mean −log π",
    "attended": "the mean −log π over all tokens of the chosen rows, prompts too",
    "attended row means": "the mean over pairs of each chosen row's mean −log π, prompts too",
    "all slots": "the mean −log π over all slots of the chosen rows, padding too",
    "row sums": "the mean over pairs of each chosen completion's summed −log π",
    "sum": "the summed −log π of all chosen tokens",
    "both sides": "the mean −log π over the tokens of both sides",
    "rejected tokens": "the mean −log π over all rejected tokens",
}
MEANS_OF_CHOSEN = frozenset(("chosen tokens", "row means", "attended", "attended row means"))  # each is some library's
PLACES = {
    "outside": "β outside the sigmoid: it multiplies the loss",
    "both": "β inside the sigmoid and outside",
    "divides": "the margin divided by β",
    "chosen": "β on the chosen side only",
    "rejected": "β on the rejected side only",
}
PENALTIES = {
    "chosen gains": "DPOP's penalty on the chosen completions that gained",
    "rejected": "DPOP's penalty on the rejected completion that fell behind",
    "rejected gains": "DPOP's penalty on the rejected completion that gained",
    "unbounded": "DPOP's penalty without max(0, ·)",
    "added": "DPOP's penalty with the wrong sign",
    "without β": "DPOP's penalty not multiplied by β",
    "outside": "DPOP's penalty added to the loss, outside the sigmoid",
    "by tokens": "DPOP's max(0, ·) of each token, not of the sum",
}
FORMS = {
    "sigmoid": "σ in the place of log σ",
    "exponential": "exp(−z) in the place of −log σ(z)",
    "squared hinge": "the hinge squared",
    "negative margin": "−z without a sigmoid",
    "perceptron": "max(0, −z), a hinge without its 1",
    "apart": "−log σ of each side by itself, not of their difference",
    "inverted": "−log σ(−z): the margin with the wrong sign",
    "minus σ(−z)": "1 − σ(z) in the place of −log σ(z)",
    "square of σ": "the square of 1 − σ(z) in the place of −log σ(z)",
}
SQUARES = {
    "ipo halved": "½ of the square",
    "ipo of the margin": "(β·h − ½)², the square of the margin times β",
    "absolute": "the magnitude in the place of the square",
}
BETAS = (0.01, 0.05, 0.1, 0.2, 0.25, 0.5, 2.0)
SMOOTHINGS = (0.1, 0.2, 0.3)


@conventions_first
def edits(asked: Choices) -> Iterator[Edit]:
    """Yield the edits of a loss with these choices."""
    yield from _conventions(asked)
    yield from _mistakes(asked)


def _conventions(asked: Choices) -> Iterator[Edit]:
    if asked["smoothing"]:
        ignored = {"smoothing": 0.0}
        yield Edit('label smoothing ignored (as TRL loss_type="sigmoid" does)', ignored, convention=True)
        yield Edit('label smoothing as in TRL loss_type="robust"', {"smoothed": "robust"}, convention=True)
    for name, changes in losses(asked).items():
        if name != AVERAGED and any(asked[key] != value for key, value in changes.items()):
            yield Edit(f"the loss of {name}", changes, convention=True, asked=asked["name"])
    for name, (words, known) in ROWS.items():
        if name != asked["row"]:
            yield Edit(words, {"row": name}, known, ROWS[asked["row"]][0].removeprefix("log-ratios "))
    if asked["nll"] == "none":
        yield Edit("a likelihood of the chosen tokens added (TRL rpo_alpha=1)", {"nll": "chosen tokens"}, True)
    elif asked["nll"] in {"row means", "attended"}:
        other = {"row means": "attended", "attended": "row means"}[asked["nll"]]
        yield Edit(f"likelihood: {LIKELIHOODS[other]}", {"nll": other}, True, LIKELIHOODS[asked["nll"]])


def losses(asked: Choices) -> dict[str, dict[str, Any]]:
    """Return the choices of other losses by name, if their constants are known or have a usual value."""
    reference = {} if asked["reference"] == "none" and asked["name"] in ALONE else {"reference": asked["reference"]}
    by_name = {
        "dpo": {**PLAIN, **reference},
        "hinge": {**PLAIN, "form": "hinge", **reference},
        "ipo with sums": {**PLAIN, "form": "ipo", **reference},
        "ipo with means": {**PLAIN, "form": "ipo", "row": "mean", **reference},
        AVERAGED: {**PLAIN, "row": "mean", **reference},
        "orpo": {
            **PLAIN,
            "row": "mean",
            "smoothing": None,
            "reference": "none",
            "number": "odds",
            "place": "outside",
            "nll": "row means",
            "alpha": 1.0,
        },
        "simpo": {**PLAIN, "row": "mean", "reference": "none", "margin": asked["margin"]},
        "cpo": {**PLAIN, "reference": "none", "nll": "chosen tokens", "alpha": asked["alpha"]},
        "sppo_hard": {**PLAIN, "form": "sppo", **reference},
        "nca_pair": {**PLAIN, "form": "nca", **reference},
        "apo_zero": {**PLAIN, "form": "apo_zero", **reference},
        "apo_down": {**PLAIN, "form": "apo_down", **reference},
    }
    if asked["penalty"]:
        by_name["dpop"] = {**PLAIN, "penalty": asked["penalty"], **reference}
    return by_name


def _mistakes(asked: Choices) -> Iterator[Edit]:
    yield from mistakes("mask", SLOTS)
    yield from mistakes("sides", SIDES)
    if asked["reference"] == "none" and asked["number"] != "odds":
        yield Edit(REFERENCES["own"], {"reference": "own"})
    elif asked["reference"] != "none":
        alike = ("without β",) if asked["form"] == "ipo" or asked["beta"] == 1.0 else ()
        yield from mistakes("reference", REFERENCES, without=alike)
        yield from mistakes("reference", NOT_ALIKE.get(asked["row"], {}))
    yield Edit("no gradient of the rejected side (detached)", {"gradient": "chosen"})
    yield Edit("no gradient of the chosen side (detached)", {"gradient": "rejected"})
    yield Edit("the loss with the wrong sign", {"sign": -1.0, "alpha": -asked["alpha"]})
    yield Edit("summed over pairs, not averaged", {"pairs": "sum"})
    yield Edit("divided by the rows, not by the pairs", {"pairs": "rows"})
    yield from _of_form(asked)
    yield from _betas(asked)
    yield from _likelihoods(asked)


def _betas(asked: Choices) -> Iterator[Edit]:
    beta = asked["beta"]
    if asked["form"] != "ipo":
        yield from mistakes(
            "place", PLACES, without=(asked["place"], *(("chosen", "rejected") if asked["number"] == "odds" else ()))
        )
        if asked["place"] == "outside":
            yield Edit("β inside the sigmoid, where it must multiply the loss", {"place": "inside"})
    yield Edit("β missing (1)", {"beta": 1.0}, asked=f"{beta:g}")
    yield Edit("β squared", {"beta": beta * beta})
    yield Edit("β doubled", {"beta": 2.0 * beta})
    yield Edit("half of β", {"beta": 0.5 * beta})
    yield from numbers("β", "beta", [x for x in BETAS if x not in {2 * beta, beta / 2}], asked)


def _of_form(asked: Choices) -> Iterator[Edit]:
    if asked["form"] == "ipo":
        yield from (
            Edit(f"target {x}", {"target": x}, asked="1/(2β)") for x in ("1/β", "β/2", "β", "1/2", "1", "0", "2/β")
        )
        yield from mistakes("form", SQUARES)
    else:
        yield from mistakes("form", FORMS, without=(asked["form"],))
    if smoothing := asked["smoothing"]:
        words = f"label smoothing {1.0 - smoothing:g}: on the wrong side"
        yield Edit(words, {"smoothing": 1.0 - smoothing}, asked=f"{smoothing:g}")
        yield Edit("label smoothing halved", {"smoothing": 0.5 * smoothing})
        yield from mistakes("smoothed", SMOOTHED)
    elif asked["name"] == "dpo":
        yield from numbers("label smoothing", "smoothing", SMOOTHINGS, asked)
    if asked["penalty"]:
        yield Edit("DPOP's penalty ignored", {"penalty": None})
        yield from mistakes("penalised", PENALTIES, without=("outside",))
        words = f"{PENALTIES['outside']}, as in the first version of its paper"
        yield Edit(words, {"penalised": "outside"}, convention=True)
    if gamma := asked["margin"]:
        yield Edit("the margin γ missing", {"margin": None})
        yield Edit("the margin γ multiplied by β", {"margin": gamma * asked["beta"]})
        yield Edit("the margin γ divided by β", {"margin": gamma / asked["beta"]})
        yield Edit("the margin γ added, not subtracted", {"margin": -gamma})
        yield Edit("half of the margin γ", {"margin": 0.5 * gamma})
    if asked["number"] == "odds":
        yield Edit("probabilities compared, not odds: log π̄ without log(1 − π̄)", {"number": "log-ratio"})
        yield Edit("log(1 − π̄) added, not subtracted", {"number": "odds, sum"})
        yield Edit("the difference of probabilities in the sigmoid", {"number": "probability"})


def _likelihoods(asked: Choices) -> Iterator[Edit]:
    if asked["nll"] == "none":
        return
    for name, words in LIKELIHOODS.items():
        other = {"row means": "attended", "attended": "row means"}.get(asked["nll"])
        if name not in {asked["nll"], other}:
            chosen = words if name == "none" else f"likelihood: {words}"
            yield Edit(chosen, {"nll": name}, convention=name in MEANS_OF_CHOSEN)
    alpha = asked["alpha"]
    yield Edit("the likelihood with the wrong sign", {"alpha": -alpha})
    yield Edit("the likelihood times β", {"alpha": alpha * asked["beta"]})
    if alpha != 1.0:
        yield Edit("the likelihood without its weight α", {"alpha": 1.0})
    yield Edit("the policy's likelihood alone, without the preference term", {"pairs": "sum", "sign": 0.0})


PRESETS = {  # descriptions of identified losses (docs/definitions.md, "Presets")
    "dpo": 'dpo (TRL DPOTrainer loss_type="sigmoid")',
    "hinge": 'hinge (TRL loss_type="hinge")',
    "ipo with sums": "ipo with sums (TRL Online DPO)",
    "ipo with means": 'ipo with means (TRL DPOTrainer and CPOTrainer loss_type="ipo")',
    "orpo": "orpo, likelihood of each completion",
    "simpo": 'simpo (TRL CPOTrainer loss_type="simpo")',
    "cpo": "cpo (TRL CPOTrainer)",
    "dpop": "dpop",
    AVERAGED: "dpo averaged over tokens (length-normalised)",
    **{name: f'{name} (TRL loss_type="{name}")' for name in ("sppo_hard", "nca_pair", "apo_zero", "apo_down")},
}


def presets(asked: Choices) -> Iterator[Edit]:
    """Yield the published losses with their library settings."""
    by_name = losses(asked)
    if asked["smoothing"]:
        smooth = {**by_name["dpo"], "smoothing": asked["smoothing"]}
        yield Edit("dpo with label smoothing (conservative DPO)", {**smooth, "smoothed": "conservative"}, True)
        yield Edit('dpo with label smoothing (TRL loss_type="robust")', {**smooth, "smoothed": "robust"}, True)
    for name, changes in by_name.items():
        yield Edit(PRESETS[name], changes, convention=True)
    if asked["nll"] == "attended":
        yield Edit("orpo, likelihood of all tokens (TRL ORPOTrainer)", {**by_name["orpo"], "nll": "attended"}, True)


# --- KTO

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
    ("next token", "added", "none", "own", "without β", "twice", "half")
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
    yield Edit("the loss with the wrong sign", {"sign": -1.0})


def presets_of_kto(asked: Choices) -> Iterator[Edit]:
    """Yield KTO's loss with its reference point, with that of the rows themselves, and without one."""
    del asked
    yield Edit('kto (TRL KTOTrainer loss_type="kto")', {"anchor": "clamped"}, convention=True)
    yield Edit("kto without a reference point z0", {"anchor": "none"}, convention=True)
    yield Edit("kto with z0 from the rows' own log-ratios", {"anchor": "own"}, convention=True)
    yield Edit("paired kto: z0 of each label from the other label's rows", {"anchor": "other label"}, convention=True)
