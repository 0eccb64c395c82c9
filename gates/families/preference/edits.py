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
    "exchanged": "policy and reference exchanged: the margin with the wrong sign",
    "previous token": "reference log-probs of the token before",
    "rows in halves": "reference log-probs in halves: those of the first half of the rows for chosen completions",
    "next row": "each row with the reference log-probs of the next one",
    "batch mean": "the mean of the reference log-probs over the batch's tokens for each token",
}
QUANTITIES = {
    "probabilities": "probabilities of tokens summed, not their logarithms",
    "half": "half of each log-prob",
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
SWAPPED = "chosen and rejected swapped"
ALIKE = "chosen less rejected; the margin's sign, or policy and reference exchanged, is the same"
SIDES = {
    "swapped": SWAPPED,
    "halves": "the first half of the rows taken as chosen, the second as rejected",
    "next pair": "each chosen completion against the rejected one of the next pair",
    "first rejected": "every chosen completion against the rejected one of the first pair",
    "means": "the mean of the chosen completions against the mean of the rejected ones: one margin for the batch",
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
    "both": "DPOP's penalty on both completions that fell behind",
    "of the pair": "DPOP's penalty on the margin that is below 0, not on the chosen completion",
    "averaged": "DPOP's penalty of the chosen completion's mean, not of its sum",
}
FORMS = {
    "sigmoid": "σ in the place of log σ",
    "exponential": "exp(−z) in the place of −log σ(z)",
    "squared hinge": "the hinge squared",
    "negative margin": "−z without a sigmoid",
    "perceptron": "max(0, −z), a hinge without its 1",
    "wide hinge": "max(0, β − z), a hinge at β and not at 1",
    "square": "(z − 1)², the square of the margin's distance from 1",
    "log σ by half": "half of −log σ(z), half of −log σ(−z)",
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
    symmetric = asked["number"] == "log-ratio" and asked["form"] in {"logistic", "hinge"} and not asked["penalty"]
    plainly = symmetric and asked["nll"] == "none" and not asked["margin"]
    yield Edit(SWAPPED, {"sides": "swapped"}, asked=ALIKE if plainly else "")
    yield from mistakes("sides", SIDES, without=("swapped",))
    alike = () if asked["row"] == "sum" else ("half",)
    yield from mistakes("quantity", QUANTITIES, without=QUANTITIES if asked["number"] == "odds" else alike)
    if asked["number"] != "odds" and asked["form"] in {"logistic", "hinge"}:
        yield Edit("ratios compared, not log-ratios: exp(chosen) − exp(rejected)", {"number": "probability"})
    if asked["reference"] == "none" and asked["number"] != "odds":
        yield Edit(REFERENCES["own"], {"reference": "own"})
    elif asked["reference"] != "none":
        alike = ("without β",) if asked["form"] == "ipo" or asked["beta"] == 1.0 else ()
        yield from mistakes("reference", REFERENCES, without=(*alike, *(("exchanged",) if plainly else ())))
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
            Edit(f"target {x}", {"target": x}, asked="1/(2β)")
            for x in ("1/β", "β/2", "β", "1/2", "1", "0", "2/β", "−1/(2β)", "1/(4β)", "1/(2β²)")
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
        yield Edit("the margin γ twice", {"margin": 2.0 * gamma})
        yield Edit("the margin γ squared", {"margin": gamma * gamma})
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
