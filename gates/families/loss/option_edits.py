"""The edits of a loss with options: corrections of the sampler, the top-entropy mask, the entropy bonus, and those of the loss."""

from __future__ import annotations

from collections.abc import Iterator

from gates.families.edits import conventions_first, mistakes, numbers
from gates.families.loss import edits as of_losses
from gates.families.program import Choices, Edit

THRESHOLDS = {  # of the entropy
    "of ρ": "the entropy's threshold is the quantile of ρ, not of 1 − ρ",
    "lowest": "the tokens of lowest entropy train, not those of highest: the entropy mask's quantile from the wrong end",
    "of each part": "a quantile of the entropy for each micro-batch, not one of the step",
    "of each row": "a quantile of the entropy for each row, not one of the step",
    "of all slots": "the quantile of the entropy over every slot, padding too",
    "ρ nats": "ρ itself as the threshold of the entropy, not a quantile",
    "mean": "the mean entropy as the threshold, not a quantile",
    "share of the largest": "a threshold of 1 − ρ times the largest entropy, not a quantile",
    "without": "the entropy mask ignored: every token trains",
    "below": "the entropy mask inverted: tokens of high entropy do not train",
    "lower": "the entropy's quantile without interpolation, the lower value: one token more trains",
    "above": "tokens strictly above the entropy's higher value train: one token less",
    "median": "the median entropy as the threshold, whatever ρ",
}
TOPS = {
    "KL too": "the entropy mask on the KL too",
    "denominators too": "the mean over the tokens of the entropy mask, not over all",
    "mask itself": "the entropy mask taken for the mask: tokens without it count nowhere, in the KL neither",
}
BONUSES = {
    "all tokens": "the entropy bonus over all tokens, not over those of the entropy mask",
    "chosen, over all": "the entropy bonus divided by all tokens, not by those of the entropy mask",
    "all, over chosen": "the entropy bonus summed over all tokens, divided by those of the entropy mask",
    "slots": "the entropy bonus divided by all slots, padding too",
    "row means": "the entropy bonus as the mean over rows of each row's mean",
    "part means": "the entropy bonus as the mean over micro-batches of each one's mean",
    "sum of part means": "the entropy bonus as the sum over micro-batches of each one's mean",
    "rows": "the entropy bonus divided by the rows, not by the tokens",
    "sum": "the entropy bonus summed, not averaged",
    "weighted": "the entropy bonus times the correction's weights",
    "as the loss": "the entropy bonus averaged as the loss is",
    "times advantages": "the entropy bonus times the advantages",
    "column means": "the entropy bonus as the mean over columns of each column's mean",
    "over the rest": "the entropy bonus over the tokens that the entropy mask leaves out",
}
RATIOS = {
    "inverted": "the correction's ratio inverted: exp(sampling − old)",
    "of the policy": "the correction's ratio of the current policy to the sampler, not of the old one",
    "of the policy, alive": "the correction's ratio of the current policy to the sampler, with its gradient",
    "of the reference": "the correction's ratio of the reference to the sampler",
    "to the reference": "the correction's ratio of the old policy to the reference, not to the sampler",
    "to the policy": "the correction's ratio of the old policy to the current one, not to the sampler",
    "log": "the correction's log-ratio in the place of its ratio",
    "of probabilities": "exp of the difference of probabilities for the correction's ratio",
    "old ignored": "the correction's ratio without the old policy: 1 over the sampler's probability",
    "sampler ignored": "the correction's ratio without the sampler: the old policy's probability",
}
LEVELS = {
    "token": "the correction by each token's ratio",
    "seq_sum": "the correction by the row's product of ratios",
    "seq_mean": "the correction by the row's mean ratio, exp(mean D)",
    "padding too": "the correction by the row's product of ratios with those of padding",
    "batch": "the correction by one ratio of the whole batch, exp(mean D)",
}
AFTERS = {
    "squared": "the correction's weights squared",
    "mean 1": "the correction's weights divided by their mean",
    "inverse": "1 over the correction's weights",
    "next row": "the correction's weights of the next row",
    "root": "the root of the correction's weights",
    "at most 1": "the correction's weights at most 1",
    "as mask": "the correction's weights taken for a mask: 1 where they are above 0",
    "row mean": "the mean of the correction's weights over each row for each of its tokens",
    "1 outside": "the correction's weight 1 outside the bounds, not 0",
    "1 inside": "the correction's weight 1 inside the bounds, not the ratio",
}
BONUS_SIZES = (0.001, 0.01, 0.05, 0.1)
SHARES = (0.1, 0.2, 0.5, 0.8)


@conventions_first
def edits(asked: Choices) -> Iterator[Edit]:
    """Yield the edits of a loss with options, then those of the policy loss."""
    if asked["correction"] != "none":
        yield from _corrections(asked)
    if asked["share"] < 1.0:
        yield from mistakes("threshold", THRESHOLDS)
        yield from mistakes("top", TOPS)
        yield from numbers("the entropy's share ρ", "share", SHARES, asked)
    if asked["bonus"]:
        yield from _bonuses(asked)
    yield from of_losses.edits({**asked, "weights": "none"})
    if asked["weights"] == "given" and asked["beta"]:
        yield Edit("the correction's weights on the KL too", {"weights": "on the KL too"}, convention=True)


def _corrections(asked: Choices) -> Iterator[Edit]:
    other = {"tis": "mis", "mis": "tis"}[asked["correction"]]
    words = {"tis": "ratios truncated at the bounds (TIS)", "mis": "ratios 0 outside the bounds (MIS)"}
    yield Edit(words[other], {"correction": other}, True, words[asked["correction"]])
    yield Edit("the correction ignored", {"correction": "none"})
    yield Edit("the correction's ratio not bounded", {"bounds": (None, None)})
    low, high = asked["bounds"]
    if low is not None:
        yield Edit("the correction without its lower bound", {"bounds": (None, high)}, convention=True)
        yield Edit("the correction's bounds exchanged", {"bounds": (high, low)})
    else:
        yield Edit("the correction with a lower bound 1/c_max", {"bounds": (1.0 / high, high)})
    yield Edit("the correction without its upper bound", {"bounds": (low, None)})
    shifted = {"bounds": (None if low is None else 1.0 - low, 1.0 + high)}
    yield Edit("the correction's bounds 1 − c_min and 1 + c_max", shifted)
    between = "up to c_max" if low is None else "from c_min to c_max"
    yield Edit(f"the correction's bounds those of D, not of exp(D): {between}", {"bounded": "logarithm"})
    if asked["share"] >= 1.0 and asked["bound"] != "none":
        yield Edit("the correction's weights times the ratio before it is bounded", {"weights": "in the ratio"})
    yield Edit("the old policy replaced by the sampler in the surrogate too", {"log_ratio": "sampling"})
    yield from mistakes("of", RATIOS)
    yield from mistakes("correction level", LEVELS, without=(asked["correction level"],))
    yield from mistakes("after", AFTERS, without=("1 outside", "1 inside") if asked["correction"] == "tis" else ())


def _bonuses(asked: Choices) -> Iterator[Edit]:
    c = asked["bonus"]
    yield Edit("the entropy bonus with the wrong sign: entropy is penalised", {"bonus": -c})
    yield Edit("no entropy bonus", {"bonus": 0.0})
    yield Edit("the entropy bonus without its weight c", {"bonus": 1.0})
    yield Edit("the entropy bonus twice", {"bonus": 2.0 * c})
    yield Edit("half of the entropy bonus", {"bonus": 0.5 * c})
    yield Edit("the entropy bonus times the square of c", {"bonus": c * c})
    yield Edit("the entropy bonus without a gradient", {"bonus slope": 0.0})
    yield Edit("the entropy's gradient with the wrong sign", {"bonus slope": -1.0})
    alike = () if asked["share"] < 1.0 else ("over the rest", "all tokens", "chosen, over all", "all, over chosen")
    yield from mistakes("bonus over", BONUSES, without=alike + (() if asked["correction"] != "none" else ("weighted",)))
    yield from numbers("c of the entropy bonus", "bonus", BONUS_SIZES, asked)
