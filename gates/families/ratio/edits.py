"""The edits of importance ratios, off-policy weights and their statistics: conventions and mistakes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from gates.families.edits import conventions_first, mistakes, numbers, others
from gates.families.program import Choices, Edit
from gates.families.rows import MASKS

LEVELS = {  # description, and whether a library does it on purpose
    "token": ("the ratio of each token", True),
    "seq_mean": ("the ratio of the row, exp(mean D)", True),
    "seq_sum": ("the ratio of the row, exp(Σ D)", True),
    "width": ("the row's ratio with D averaged over the padded width", False),
    "longest": ("the row's ratio with ΣD over the longest row's tokens", False),
    "square roots": ("the row's ratio with ΣD over √n", False),
    "one less": ("the row's ratio with ΣD over n − 1", False),
    "sum, padding too": ("the row's ratio with D of padding in its sum", False),
    "batch mean": ("one ratio of the whole batch, exp(mean D)", False),
    "batch sum": ("one ratio of the whole batch, exp(Σ D)", False),
    "so far": ("the product of the ratios up to each token", False),
    "last token": ("the ratio of a row's last token only", False),
    "first token": ("the ratio of a row's first token only", False),
}
MEANS = {
    "mean of ratios": "the mean of a row's ratios, not exp of the mean",
    "sum of ratios": "the sum of a row's ratios",
    "mean of ratios, width": "the mean of a row's ratios over the padded width, padding too",
}
FORMS = {
    "log": "the log-ratio D instead of exp(D)",
    "first order": "1 + D instead of exp(D)",
    "exponent clipped": "exp of D clipped to ±1",
    "less 1": "exp(D) − 1, the ratio less 1",
    "squared": "exp(2D), the square of the ratio",
    "root": "exp(D/2), the root of the ratio",
    "base 2": "2 to the power D, not exp(D)",
}
OF_TOKENS = {
    "of probabilities": "the difference of probabilities, not their quotient",
    "quotient": "the quotient of log-probs",
}
OUTSIDE = {
    "1": "1 outside the bounds, not 0",
    "1 inside": "1 inside the bounds, not the ratio",
    "inverted": "0 inside the bounds and the ratio outside: the test of the bounds inverted",
    "0 above": "0 above the upper bound, the lower bound below it",
    "0 below": "0 below the lower bound, the upper bound above it",
    "row": "the whole row 0 if the ratio of any of its tokens is outside the bounds",
}
BOUNDS = (0.1, 0.5, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0)


def _of_pair(asked: Choices, inverted: str) -> Iterator[Edit]:
    """Yield the mistakes before a ratio is bounded."""
    yield Edit(inverted, {"log_ratio": "inverted"})
    yield Edit("exp(|D|)", {"log_ratio": "absolute"})
    yield Edit("log-probs of the second policy shifted by one token", {"log_ratio": "next"})
    yield Edit("log-probs of the second policy of the token before", {"log_ratio": "previous"})
    yield Edit("log-probs added, not subtracted", {"log_ratio": "added"})
    yield Edit("exp of the difference of probabilities, not of log-probs", {"log_ratio": "of probabilities"})
    yield Edit(
        "log-probs of the first policy ignored: 1 over the probability of the second one", {"log_ratio": "second"}
    )
    yield Edit("each row with the log-probs of the second policy of the next row", {"log_ratio": "next row"})
    yield Edit("log-probs of the second policy ignored: the probability of the first one", {"log_ratio": "first"})
    yield from mistakes("form", FORMS)
    yield from mistakes("mask", MASKS)
    if asked["padded"] and asked["level"] == "token":
        yield Edit("1 in slots without a token, not 0", {"padding": "1"})


@conventions_first
def of_ratio(asked: Choices) -> Iterator[Edit]:
    """Yield the edits of a ratio."""
    level = LEVELS[asked["level"]][0]
    yield from others("level", LEVELS, asked)
    if asked["level"] != "token":
        yield Edit("the ratio of the row, repeated on each of its tokens", {"shape": "tokens"}, convention=True)
    for name in ("seq_mean", "seq_sum"):
        if name != asked["level"]:
            words = f"{LEVELS[name][0]}, repeated on each of its tokens"
            yield Edit(words, {"level": name, "shape": "tokens"}, True, level)
    yield from _of_pair(asked, "the ratio inverted: exp(old − policy)")
    for name, words in MEANS.items():
        yield Edit(words, {"of_rows": name})
        if asked["level"] == "token":
            yield Edit(f"{words}, repeated on each of its tokens", {"of_rows": name, "shape": "tokens"})
    if asked["level"] == "token":
        yield Edit("the difference of probabilities, not their quotient", {"form": "of probabilities"})
        yield Edit("the quotient of log-probs", {"form": "quotient"})
    for low, high in (
        (0.8, 1.2),
        (0.8, 1.28),
        (0.9, 1.1),
        (0.7, 1.3),
        (0.5, 1.5),
        (None, 1.2),
        (None, 2.0),
        (None, 1.5),
    ):
        inside = f"at most {high:g}" if low is None else f"clipped to {low:g} … {high:g}"
        yield Edit(f"the ratio {inside}", {"clip": (low, high)})


@conventions_first
def of_weights(asked: Choices) -> Iterator[Edit]:
    """Yield the edits of a weight."""
    yield from _corrections(asked)
    yield from _bounds(asked)
    yield from _of_pair(asked, "the ratio inverted: exp(sampling − old)")


def _corrections(asked: Choices) -> Iterator[Edit]:
    words = {"tis": "truncated at the bounds (TIS)", "mis": "0 outside the bounds (MIS)"}
    other = "mis" if asked["correction"] == "tis" else "tis"
    yield Edit(words[other], {"correction": other}, True, words[asked["correction"]])
    yield Edit("ratios that are not bounded", {"correction": "none"})
    level = LEVELS[asked["level"]][0]
    for name, (named, known) in LEVELS.items():
        if name != asked["level"]:
            yield Edit(named, {"level": name}, known, level)
            if name.startswith("seq"):
                repeated = f"{named}, repeated on each of its tokens"
                yield Edit(repeated, {"level": name, "shape": "tokens"}, known, level)
    if asked["level"] != "token":
        yield Edit("the weight of the row, repeated on each of its tokens", {"shape": "tokens"}, convention=True)
        yield Edit("each token's ratio bounded, then their product", {"bounded": "tokens"})
        yield Edit("each token's ratio bounded, then their mean", {"bounded": "tokens, mean"})
        yield from (Edit(words, {"of_rows": name}) for name, words in MEANS.items())
    else:
        yield from (Edit(words, {"form": name}) for name, words in OF_TOKENS.items())
        yield Edit("weights divided by their mean over each row", {"after": "mean 1 by row"})
    if asked["correction"] == "mis":
        without = () if asked["low"] is not None else ("0 above", "0 below")
        yield from mistakes("outside", OUTSIDE, without=(*without, *(("row",) if asked["level"] != "token" else ())))
        yield Edit("ends of the bounds left out", {"ends": "left out"})
    yield Edit("weights divided by their mean over the batch", {"after": "mean 1"})
    yield Edit("weights divided by their sum", {"after": "sum 1"})
    yield Edit("weights squared", {"after": "squared"})
    yield Edit("1 over the weight", {"after": "inverse"})
    yield Edit("weights of at most 1", {"after": "at most 1"})
    yield Edit("the root of the weights", {"after": "root"})
    yield Edit("weights divided by the largest one", {"after": "largest 1"})
    yield Edit("the weight of the next row", {"after": "next row"})
    yield Edit("weights of 1 everywhere", {"after": "ones"})


def _bounds(asked: Choices) -> Iterator[Edit]:
    low, high = asked["low"], asked["high"]
    yield Edit("no upper bound", {"high": 1e30})
    if low is not None:
        yield Edit("no lower bound", {"low": None}, convention=True)
        yield Edit("the bounds exchanged", {"low": high, "high": low})
    elif high > 1.0:
        yield Edit("a lower bound of 1/c_max", {"low": 1.0 / high})
    between = "up to c_max" if low is None else "from c_min to c_max"
    yield Edit(f"bounds of D, not of exp(D): {between}", {"bounded": "logarithm"})
    if low is not None:
        yield Edit("bounds of D, not of exp(D): from −c_min to c_max", {"bounded": "logarithm, both ways"})
        yield Edit("bounds of D, not of exp(D): from −c_max to c_max", {"low": high, "bounded": "logarithm, both ways"})
        yield Edit("c_max on both sides: from 1/c_max to c_max", {"low": 1.0 / high})
    else:
        yield Edit("bounds of D, not of exp(D): from −c_max to c_max", {"low": high, "bounded": "logarithm, both ways"})
    yield Edit("bounds of |D|, not of exp(D)", {"bounded": "size of the logarithm"})
    yield Edit("bounds of r − 1, not of r", {"low": None if low is None else 1.0 + low, "high": 1.0 + high})
    yield Edit("bounds 1 − c_min and 1 + c_max", {"low": None if low is None else 1.0 - low, "high": 1.0 + high})
    yield from numbers("c_max", "high", BOUNDS, asked)
    if low is not None:
        yield from numbers("c_min", "low", [x for x in BOUNDS if x <= high], asked)


def ratio_presets(asked: Choices) -> Iterator[Edit]:  # noqa: ARG001  the same for all choices
    """Yield the published ratios."""
    yield Edit("the ratio of each token (PPO, GRPO)", {"level": "token"}, convention=True)
    yield Edit("the ratio of the row, exp(mean D) (GSPO)", {"level": "seq_mean"}, convention=True)
    yield Edit("the ratio of the row, exp(Σ D) (RLOO)", {"level": "seq_sum"}, convention=True)


def weight_presets(asked: Choices) -> Iterator[Edit]:  # noqa: ARG001  the same for all choices
    """Yield the corrections with their TRL settings (docs/definitions.md, "Presets")."""
    for mode, level in (("token", "token"), ("sequence", "seq_sum")):
        for correction, name in (("tis", "truncate"), ("mis", "mask")):
            words = f'{correction}, {LEVELS[level][0]} (TRL vllm_importance_sampling_mode="{mode}_{name}")'
            yield Edit(words, {"level": level, "correction": correction}, convention=True)


STATISTICS: Mapping[str, Mapping[str, str]] = {  # statistic → kind of mistake → what is computed instead
    "mean": {
        "geometric": "exp of the mean of D for the mean ratio",
        "summed": "the sum of the ratios, not their mean",
        "log": "the mean of D for the mean ratio",
        "less 1": "the mean of r − 1 for the mean ratio",
        "median": "the median ratio for the mean one",
        "inverse": "the mean of 1/r for the mean ratio",
        "squares": "the mean of r² for the mean ratio",
        "bounded": "the mean of min(r, 1) for the mean ratio",
    },
    "size": {
        "signed": "the largest D for the largest |D|",
        "of the ratio": "the largest |r − 1| for the largest |D|",
        "mean": "the mean of |D| for the largest one",
        "exp": "the largest exp|D| for the largest |D|",
        "least": "the magnitude of the least D for the largest |D|",
        "range": "the largest D less the least for the largest |D|",
        "root mean square": "the root mean square of D for the largest |D|",
    },
    "p99": {
        "lower": "the 99% quantile without interpolation, the lower value",
        "higher": "the 99% quantile without interpolation, the higher value",
        "95%": "the 95% quantile for the 99% one",
        "signed": "the 99% quantile of D, not of |D|",
        "1%": "the 1% quantile for the 99% one",
        "90%": "the 90% quantile for the 99% one",
        "50%": "the median for the 99% quantile",
        "of the ratio": "the 99% quantile of |r − 1|, not of |D|",
    },
    "k3": {
        "of −D": "k3 of −D: e^−D + D − 1, which estimates the other KL",
        "k1": "mean −D (k1) for k3",
        "k2": "mean D²/2 (k2) for k3",
        "plain": "mean D for k3",
        "without −1": "mean e^D − D for k3, without its −1",
        "with +D": "mean e^D + D − 1 for k3, with +D for −D",
        "without D": "mean e^D − 1 for k3, without its −D",
        "halved": "half of k3",
        "summed": "the sum of k3 over the tokens, not their mean",
        "weighed": "mean r·k3 for k3, weighed by the ratio",
        "absolute": "mean |D| for k3",
        "square": "mean D² for k3, k2 without its ½",
    },
    "chi2": {
        "square": "mean r² for χ², not less 1",
        "of r": "mean (r − 1)² for χ², a centred estimate",
        "once": "mean e^D − 1 for χ², not of 2D",
        "of −D": "χ² of −D: mean e^−2D − 1",
        "less the mean": "mean r² less the square of mean r for χ²",
        "summed": "the sum of r² − 1, not their mean",
        "doubled": "mean 2(e^D − 1) for χ²",
        "halved": "half of χ²",
        "of D²": "mean D² for χ²",
    },
    "ess": {
        "count": "the effective sample size, not over n",
        "inverse": "n over the effective sample size",
        "self-normalised mean": "1 over the mean of r²",
        "at most 1": "the mean ratio squared over n mean r²",
        "of D": "the effective sample size of D, not of r",
        "root": "the root of the effective sample size over n",
        "not squared": "Σr / (n Σr²): the sum not squared",
        "share": "1 less the effective sample size over n",
        "entropy": "exp of the entropy of the normalised ratios over n, the perplexity",
        "largest": "Σr over n times the largest ratio",
    },
    "mult": {
        "of the mean": "exp of the mean |D|, not the mean of exp|D|",
        "ratio": "the mean ratio for the mean of exp|D|",
        "less 1": "the mean of exp|D| − 1 for that of exp|D|",
        "mean size": "the mean of |D| for the mean of exp|D|",
        "of r − 1": "1 plus the mean of |r − 1| for the mean of exp|D|",
        "inverse": "the mean of exp(−|D|) for that of exp|D|",
        "largest": "the largest exp|D| for the mean one",
    },
    "outside": {
        "clipped": "shares outside the clip range of those only that a clip stops",
        "widths": "shares outside the clip range with ε_low and ε_high exchanged",
        "both": "one share outside the clip range for both sides",
        "inside": "shares inside the clip range's ends, not outside",
        "exchanged": "shares below and above the clip range exchanged",
        "log": "shares of D outside −ε_low … ε_high, not of r outside the clip range",
        "of all slots": "shares outside the clip range over every slot, padding too",
        "counts": "numbers of ratios outside the clip range, not shares",
        "inverse": "shares of 1/r outside the clip range, not of r",
        "low twice": "ε_low on both sides of the clip range",
        "high twice": "ε_high on both sides of the clip range",
        "percent": "shares outside the clip range in percent",
    },
    "sequences": {
        "means": "rows by the mean of D, not its sum",
        "mean ratios": "rows by the mean of their ratios",
        "empty rows": "rows without a token counted, with ratio 1",
    },
}


OF_BOTH = ("of all slots", "low twice", "high twice")  # mistakes of tokens and rows at once
SCOPES = {"tokens": "of the tokens alone", "rows": "of the rows alone"}
ENDS = {
    "of tokens": "the least and the largest ratio of the tokens, not of the rows",
    "logarithms": "the least and the largest log-ratio of the rows, not their ratios",
    "exchanged": "the least and the largest ratio of the rows exchanged",
    "magnitude": "exp of the largest |D| of the rows and its inverse as the ends of their ratios",
}


def of_statistics(asked: Choices) -> Iterator[Edit]:
    """Yield the edits of statistics with these choices."""
    yield Edit("statistics of the inverse ratio: D = behaviour − policy", {"log_ratio": "inverted"})
    if asked["padded"]:
        yield from mistakes("mask", MASKS, without=("inverted",))
    acts = {"clipped": asked["signs"], "empty rows": asked["empty"], "of all slots": asked["padded"]}
    for name, kinds in STATISTICS.items():
        absent = [kind for kind, given in acts.items() if not given]
        yield from mistakes(name, kinds, without=absent)
        if name != "sequences":
            for scope, words in SCOPES.items():
                for edit in mistakes(name, kinds, f"{{}} ({words})", without=(*absent, *OF_BOTH)):
                    yield replace(edit, changes={**edit.changes, "scope": scope}, alone=True)
    yield from mistakes("ends", ENDS)
