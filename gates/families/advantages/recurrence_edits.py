"""The edits of generalised advantage estimation: conventions of libraries, and mistakes."""

from __future__ import annotations

from collections.abc import Iterator

from gates.families.edits import mistakes, numbers
from gates.families.program import Choices, Edit

GAMMAS, LAMBDAS = (1.0, 0.99, 0.95, 0.9), (1.0, 0.97, 0.95, 0.9, 0.0)  # usual values
SLOTS = {  # in the place of slots that the recurrence skips
    "stepped through": "slots without a token stepped through, as if they were tokens",
    "decays": "slots without a token skipped, but each decays the trace by γλ once more",
    "decays by γ": "slots without a token skipped, but each decays the trace by γ once more",
    "decays by λ": "slots without a token skipped, but each decays the trace by λ once more",
    "resets": "slots without a token reset the trace to 0: the tokens before a gap do not see those after",
    "zeros": "slots without a token stepped through, with rewards and values of 0",
    "value 0": "the value of a slot without a token taken for 0 where it follows a token",
    "value of slot": "the value that a slot without a token holds taken for the one that follows a token",
    "resets both": "slots without a token reset the trace and the value that follows to 0",
}
TRACES = {
    "λ": "the trace decays by λ, not by γλ",
    "γ": "the trace decays by γ, not by γλ",
    "1": "the trace does not decay",
    "γ²λ": "the trace decays by γ²λ, not by γλ: γ twice",
    "γλ²": "the trace decays by γλ², not by γλ: λ twice",
    "γ(1 − λ)": "the trace decays by γ(1 − λ), not by γλ",
}
NEXT = {
    "V": "the value that follows is not discounted by γ",
    "0": "the value that follows left out: δ = r − V",
    "−γ V": "the value that follows subtracted: δ = r − γV⁺ − V",
    "λ V": "the value that follows discounted by λ, not by γ",
    "γλ V": "the value that follows discounted by γλ, not by γ",
    "γ² V": "the value that follows discounted by γ twice",
}
AFTERWARDS = {
    "whitened by row": "advantages whitened over each row's tokens afterwards",
    "whitened over slots": "advantages whitened over every slot, padding too, afterwards",
    "divided": "advantages divided by their deviation over the batch's tokens, not centred",
}


def edits_of_gae(asked: Choices) -> Iterator[Edit]:
    """Yield the edits of a recurrence with these choices, conventions first."""
    gamma, lam = asked["gamma"], asked["lam"]
    yield Edit("advantages whitened over the batch's tokens afterwards", {"after": "whitened"}, convention=True)
    yield from numbers("γ =", "gamma", GAMMAS, asked, convention=True)
    yield from numbers("λ =", "lam", LAMBDAS, asked, convention=True)
    if gamma != lam:
        yield Edit("γ and λ exchanged", {"gamma": lam, "lam": gamma})
    yield from mistakes("trace", TRACES)
    yield from mistakes("next", NEXT)
    yield Edit("λ in the place of γ and γλ: λ for both constants", {"gamma": lam})
    yield Edit("γ in the place of λ: γ for both constants", {"lam": gamma})
    yield Edit("γ squared in the place of γ", {"gamma": gamma * gamma})
    yield Edit("1 − γ in the place of γ", {"gamma": 1.0 - gamma})
    yield Edit("the value added, not subtracted: δ = r + γV⁺ + V", {"own": "added"})
    yield Edit("the value not subtracted: δ = r + γV⁺", {"own": "left out"})
    yield Edit("values of the token before: shifted by one token", {"values": "before"})
    yield Edit("values of the next token: shifted by one token", {"values": "next"})
    yield Edit("rewards of the next token: shifted by one token", {"rewards": "next"})
    yield Edit("rewards of the token before: shifted by one token", {"rewards": "before"})
    yield Edit("rewards and values exchanged", {"rewards": "values", "values": "rewards"})
    yield Edit("no reward: δ = γV⁺ − V", {"rewards": "left out"})
    yield Edit(
        "from the first token to the last: the trace of the tokens before, not of those after",
        {"recurrence": "forward"},
    )
    yield Edit(
        "discounts by the number of tokens since the row's start, not since the token", {"recurrence": "from the start"}
    )
    yield Edit("the advantages less their mean over the batch's tokens", {"after": "centred"})
    yield Edit(
        "advantages whitened over the batch's tokens, by a deviation of n, not n − 1", {"after": "whitened by n"}
    )
    yield Edit("returns: the advantages plus the values", {"value": "returns"}, convention=True)
    yield from mistakes("after", AFTERWARDS)
    yield from mistakes("padding", SLOTS)
    yield Edit("advantages with the wrong sign", {"sign": -1.0})
    if asked["bootstrap"] == "given":
        yield Edit("the value after a row's last token taken for 0", {"bootstrap": "none"}, convention=True)
        yield Edit("the value after a row's last token that of the next row", {"bootstrap": "next row"})
    yield Edit("the value after a row's last token taken for the last token's own", {"bootstrap": "last value"})
    if asked["terminal"] == "given":
        yield Edit("the ends of episodes ignored", {"terminal": "none"}, convention=True)
        yield Edit("the flags of ends inverted", {"terminal": "inverted"})
        yield Edit("the flags of ends shifted by one token: an episode ends one token early", {"terminal": "early"})
        yield Edit("the flags of ends shifted by one token: an episode ends one token late", {"terminal": "late"})
        yield Edit("the end of an episode taken at each row's last token alone", {"terminal": "last token"})
        yield Edit("the end of an episode cuts its own reward too", {"terminal": "reward too"})
        yield Edit("the advantage 0 where an episode ends", {"terminal": "zero"})
        yield Edit("the end of an episode cuts the value that follows, not the trace", {"terminal": "value only"})
        yield Edit("the end of an episode cuts the trace, not the value that follows", {"terminal": "trace only"})


def presets_of_gae(asked: Choices) -> Iterator[Edit]:  # noqa: ARG001  the same for all choices
    """Yield the plain recurrence, and verl's (docs/definitions.md, "Presets")."""
    yield Edit("gae, A = δ + γλA⁺", {"after": "nothing"}, convention=True)
    words = "gae whitened over the batch's tokens afterwards (verl adv_estimator=gae)"
    yield Edit(words, {"after": "whitened"}, convention=True)
