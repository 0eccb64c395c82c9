"""The edits of the KL to the reference: conventions of libraries, and mistakes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from gates.families.edits import conventions_first, declarations, mistakes, others
from gates.families.program import Choices, Edit
from gates.families.rows import MASKS

ESTIMATORS = {  # description, and whether a library does it on purpose
    "k1": ("k1 = −d", True),
    "k2": ("k2 = d²/2", True),
    "k3": ("k3 = exp(d) − d − 1", True),
    "absolute": ("|d|", True),
    "k2 doubled": ("d², k2 without its ½", False),
    "k3 without −1": ("exp(d) − d, k3 without its −1", False),
    "k3 with +1": ("exp(d) − d + 1, k3 with +1 for −1", False),
    "k3 with +d": ("exp(d) + d − 1, k3 with +d for −d", False),
    "k3 without d": ("exp(d) − 1, k3 without its −d", False),
    "k3 of −d in exp": ("exp(−d) − d − 1, k3 with d inverted in the exponential only", False),
    "k3 halved": ("half of k3", False),
    "ratio": ("exp(d) alone", False),
    "policy weighted": ("the sampled token weighed by its probability again: p·(lp − ref)", False),
    "k3, policy weighted": ("k3 of the sampled token weighed by its probability again", False),
    "reference weighted": ("q·(ref − lp), weighed by the reference's probability", False),
    "ratio weighted": ("exp(−d)·(−d), k1 times the ratio to the reference", False),
    "inverse ratio weighted": ("exp(d)·d", False),
    "of probabilities": ("the difference of probabilities, not of their logarithms", False),
    "k3, reference weighted": ("k3 of the sampled token weighed by the reference's probability", False),
    "k1 squared": ("d² with the sign of −d", False),
    "at least 0": ("max(0, −d), k1 where it is positive", False),
}
RATIOS = {
    "none": ("not multiplied by a ratio", True),
    "token": ("times the ratio of the token", True),
    "sequence": ("times the ratio of the row, exp(mean D)", True),
    "token, inverted": ("times the token's ratio inverted, exp(old − policy)", False),
    "token, to the reference": ("times the token's ratio to the reference", False),
    "token, clipped": ("times the token's ratio, clipped to 0.8 … 1.2", False),
    "sequence, over the width": ("times the row's ratio with D averaged over the padded width", False),
    "sequence, sum": ("times the row's product of ratios, exp(Σ D)", False),
    "sequence, inverted": ("times the row's ratio inverted", False),
    "sequence, mean of ratios": ("times the mean of the row's ratios, not exp of the mean", False),
}
REDUCTIONS = {
    "none": ("one number a token, not reduced", True),
    "sum": ("the sum of each row", True),
    "mean": ("the mean over each row's tokens", True),
    "width": ("the mean over the padded width", False),
    "longest": ("the sum of each row over the longest row", False),
    "mean length": ("the sum of each row over the mean length", False),
    "square roots": ("the sum of each row over √n", False),
    "one less": ("the sum of each row over n − 1", False),
    "one more": ("the sum of each row over n + 1", False),
    "batch": ("one mean over all tokens of the batch", False),
    "mean of row means": ("one mean over the rows of their token means", False),
    "batch sum": ("one sum over all tokens of the batch", False),
    "columns": ("the sum over rows of each slot: the wrong axis", False),
    "rows": ("the sum of each row over the number of rows", False),
    "largest": ("the largest of each row", False),
    "last": ("the last token of each row", False),
}
DECLARED = {  # as a subject declares what it computes, if it means it
    "estimator": declarations("estimator", ("k1", "k2", "k3")),
    "kl_ratio": declarations("kl_ratio", ("none", "token", "sequence")),
    "reduction": declarations("reduction", ("none", "sum", "mean")),
}
CLAMPED = {
    "above": "the clamp bounds from above only",
    "below": "the clamp bounds from below only",
    "log-ratio": "the clamp on d, not on the estimate",
    "after the ratio": "the clamp after the ratio",
    "after the reduction": "the clamp after the reduction",
}
CLAMPS = (1.0, 2.0, 5.0, 20.0)


@conventions_first
def of_tokens(asked: Choices) -> Iterator[Edit]:
    """Yield the edits of a KL with these choices."""
    yield from _choices(asked)
    yield from _mistakes(asked)


def _choices(asked: Choices) -> Iterator[Edit]:
    yield from others("estimator", ESTIMATORS, asked)
    if asked["off_policy"]:
        yield from others("kl_ratio", RATIOS, asked)
    yield from others("reduction", REDUCTIONS, asked)
    if asked["clamp"] is None:
        yield from _clamps(CLAMPS[:2])
        yield Edit("each estimate at least 0", {"clamp": 0.0, "clamped": "below"})
    else:
        yield Edit("the clamp ignored", {"clamp": None}, convention=True)
        sizes = (c for c in (10.0, *CLAMPS) if c != asked["clamp"])
        yield from (Edit(f"clamp ±{c:g}", {"clamp": c}, asked=f"±{asked['clamp']:g}") for c in sizes)
        yield from mistakes("clamped", CLAMPED)


def clamps(asked: Choices) -> Iterator[Edit]:
    """Yield the clamps against overflow that libraries have; ordinary input lies within most of those of d."""
    if asked["clamp"] is None:
        yield from _clamps((*CLAMPS, 10.0))


def _clamps(of_differences: tuple[float, ...]) -> Iterator[Edit]:
    yield Edit("each estimate clamped to ±10", {"clamp": 10.0}, convention=True)
    yield from (Edit(f"each estimate clamped to ±{c:g}", {"clamp": c}, convention=True, alone=True) for c in CLAMPS)
    for c in of_differences:
        before = {"clamp": c, "clamped": "log-ratio"}
        yield Edit(f"d clamped to ±{c:g} before the estimate", before, convention=True, alone=True)


def _mistakes(asked: Choices) -> Iterator[Edit]:
    inverted = "policy and reference exchanged: d = policy − reference"
    yield Edit(inverted, {"direction": "inverted"})
    yield Edit("the KL with the wrong sign", {"sign": -1.0})
    yield Edit("the KL twice", {"sign": 2.0})
    if asked["off_policy"]:
        yield Edit("the KL to the old policy, not to the reference", {"direction": "to old"})
        yield Edit("the KL of the old policy, not of the current one", {"direction": "of old"})
    yield Edit("reference log-probs shifted by one token", {"direction": "next token"})
    yield Edit("reference log-probs of the token before", {"direction": "previous token"})
    yield Edit("the reference ignored: the KL of log π to 0", {"direction": "reference ignored"})
    yield Edit("log-probs added, not subtracted: d = −(policy + reference)", {"direction": "added"})
    yield Edit("d of probabilities, not of their logarithms", {"direction": "of probabilities"})
    yield Edit("the reference log-probs of the next row", {"direction": "next row"})
    yield Edit("half of the log-ratio d", {"log_ratio": 0.5})
    yield Edit("twice the log-ratio d", {"log_ratio": 2.0})
    yield Edit("d in bits, to base 2", {"log_ratio": 1.0 / np.log(2.0)})
    yield from mistakes("mask", MASKS)
    if asked["reduction"] == "mean":
        yield Edit("padding counted in the sum, but not in the number of tokens", {"numerator": "all"})


def token_presets(asked: Choices) -> Iterator[Edit]:
    """Yield the published estimators with their library settings (docs/definitions.md, "Presets")."""
    plain = {"kl_ratio": "none", "clamp": None}
    yield Edit("k1 = −d (verl kl_loss_type=kl)", {**plain, "estimator": "k1"}, convention=True)
    yield Edit("k2 = d²/2 (verl kl_loss_type=mse)", {**plain, "estimator": "k2"}, convention=True)
    yield Edit("k3 = exp(d) − d − 1 (TRL)", {**plain, "estimator": "k3"}, convention=True)
    clamped = {"kl_ratio": "none", "estimator": "k3", "clamp": 10.0, "clamped": "both"}
    yield Edit("k3, each estimate clamped to ±10 (verl kl_loss_type=low_var_kl)", clamped, convention=True)
    if asked["off_policy"]:
        for level in ("token", "sequence"):
            words = f"k3 {RATIOS[level][0]} (TRL use_bias_correction_kl, the loss's level {level})"
            yield Edit(words, {"estimator": "k3", "kl_ratio": level, "clamp": None}, convention=True)


WORDS: Mapping[str, Mapping[str, str]] = {
    "of": {"reference": "KL(reference ‖ policy), the arguments exchanged"},
    "term": {
        "not weighed": "Σ (log p − log q), not weighed by p",
        "weighed by q": "Σ q (log p − log q), weighed by the reference",
        "cross-entropy": "the cross-entropy −Σ p log q",
        "entropy": "the entropy −Σ p log p",
        "symmetric": "KL(p ‖ q) + KL(q ‖ p)",
        "half symmetric": "the mean of KL(p ‖ q) and KL(q ‖ p)",
        "mixture": "the Jensen–Shannon divergence",
        "absolute": "Σ p |log p − log q|",
        "squared": "k2 under the policy: Σ p (log p − log q)²/2",
        "squared, not weighed": "Σ (log p − log q)², not weighed by p",
        "k3 not weighed": "k3 of every id, not weighed by p",
        "k3 of p/q": "k3 under the policy with its argument inverted",
        "entropies": "the difference of entropies: Σ p log p − q log q",
        "k3 weighed by q": "k3 of every id, weighed by the reference",
        "positive": "Σ p max(0, log p − log q): terms below 0 left out",
        "hellinger": "Σ (√p − √q)²",
        "chi-square": "Σ (p − q)²/q, the χ² divergence",
        "distance": "Σ (p − q)², the squared distance",
        "total variation": "the total variation Σ |p − q|/2",
    },
    "ids": {"without last": "the last id of the vocabulary left out", "without first": "the first id left out"},
    "sum": {
        "mean": "the mean over the vocabulary, not the sum",
        "one mean": "one mean over all positions",
        "one sum": "one sum over all positions",
        "one mean of all": "one mean over all positions and ids",
        "first row's mean": "one sum over everything, over the rows (reduction batchmean)",
    },
}


def of_vocabulary(chosen: Choices) -> Iterator[Edit]:
    """Yield the edits of a divergence with these choices."""
    mixture = WORDS["term"]["mixture"]
    yield Edit(WORDS["of"]["reference"], {"of": "reference"}, convention=True)
    yield Edit(mixture, {"term": "mixture"}, convention=True)
    for choice, named in WORDS.items():
        yield from mistakes(choice, named, without=("reference", "mixture", chosen[choice]))
    yield Edit("the KL with the wrong sign", {"times": -1.0})
    yield Edit("the KL in bits, logarithms to base 2", {"times": 1.0 / np.log(2.0)})
    yield Edit("half of the KL", {"times": 0.5})
    for temperature in (0.5, 2.0):
        words = f"log-probs at temperature {temperature:g}"
        yield Edit(words, {"logits": temperature})
        yield Edit(f"{words}, times its square", {"logits": temperature, "times": "temperature²"})


def vocabulary_presets(chosen: Choices) -> Iterator[Edit]:  # noqa: ARG001  the op has no settings
    """Yield the divergence and its reverse."""
    yield Edit("KL(policy ‖ reference) = Σ p (log p − log q)", {"of": "policy", "term": "given"}, convention=True)
    yield Edit("KL(reference ‖ policy) = Σ q (log q − log p)", {"of": "reference", "term": "given"}, convention=True)
