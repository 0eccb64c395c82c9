"""The edits of the policy losses: other libraries' conventions, and the mistakes that people make."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gates.families.edits import conventions_first, declarations, mistakes, numbers, others
from gates.families.loss import bound_edits
from gates.families.program import Choices, Edit
from gates.families.rows import MASKS
from reference.algorithms import ALGORITHMS, AXES, VARIANTS, Algorithm

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
    "constant of tokens": ("sum over tokens / (the tokens · L_max)", False),
}
DENOMINATORS = {"global": "token-mean", "group": "token-mean of prompts", "trl": "tokens of the step"}
WITH = {"token-mean": " with the tokens of the step", "token-mean of prompts": " with the tokens of each prompt"}
NEEDS = {
    "token-mean of prompts": "group_size",
    "micro-batch": "micro_batches",
    "sum of micro-batches": "micro_batches",
    "micro-batches by rows": "micro_batches",
    "sum of prompts": "group_size",
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
}
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
    "k3 with k2's gradient": ("k3 with the gradient of k2", True),
    "k1 with k2's gradient": ("k1 with the gradient of k2", True),
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
}
KL_RATIOS = {
    "none": ("not weighed by a ratio", True),
    "token": ("times the token's ratio", True),
    "sequence": ("times the row's ratio", True),
}
KL_AGGREGATIONS = ("row-mean", "row-sum", "token-mean")  # which a subject may declare
HELD = frozenset(
    ("token", "seq_mean", "seq_sum", "row mean over the width", "mean of ratios", "first order")
)  # levels of a ratio under a cap or a gate
DECLARED = {  # as a subject declares what it computes, if it means it
    "mean": {
        **declarations("aggregation", AXES["aggregation"]),
        "token-mean of prompts": ("dapo_denominator", "group"),
        "tokens of the step": ("dapo_denominator", "trl"),
    },
    "level": declarations("ratio_level", AXES["ratio_level"]),
    "bound": {**declarations("bound", AXES["bound"]), "clipped logarithm": ("bound", "log-clip")},
    "estimator": declarations("kl_estimator", ("k1", "k2", "k3")),
    "kl_ratio": declarations("kl_ratio", KL_RATIOS),
    "kl_mean": declarations("kl_aggregation", KL_AGGREGATIONS),
    "kl_clamp": declarations("kl_clamp", (10.0,)),
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
        yield from others("level", LEVELS, asked)
    if asked["bound"] in {"cap", "gate"}:
        yield from others("level", LEVELS, asked, without=LEVELS.keys() - HELD)
    if asked["bound"] in {"clip", "none"}:
        for name, (words, known) in BOUNDS.items():
            if name != asked["bound"] and asked["low"] is not None:
                yield Edit(words, {"bound": name}, known)
    yield from _penalties_of_libraries(asked)


def _penalties_of_libraries(asked: Choices) -> Iterator[Edit]:
    if asked["beta"]:
        yield from others("estimator", ESTIMATORS, asked, "KL by {}")
        yield from others("kl_ratio", KL_RATIOS, asked, "KL {}")


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
    if asked["weights"] == "given":
        yield Edit("off-policy weights ignored", {"weights": "none"})
        yield Edit("off-policy weights squared", {"weights": "squared"})
        yield Edit("1 over the off-policy weights", {"weights": "inverse"})
        yield Edit("the off-policy weight of the next row", {"weights": "next row"})
        yield Edit("off-policy weights divided by their mean over the batch", {"weights": "mean 1"})
        if asked["beta"]:
            yield Edit("off-policy weights on the KL too", {"weights": "on the KL too"}, convention=True)


def _ratios(asked: Choices) -> Iterator[Edit]:
    if asked["log_ratio"] == "given":
        yield Edit("a ratio that is always 1: old log-probs are the policy's own", {"log_ratio": "on-policy"})
        yield Edit("the ratio inverted: exp(old − policy)", {"log_ratio": "inverted"})
        if "reference" in asked["given"]:
            yield Edit("the ratio to the reference, not to the old policy", {"log_ratio": "reference"})
        yield Edit("old log-probs shifted by one token", {"log_ratio": "old next token"})
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
    else:
        yield Edit("KL clamped to ±10", {"kl_clamp": 10.0}, convention=True)
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
