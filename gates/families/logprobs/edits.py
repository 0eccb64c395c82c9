"""The edits of log-probs of ids, of their entropy and of their gradient: conventions and mistakes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gates.families.edits import mistakes
from gates.families.program import Choices, Edit

TEMPERATURES = {
    "ignored": ("the temperature ignored: log-probs at τ = 1", True),
    "multiplies": ("logits times τ, not over τ", False),
    "twice": ("logits divided by τ twice", False),
    "of the log-prob": ("the temperature after the softmax: log p / τ", False),
    "times the log-prob": ("the temperature after the softmax: τ·log p", False),
}
IDS = {
    "next": "ids shifted by one position to the left: each position scores the id of the next one",
    "previous": "ids shifted by one position to the right: each position scores the id of the one before",
    "one higher": "the id above the given one (ids off by one)",
    "one lower": "the id below the given one (ids off by one)",
    "likeliest": "the likeliest id of each position, not the given one",
    "first position": "the id of the first position everywhere",
}
VALUES = {
    "probability": "the probability, not its logarithm",
    "negated": "−log p (the cross-entropy)",
    "logit": "the logit itself, not normalised",
    "shifted": "the logit less the largest one, not normalised",
    "bits": "log p in bits, to base 2",
    "base 10": "log p to base 10",
    "p + 1e-8": "log(p + 1e-8)",
    "p + 1e-6": "log(p + 1e-6)",
    "p + 1e-10": "log(p + 1e-10)",
    "log-odds": "the log-odds log p − log(1 − p)",
    "log of the rest": "log(1 − p)",
    "weighed": "p·log p, the log-prob weighed by its probability",
    "at least −10": "log-probs of at least −10",
    "sigmoid": "the log of the id's own sigmoid, not of a softmax",
}
NORMALISERS = {
    "without last": "a normaliser without the last id of the vocabulary",
    "without first": "a normaliser without the first id of the vocabulary",
    "batch": "a normaliser over all positions at once",
    "positions": "a softmax over the positions, not over the vocabulary",
    "rows": "a softmax over the rows, not over the vocabulary",
    "mean": "a normaliser that is the logarithm of the mean of exp, not of the sum",
    "with 0": "a normaliser with an extra logit of 0 (log1p)",
    "without the id": "a normaliser of the other ids, without the given one",
    "plain mean": "logits less their mean, not normalised",
    "first position": "the normaliser of the first position for every position",
    "next": "the normaliser of the next position",
}
ENTROPIES = {
    "negated": "the entropy with the wrong sign",
    "bits": "the entropy in bits, to base 2",
    "share": "the entropy over log V",
    "over τ": "the entropy over τ",
    "times τ": "the entropy times τ",
    "not weighed": "−mean log p for the entropy, not weighed by p",
    "mean": "the mean of −p log p over the vocabulary for the entropy, not the sum",
    "of the ids": "−log p of the id for the entropy",
    "second order": "−log Σ p² for the entropy (Rényi's of order 2)",
    "gini": "1 − Σ p² for the entropy",
    "perplexity": "exp of the entropy",
    "log-sum-exp": "log Σ exp of the logits for the entropy",
    "base 10": "the entropy to base 10",
    "of the ids, weighed": "−p log p of the position's ids alone for the entropy, not of the vocabulary",
    "at the ids": "the entropy times the probability of the id",
    "less the largest": "log Σ exp of the logits less the largest, without the mean logit",
    "times V": "the entropy times V: the sum over the vocabulary of the entropy",
    "to the uniform": "log V − H, the KL to the uniform distribution",
    "uncertainty of the likeliest": "1 less the largest probability for the entropy",
}
ENTROPY_TAU = {
    "ignored": "the entropy of the untempered logits (τ = 1)",
    "multiplies": "the entropy of logits times τ",
    "twice": "the entropy of logits that are divided by τ twice",
    "divides": "the entropy at τ",
}
OF = {"last": "the last id of the vocabulary left out of the entropy", "first": "the first id left out of the entropy"}


def edits(asked: Choices) -> Iterator[Edit]:
    """Yield the edits of log-probs with these choices, conventions first."""
    if asked["tau"] != 1.0:
        yield from _tempered(asked)
    yield from _ids(asked)
    yield from mistakes("value", VALUES)
    if asked["positions"]:
        yield from mistakes("normaliser", NORMALISERS, without=("rows",) if asked["positions"] < 2 else ())
    if asked["ignored"] != "none":
        yield Edit("ignored ids not set to 0: they are scored as id 0", {"ignored": "as id 0"})
        yield Edit("ignored ids not set to 0: a negative id counts from the end", {"ignored": "wraps"})
    if asked["with_entropy"]:
        yield from _entropies(asked)


def _tempered(asked: Choices) -> Iterator[Edit]:
    for name, (words, known) in TEMPERATURES.items():
        yield Edit(words, {"temperature": name}, known, f"τ = {asked['tau']:g}" if known else "")
    if asked["with_entropy"]:
        yield Edit(ENTROPY_TAU["ignored"], {"entropy_tau": "ignored"}, convention=True)
        yield from _in_part()
    yield Edit("a normaliser of the untempered logits", {"normaliser": "untempered"})
    yield Edit("the temperature in the normaliser only, not on the logit of the id", {"value": "untempered"})
    yield Edit("the temperature's square root", {"temperature": "root"})


def _ids(asked: Choices) -> Iterator[Edit]:
    yield from mistakes("ids", IDS, without=() if asked["positions"] else ("next", "previous", "first position"))
    if asked["positions"]:
        yield Edit(f"{IDS['next']}, the last one 0", {"ids": "next", "edge": "0"})
        yield Edit(f"{IDS['previous']}, the first one 0", {"ids": "previous", "edge": "0"})
    if asked["several"]:
        yield Edit("the first of a position's ids for each of them", {"ids": "first of each"})
        yield Edit("a softmax over the given ids only", {"normaliser": "of the ids"})
        yield Edit("the sum over a position's ids for each of them", {"value": "summed"})


def _in_part() -> Iterator[Edit]:
    """Yield edits in which the temperature acts only on log-probs or only on the entropy."""
    only = {"temperature": "ignored", "entropy_tau": "divides"}
    yield Edit("log-probs at τ = 1 beside an entropy at τ", only)
    yield from mistakes("entropy_tau", ENTROPY_TAU, without=("ignored", "divides"))


def _entropies(asked: Choices) -> Iterator[Edit]:
    yield from mistakes("entropy", ENTROPIES, without=() if asked["tau"] != 1.0 else ("over τ", "times τ"))
    yield from (Edit(words, {"entropy_ids": f"without {name}"}) for name, words in OF.items())


PRESETS: Mapping[str, Choices] = {
    "log-softmax of the ids at the temperature": {"temperature": "divides"},
    "log-softmax of the ids at τ = 1": {"temperature": "ignored"},
}


def presets(asked: Choices) -> Iterator[Edit]:
    """Yield log-probs with and without the temperature."""
    for words, change in PRESETS.items():
        if asked["tau"] != 1.0 or change["temperature"] == "divides":
            yield Edit(words, {**change, "value": "log-prob", "entropy_tau": "same"}, convention=True)


OF_LOGPROBS = {
    "ones": "the gradient of each log-prob taken for 1, whatever it is",
    "negated": "the gradient with the wrong sign",
    "left out": "the log-probs' part left out",
    "averaged": "the gradient of each log-prob divided by their number",
    "next": "the gradients of the log-probs shifted by one position",
    "doubled": "the log-probs' part twice",
}


def of_gradient(asked: Choices) -> Iterator[Edit]:
    """Yield the edits of a gradient with these choices: first its own, then those of the values."""
    if asked["tau"] != 1.0:
        yield Edit("the gradient by x/τ, not divided by τ", {"chain": "left out"})
        yield Edit("the gradient divided by τ twice", {"chain": "twice"})
        yield Edit("the gradient times τ, not over τ", {"chain": "times τ"})
    yield from mistakes("upstream", OF_LOGPROBS)
    yield Edit("the gradient on the ids alone, without that of the normaliser", {"normaliser": "constant"})
    yield Edit("the gradient of the normaliser alone, without that on the ids", {"value": "constant"})
    yield Edit("the gradient at the given ids only: other ids have none", {"at": "ids"})
    yield Edit(
        "the normaliser's part not weighed by the gradient of the log-probs: g·onehot − p", {"upstream": "onehot"}
    )
    yield Edit("the ids' part not weighed by the gradient of the log-probs: onehot − g·p", {"upstream": "normaliser"})
    yield Edit("the normaliser's part with the wrong sign: g·(onehot + p)", {"upstream": "added"})
    if asked["several"]:
        yield Edit("the normaliser's part of each position's first id alone", {"upstream": "first normaliser"})
        yield Edit(
            "the normaliser's part by the mean over a position's ids, not the sum", {"upstream": "mean normaliser"}
        )
    if asked["with_entropy"]:
        yield Edit("the entropy's part left out", {"of_entropy": 0.0})
        yield Edit("the entropy's part with the wrong sign", {"of_entropy": -1.0})
        yield Edit("the entropy's part twice", {"of_entropy": 2.0})
        yield Edit("half of the entropy's part", {"of_entropy": 0.5})
        yield Edit("the log-probs' part with the wrong sign", {"upstream": "negated alone"})
        yield Edit("the entropy's gradient taken for 1, whatever it is", {"of_entropy": "ones"})
        yield Edit("the entropy's gradient averaged over the positions", {"of_entropy": "averaged"})
        yield Edit("−p log p for the entropy's gradient, without H", {"entropy": "weighed"})
        yield Edit("−p (log p + 1) for the entropy's gradient, with 1 for H", {"entropy": "weighed, 1"})
        yield Edit("−(log p + H) for the entropy's gradient, not weighed by p", {"entropy": "centred, not weighed"})
        yield Edit("−p (log p − H) for the entropy's gradient, with the wrong sign of H", {"entropy": "weighed, −H"})
        yield Edit("−p (log p + H)·(1 − p) for the entropy's gradient", {"entropy": "weighed, 1 − p"})
        yield Edit("−(log p + 1) for the entropy's gradient, by p and not by the logits", {"entropy": "by p"})
        if asked["tau"] != 1.0:
            yield Edit("the entropy's part not divided by τ", {"of_entropy": "times τ"})
            yield Edit("the entropy's part divided by τ twice", {"of_entropy": "over τ"})
    alike = ({"value": "logit"}, {"value": "shifted"})  # same gradient as "on the ids alone"
    yield from (edit for edit in edits(asked) if edit.changes not in alike)
