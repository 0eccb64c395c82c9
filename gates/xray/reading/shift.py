"""Where the scores lie from which a token's log-prob is taken: one position before it, as a language model gives them."""

from __future__ import annotations

from gates.xray.reading.context import Context
from gates.xray.reading.reading import Reading
from gates.xray.reading.words import share

WORDS = {
    0: "log-probs of tokens are taken at their own position: the shift is missing",
    2: "log-probs of tokens are taken two positions before them: the shift is made twice",
}


def readings(context: Context) -> list[Reading]:
    """Return that the columns of another position explain the gradient, where those of the position before do not."""
    document = context.step.update.document
    if document.shift == 1:
        return []
    left = next((left for kinds, left in document.tried if kinds == ("log_prob",)), float("nan"))
    because = f"the scores one position before each token leave {share(left)} of the gradient"
    remedy = "take the scores of a token from the position before it: logits[:, :-1] beside ids[:, 1:]"
    return [Reading("shift", "attention", WORDS[document.shift], because, remedy, {"shift": document.shift})]
