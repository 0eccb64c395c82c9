"""The edits of the policy losses: other libraries' conventions, and the mistakes that people make."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gates.families.counts import SIZES
from gates.families.edits import conventions_first, declarations, mistakes, numbers, others
from gates.families.loss import bound_edits
from gates.families.loss.terms import SLOPES
from gates.families.program import Choices, Edit
from gates.families.rows import MASKS
from gates_reference.algorithms import ALGORITHMS, AXES, VARIANTS, Algorithm

MEANS = {  # words of each aggregation, and whether some library has it on purpose
    "row-mean": ("mean over rows of each row's token mean", True),
    "token-mean": ("token mean over the step: Σ m·l / Σ m", True),
    "token-mean of prompts": ("token mean of each prompt, then the mean over prompts", True),
    "micro-batch": ("token mean of each micro-batch, then their mean", True),
    "constant": ("sum over tokens / (B · L_max)", True),
    "tokens of the step": ("sum over tokens / the tokens of the generation batch", True),
    "row-sum": ("token sum of each row, then the mean over rows", True),
    "width": ("mean over the padded width: sum over tokens / (B · T)", True),
    "longest row": ("sum over tokens / (B · the longest row)", False),
    "sum": ("sum over all tokens, not divided", False),
    "sum of row means": ("sum over rows of token means, not divided by B", False),
    "row means of rows with tokens": ("mean over the rows that have tokens, not over all rows", False),
    "tokens times rows": ("token mean divided by B once more", False),
    "constant, summed over rows": ("sum over tokens / L_max, not divided by B", False),
    "sum over the width": ("sum over tokens / T, not divided by B", False),
    "square roots": ("row sums divided by √n", False),
    "mean length": ("sum over tokens / (B · the mean length)", False),
    "sum of micro-batches": ("token means of the micro-batches summed, not divided by their number", False),
    "micro-batches by rows": ("token mean of each micro-batch, weighed by its share of the rows", False),
    "sum of prompts": ("token means of the prompts summed, not divided by their number", False),
    "prompts by rows": ("token means of the prompts summed, divided by the rows, not by the prompts", False),
    "constant of tokens": ("sum over tokens / (the tokens · L_max)", False),
    "column means": ("mean over columns of each column's mean over its tokens (the other axis)", False),
    "tokens of the next row": ("each row's sum divided by the tokens of the next row", False),
}
DENOMINATORS = {"global": "token-mean", "group": "token-mean of prompts", "trl": "tokens of the step"}
WITH = {"token-mean": " with the tokens of the step", "token-mean of prompts": " with the tokens of each prompt"}
NEEDS = {
    "token-mean of prompts": "group_size",
    "micro-batch": "micro_batches",
    "sum of micro-batches": "micro_batches",
    "micro-batches by rows": "micro_batches",
    "sum of prompts": "group_size",
    "prompts by rows": "group_size",
    "constant of tokens": "max_length",
    "constant": "max_length",
    "constant, summed over rows": "max_length",
    "tokens of the step": "tokens_in_step",
}
LEVELS = {
    "token": ("the ratio of each token", True),
    "seq_mean": ("the ratio of the row, exp(mean D)", True),
    "seq_mean_token": ("the row's ratio with each token's gradient (GSPO-token)", True),
    "seq_sum": ("the ratio of the row, exp(Σ D)", True),
    "row mean over the width": ("the row's ratio with D averaged over the padded width", False),
    "mean of ratios": ("the mean of a row's ratios, not exp of the mean", False),
    "row mean, no slope": ("the row's ratio as a constant, without gradient", False),
    "batch mean": ("one ratio of the whole batch, exp(mean D)", False),
    "row mean, padding too": ("the row's ratio with D of padding in its sum", False),
    "row product, padding too": ("the row's product of ratios with those of padding", False),
    "first order": ("1 + D instead of exp(D)", False),
    "log": ("the log-ratio D instead of exp(D)", False),
    "quotient": ("the quotient of log-probs, policy / old, instead of exp(D)", False),
    "none": ("A·log π without a ratio (REINFORCE)", True),
    "longest row": ("the row's ratio with ΣD over the tokens of the longest row", False),
    "square roots": ("the row's ratio with ΣD over √n", False),
    "so far": ("the product of the ratios up to each token", False),
    "probability": ("the probability of each token, exp(log π)", False),
    "weighed logarithm": ("log π weighed by its probability: π·log π", False),
}
PENALTIES = {
    "inverted": "KL inverted: of policy − reference",
    "detached": "KL without gradient",
    "old": "KL to the old policy, not to the reference",
    "padding too": "KL of padding counted",
    "times advantages": "KL multiplied by the advantage",
    "of old": "the KL of the old policy, not of the current one: it has no gradient",
    "next token": "reference log-probs of the KL shifted by one token",
    "next row": "the KL to the reference log-probs of the next row",
    "in the advantages": "the KL (k1) subtracted from the advantages, not added to the loss",
    "of probabilities": "the KL of probabilities, not of their logarithms: d = exp(reference) − exp(policy)",
    "weighed by the policy": "the KL of each token weighed by its probability once more",
    "without reference": "the KL without the reference: d = −log π",
    "half of d": "the KL of half the log-ratio d",
    "twice d": "the KL of twice the log-ratio d",
    "at least 0": "the KL estimate at least 0: max(0, ·)",
    "previous token": "reference log-probs of the KL of the token before",
}


def _sloped(name: str) -> str:
    """Return what an estimate with another gradient than its own computes."""
    value, slope = SLOPES[name]
    value = {"absolute": "|d|"}.get(value, value)
    if "log π" in slope:
        return f"{value} as a constant, times {slope}"
    return f"{value} with the gradient of {slope}"


ESTIMATORS = {
    "k1": ("k1", True),
    "k2": ("k2", True),
    "k3": ("k3", True),
    "k2 doubled": ("k2 without its ½", False),
    "k3 without −1": ("k3 without its −1", False),
    "k3 with +d": ("exp(d) + d − 1, k3 with +d for −d", False),
    "k3 without d": ("exp(d) − 1, k3 without its −d", False),
    "k3 of −d in exp": ("exp(−d) − d − 1, k3 with d inverted in the exponential only", False),
    "absolute": ("|d|", True),
    **{name: (_sloped(name), True) for name in SLOPES},
    "full ratio": ("exp(−d)·(−d)", False),
}
BOUNDS = {
    "clip": ("the clipped surrogate of PPO", True),
    "none": ("r·A without a clip", True),
    "clipped logarithm": ("the clip on the log-ratio, exp(clip(D, −ε_low, ε_high))", False),
}
ADVANTAGES = {
    "negated": "advantages with the wrong sign",
    "absolute": "|A|",
    "whitened": "advantages normalised over the batch once more",
    "whitened by n": "advantages normalised over the batch once more, by a deviation of n, not n − 1",
    "whitened by tokens": "advantages normalised over the batch's tokens once more",
    "whitened by n tokens": "advantages normalised over the batch's tokens once more, by a deviation of n, not n − 1",
    "centred": "advantages less their mean over the batch",
    "next row": "each row with the advantage of the next one",
    "previous row": "each row with the advantage of the one before",
    "signs": "the sign of each advantage, not its size",
    "negative": "rows with A > 0 left out",
    "positive": "rows with A < 0 left out",
    "ones": "advantages ignored: A = 1",
    "next token": "advantages shifted by one token",
    "last token": "the advantage of the row's last token",
    "row mean": "the mean of a row's advantages for each of its tokens",
    "squared": "the advantage twice: A²",
    "clipped": "advantages clipped to ±1",
    "batch mean": "the mean advantage of the batch for every row",
}
WEIGHTS = {
    "none": "off-policy weights ignored",
    "squared": "off-policy weights squared",
    "root": "the root of the off-policy weights",
    "inverse": "1 over the off-policy weights",
    "next row": "the off-policy weight of the next row",
    "mean 1": "off-policy weights divided by their mean over the batch",
    "mean 1 by row": "off-policy weights divided by their mean over each row",
    "at most 1": "off-policy weights of at most 1",
    "as mask": "off-policy weights taken for a mask: 1 where they are above 0",
    "mask too": "tokens with an off-policy weight of 0 left out of the number of tokens too",
    "for advantages": "off-policy weights in the place of the advantages",
    "in the ratio": "off-policy weights times the ratio before it is bounded",
}
KL_RATIOS = {
    "none": ("not weighed by a ratio", True),
    "token": ("times the token's ratio", True),
    "sequence": ("times the row's ratio", True),
    "token, no slope": ("times the token's ratio as a constant", True),
    "token, of a constant": ("times the token's ratio, whose gradient alone it has", True),
}
KL_AGGREGATIONS = ("row-mean", "row-sum", "token-mean")  # which a subject may declare
HELD = frozenset(
    (
        "token",
        "seq_mean",
        "seq_sum",
        "row mean over the width",
        "mean of ratios",
        "first order",
        "longest row",
        "square roots",
        "so far",
    )
)  # levels of a ratio under a cap or a gate
OF_LOGARITHMS = frozenset(("probability", "weighed logarithm"))  # in the place of log π, without a ratio
LIBRARY_S = 10.0  # verl's clamp of the KL
NATS = (20.0, 10.0, 5.0, 3.0, 2.0, 1.0)  # usual sizes of a clamp
DECLARED = {  # as a subject declares what it computes, if it means it
    "mean": {
        **declarations("aggregation", AXES["aggregation"]),
        "token-mean of prompts": ("dapo_denominator", "group"),
        "tokens of the step": ("dapo_denominator", "trl"),
    },
    "level": declarations("ratio_level", AXES["ratio_level"]),
    "bound": {**declarations("bound", AXES["bound"]), "clipped logarithm": ("bound", "log-clip")},
    "estimator": declarations("kl_estimator", ("k1", "k2", "k3")),
    "kl_ratio": declarations("kl_ratio", ("none", "token", "sequence")),
    "kl_mean": declarations("kl_aggregation", KL_AGGREGATIONS),
    "kl_clamp": declarations("kl_clamp", (LIBRARY_S,)),
    "count_eps": declarations("count_eps", (0.0, *SIZES)),
}
BETAS = (0.001, 0.01, 0.04, 0.05, 0.1)


@conventions_first
def edits(asked: Choices) -> Iterator[Edit]:
    """Yield the edits of a loss with these choices."""
    yield from _conventions(asked)
    yield from _mistakes(asked)


def _missing(asked: Choices) -> list[str]:
    """Return the aggregations whose constant is not given."""
    return [name for name, constant in NEEDS.items() if constant not in asked["given"]]


def _conventions(asked: Choices) -> Iterator[Edit]:
    yield from others("mean", MEANS, asked, without=_missing(asked))
    if asked["bound"] in {"clip", "none"}:
        yield from others("level", LEVELS, asked, without=() if asked["level"] == "none" else OF_LOGARITHMS)
    if asked["bound"] in {"cap", "gate"}:
        yield from others("level", LEVELS, asked, without=LEVELS.keys() - HELD)
    if asked["bound"] in {"clip", "none"}:
        for name, (words, known) in BOUNDS.items():
            if name != asked["bound"] and asked["low"] is not None:
                yield Edit(words, {"bound": name}, known)
    if asked["count_eps"]:
        yield Edit("no constant added to the count of tokens", {"count_eps": 0.0}, True, f"{asked['count_eps']:g}")
    yield from _penalties_of_libraries(asked)


def clamps(asked: Choices) -> Iterator[Edit]:
    """Yield the clamps against overflow that libraries have: of log-ratios, of the KL's difference and of its estimates."""
    if asked["log_ratio"] == "given" and asked["level"] != "none":
        yield from _clamps_of_ratios("tokens", "the log-ratio")
        if asked["level"] in {"seq_mean", "seq_sum"}:
            yield from _clamps_of_ratios("rows", "the row's log-ratio")
    if asked["beta"]:
        for nats in NATS:
            words = f"the KL's difference of log-probs clamped to ±{nats:g}"
            yield Edit(words, {"d_clamp": nats}, convention=True)
        for size in NATS:
            if size != asked["kl_clamp"]:
                yield Edit(f"KL clamped to ±{size:g}", {"kl_clamp": size}, convention=True)


def _clamps_of_ratios(of: str, words: str) -> Iterator[Edit]:
    for nats in NATS:
        both, above = {"clamp of": of, "clamp": (-nats, nats)}, {"clamp of": of, "clamp": (None, nats)}
        yield Edit(f"{words} clamped to ±{nats:g} before exp", both, convention=True)
        yield Edit(f"{words} clamped to at most {nats:g} before exp", above, convention=True)


def _penalties_of_libraries(asked: Choices) -> Iterator[Edit]:
    if asked["beta"]:
        yield from others("estimator", ESTIMATORS, asked, "KL by {}")
        off_policy = asked["kl_ratio"] == "token"  # whose missing slope is a mistake
        yield from others("kl_ratio", KL_RATIOS, asked, "KL {}", without=("token, no slope",) if off_policy else ())


def _mistakes(asked: Choices) -> Iterator[Edit]:
    yield from mistakes("mask", MASKS)
    if asked["level"].startswith("seq"):
        yield Edit("a row without tokens counted with the ratio 1: −A is added", {"numerator": "empty rows"})
    yield Edit("padding counted in the sum, but not in the number of tokens", {"numerator": "all"})
    yield Edit(
        "the loss with the wrong sign", {"sign": -1.0, "beta": -asked["beta"]} if asked["beta"] else {"sign": -1.0}
    )
    if asked["beta"]:
        yield Edit("the policy term with the wrong sign", {"sign": -1.0})
    if "row_mask" in asked["given"]:
        yield Edit("rows that the row mask excludes counted", {"row_mask": "ignored"})
        yield Edit("the row mask inverted: only the rows that it excludes counted", {"row_mask": "inverted"})
    yield Edit("each row's loss times the row's tokens once more", {"rows": "n"})
    yield Edit("each row's loss divided by the row's tokens once more", {"rows": "1/n"})
    if asked["beta"]:
        yield Edit("each row's policy term times the row's tokens once more", {"rows": "n of the policy term"})
        yield Edit("each row's policy term divided by the row's tokens once more", {"rows": "1/n of the policy term"})
    yield from mistakes("advantages", ADVANTAGES)
    yield from _ratios(asked)
    yield from bound_edits.edits(asked)
    if asked["beta"]:
        yield from _penalties(asked)
    yield from _of_mean(asked)
    if asked["weights"] == "given":
        yield from mistakes("weights", WEIGHTS, without=("in the ratio",) if asked["bound"] == "none" else ())
        if asked["beta"]:
            yield Edit("off-policy weights on the KL too", {"weights": "on the KL too"}, convention=True)


def _of_mean(asked: Choices) -> Iterator[Edit]:
    """Yield the edits in which another array stands for the mask of a mean."""
    if asked["mean"] in {"token-mean", "row-mean"}:
        words = "the advantages taken for the mask of the mean: they weigh each token, and their sum divides"
        yield Edit(words, {"mean of": "advantages"})
        if asked["beta"]:
            yield Edit(f"{words}; in the KL too", {"mean of": "advantages, KL too"})
    if "row_mask" in asked["given"]:
        yield Edit("rows that the row mask excludes counted in the denominators", {"row_mask": "in the sums only"})


def _ratios(asked: Choices) -> Iterator[Edit]:
    if asked["log_ratio"] == "given":
        yield Edit("a ratio that is always 1: old log-probs are the policy's own", {"log_ratio": "on-policy"})
        yield Edit("the ratio inverted: exp(old − policy)", {"log_ratio": "inverted"})
        if "reference" in asked["given"]:
            yield Edit("the ratio to the reference, not to the old policy", {"log_ratio": "reference"})
            if asked["beta"]:
                yield Edit("old and reference exchanged", {"log_ratio": "reference", "kl": "old"})
        yield Edit("old log-probs shifted by one token", {"log_ratio": "old next token"})
        yield Edit("old log-probs of the token before", {"log_ratio": "old previous token"})
        yield Edit("old log-probs ignored: the probability exp(log π), not a ratio", {"log_ratio": "without old"})
        yield Edit("old log-probs added, not subtracted: exp(policy + old)", {"log_ratio": "added"})
        yield Edit("exp of the difference of probabilities, not of log-probs", {"log_ratio": "of probabilities"})
        yield Edit("exp(|D|)", {"log_ratio": "absolute"})
        yield Edit("each row with the old log-probs of the next one", {"log_ratio": "old of the next row"})
        yield Edit("2 to the power D instead of exp(D)", {"log_ratio": "base 2"})
        yield Edit("half of the log-ratio: the root of the ratio", {"log_ratio": "half"})
        yield Edit("twice the log-ratio: the square of the ratio", {"log_ratio": "twice"})
        yield Edit("a ratio without gradient (detached)", {"log_ratio": "detached"})
    elif asked["bound"] not in {"cap", "taper"}:
        live = "the policy's own log-probs taken for old ones with their gradient, which cancels"
        yield Edit(live, {"log_ratio": "detached"})


def _penalties(asked: Choices) -> Iterator[Edit]:
    beta = asked["beta"]
    yield Edit("no KL in the loss", {"beta": 0.0})
    yield Edit("the KL without its weight β", {"beta": 1.0})
    yield Edit("the KL with the wrong sign", {"beta": -beta})
    yield Edit("the KL twice", {"beta": 2.0 * beta})
    yield Edit("half of the KL", {"beta": 0.5 * beta})
    yield Edit("the KL times β squared", {"beta": beta * beta})
    yield Edit("the KL divided by β", {"beta": 1.0 / beta})
    yield from numbers("β", "beta", BETAS, asked)
    yield from mistakes("kl", PENALTIES, without=() if "old" in asked["given"] else ("old",))
    means = {name: f"KL averaged otherwise than the policy term: {words}" for name, (words, _) in MEANS.items()}
    yield from mistakes("kl_mean", means, without=(asked["mean"], *KL_AGGREGATIONS, *_missing(asked)))
    for name in KL_AGGREGATIONS:
        if name not in {asked["mean"], asked["kl_mean"]}:
            yield Edit(means[name], {"kl_mean": name}, convention=True)
    if asked["kl_mean"] != "same":
        yield Edit("KL averaged as the policy term", {"kl_mean": "same"}, convention=True)
    if asked["kl_clamp"] is not None:
        yield Edit("the KL's clamp ignored", {"kl_clamp": None})
        yield Edit("the KL's clamp bounds from above only", {"kl clamped": "above"})
        yield Edit("the KL's clamp on d, not on the estimate", {"kl clamped": "log-ratio"})
    else:
        yield Edit("KL clamped to ±10", {"kl_clamp": LIBRARY_S}, convention=True)
    if asked["kl_ratio"] == "token":
        yield Edit("the KL's ratio without gradient", {"kl_ratio": "token, no slope"})


def presets(asked: Choices) -> Iterator[Edit]:
    """Yield the losses of the table, with the settings of libraries that choose them (docs/definitions.md, "Presets")."""
    for row in (*ALGORITHMS.values(), *VARIANTS):
        if not _known(row, asked):
            continue
        for words, changes in _forms(row, asked["given"]):
            yield Edit(words, changes, convention=True)


def _known(row: Algorithm, asked: Choices) -> bool:
    """Whether a call has the widths that a bound needs."""
    widths = {"clip": ("low", "high"), "log-clip": ("low", "high"), "cap": ("high",)}.get(row.bound, ())
    return all(asked[width] is not None for width in widths)


def _forms(row: Algorithm, given: frozenset[str]) -> Iterator[tuple[str, Choices]]:
    """Yield the words and the changes of a row, for each denominator and cap whose constants a call has."""
    base: dict[str, Any] = {"level": row.ratio_level, "bound": row.bound, "pick": "min"}
    base |= {} if row.kl_in_loss else {"beta": 0.0}
    for denominator, mean in DENOMINATORS.items() if row.aggregation == "token-mean" else (("", row.aggregation),):
        if NEEDS.get(mean, "") not in {"", *given}:
            continue
        library = row.known_as.get(denominator, "")
        known = f" ({library})" if library else ""
        changes = {**base, "mean": mean}
        if row.bound == "cap":
            for cap, width in (("relative", "1 + ε_high"), ("absolute", "ε_high")):
                floor = {"low": None} if "epsilon_low" not in row.constants else {}
                yield f"{row.text}, cap {width}, {MEANS[mean][0]}", {**changes, **floor, "cap": cap}
        elif row.bound == "gate":
            tau = tuple(row.constants[f"sapo_temperature_{sign}"] for sign in ("positive", "negative"))
            yield f"{row.text}, τ {tau[0]:g} and {tau[1]:g}{known}", {**changes, "tau": tau}
        elif row.bound == "taper":
            k, rate = (
                tuple(row.constants[f"vespo_{name}_{sign}"] for sign in ("positive", "negative"))
                for name in ("k", "lambda")
            )
            yield f"{row.text}, {MEANS[mean][0]}{known}", {**changes, "k": k, "lambda": rate}
        else:
            yield f"{row.text}{'' if 'aggregation' in row.overrides else WITH.get(mean, '')}{known}", changes
