"""Coefficients that grow with the token's own log-prob: a weight without a stop of the gradient, or an entropy of what was sampled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product

import numpy as np

from gates.model import Array
from gates.xray.reading import shapes
from gates.xray.reading.reading import Kind, Reading
from gates.xray.reading.shapes import Shape
from gates.xray.reading.tokens import Tokens
from gates.xray.step import Step

SPARE = 6  # trained tokens beyond the unknowns that must agree: each has five digits
APART = 0.5  # nats between a row's log-probs, so that its coefficients would show them
WEIGHT, SQUARE, ENTROPY = "weight", "square", "entropy"
TERMS: Mapping[str, Callable[[Array], Array]] = {  # gradients of terms that depend on a sampled token's log-prob alone
    SQUARE: lambda own: own,
    ENTROPY: lambda own: np.exp(own) * (1.0 + own),
}
FORMS = ("k3", "k2")
REMEDIES = {
    WEIGHT: "detach the weight that the log-probs are multiplied by (stop_gradient), as CISPO and REINFORCE do",
    SQUARE: "",
    ENTROPY: "take the entropy over the whole vocabulary, from the logits",
}
SAID = {
    WEIGHT: "A·ρ·(1 + log p) in place of A·ρ: the weight ρ is multiplied by log p and not detached, so tokens whose log-prob is "
    "below −1 are pushed against their advantage",
    SQUARE: "a number of their row, and log p times one number for all rows, as where each token's reward has an entropy, or the "
    "loss a square of log-probs",
    ENTROPY: "a number of their row, and p·(1 + log p) times one number for all rows: p·log p of the sampled tokens is in the "
    "loss, as an entropy that leaves out all other tokens",
}
BECAUSE = "no ratio and no KL fits, and these numbers of each token's own log-prob do"


def fitting(step: Step, tokens: Tokens, earlier: Sequence[Step]) -> list[Shape]:
    """Return the simplest shapes whose tokens weigh by their own log-prob, without a KL if possible."""
    own = step.update.log_probs[tokens.column]
    if not np.isfinite(own).all() or max(map(np.ptp, _by_row(tokens, own)), default=0.0) < APART:
        return []
    fits = (shape for shape in _candidates(step, tokens, earlier, own) if _agrees(tokens, shape))
    return [first] if (first := next(fits, None)) is not None else []


def reading(shape: Shape, numbers: Mapping[str, object]) -> Reading:
    """Return what coefficients are made of."""
    beside = " and a KL" if shape.form else ""
    sentence = f"the coefficients of a row grow with the token's own log-prob{beside}: {SAID[shape.own]}"
    more = {**numbers, "weights": "own log-prob", "own": shape.own}
    kind: Kind = "read" if shape.own == SQUARE else "attention"
    return Reading("within rows", kind, sentence, BECAUSE, REMEDIES[shape.own], more)


def _by_row(tokens: Tokens, values: Array) -> Iterator[Array]:
    return (
        values[(tokens.row == row) & ~tokens.zero] for row in tokens.rows if (~tokens.zero[tokens.row == row]).any()
    )


def _candidates(step: Step, tokens: Tokens, earlier: Sequence[Step], own: Array) -> Iterator[Shape]:
    apart = [own - source.values[tokens.column] for source in shapes.olds(step, earlier)]
    ratios = [np.ones(len(own)), *(np.exp(each) for each in apart if np.isfinite(each).all())]
    for ratio in ratios:
        yield shapes.named(shapes.weighed(tokens, ratio * (1.0 + own)), own=WEIGHT)
    lengths = shapes.lengths_of(step, tokens)
    for ratio, (name, term), divisor in product(ratios, TERMS.items(), (1.0, lengths)):
        yield shapes.named(shapes.weighed(tokens, ratio, term(own) / divisor), own=name)
    for ratio, reference, form in product(ratios, shapes.references(step), FORMS):
        penalty = shapes.FORMS[form](own - reference.values[tokens.column])
        for by_length in (True, False) if np.isfinite(penalty).all() else ():
            shape = shapes.weighed(tokens, ratio * (1.0 + own), penalty / (lengths if by_length else 1.0))
            yield shapes.named(shape, own=WEIGHT, form=form, reference=reference.name, by_length=by_length)


def _agrees(tokens: Tokens, shape: Shape) -> bool:
    """Return whether a shape fits on more tokens than it has unknowns."""
    trained = ~tokens.zero
    unknowns = len(set(tokens.row[trained].tolist())) + (shape.own != WEIGHT) + (shape.form is not None)
    return bool(shape.misfit <= tokens.quantile and trained.sum() >= unknowns + SPARE)
