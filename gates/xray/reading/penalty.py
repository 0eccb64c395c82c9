"""The KL in the loss: to which reference, by which estimator, and with which β."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gates.xray.reading import constant, objective, reordered, row_terms, shapes
from gates.xray.reading.between import trained
from gates.xray.reading.context import Context
from gates.xray.reading.reading import Reading
from gates.xray.reading.shapes import Shape
from gates.xray.reading.words import number, some
from gates.xray.step import EQUAL

EXCHANGED = "exchanged"


def readings(context: Context) -> list[Reading]:
    """Return the KL that the tokens of rows show, or that none shows."""
    with_kl = [shape for shape in context.fitting if shape.form is not None]
    if with_kl:  # beside a ratio to the reference, an exchanged k3 with the opposite sign is a k1
        return [_named(context, [shape for shape in with_kl if shape.beta > 0] or with_kl)]
    if between_rows := constant.readings(context):
        return between_rows
    silent = not context.fitting or bool(context.shape.own)
    if silent or objective.kind(context) != "policy gradient" or not objective.sampled(context):
        return []
    sources = [source for source in shapes.references(context.step) if _apart(context, source) is not None]
    if not sources:
        return []
    equal = max(EQUAL, 2 * context.step.fit.rounding)
    moved = [source for source in sources if (_apart(context, source) or 0.0) > equal]
    if not moved:
        sentence = f"whether there is a KL by k2 or k3 does not show: {sources[0].name} and the policy are equal"
        return [
            Reading(
                "KL",
                "cannot tell",
                sentence,
                "k2 and k3 have no gradient there",
                "record a second update (--updates 2)",
            )
        ]
    return [_none(context, moved[0])]


def beta(context: Context, shape: Shape) -> tuple[float, float]:
    """Return β and its error, if rows and tokens are averaged as the shape says and the loss has no other factor."""
    document = context.step.update.document
    factor = document.clip.factor if document.clip else 1.0
    scale = (context.rows if shape.by_length else float(trained(context).sum())) / factor
    return shape.beta * scale, shape.beta_error * scale


def _apart(context: Context, source: shapes.Source) -> float | None:
    apart = (context.step.update.log_probs - source.values)[context.tokens.column]
    return float(np.abs(apart).max()) if len(apart) and np.isfinite(apart).all() else None


def _named(context: Context, fitting: list[Shape]) -> Reading:
    best = min(fitting, key=lambda shape: shape.misfit)
    forms = list(dict.fromkeys(shape.form or "" for shape in fitting))
    means = {shape.by_length for shape in fitting}
    references = list(dict.fromkeys(shape.reference for shape in fitting if shape.reference))
    value, error = beta(context, best)
    if forms == [shapes.CONSTANT]:
        return constant.of_tokens(context, best, known=len(means) == 1)
    numbers = {
        "beta": value,
        "error": error,
        "forms": forms,
        "references": references,
        "averaged": sorted("within rows" if by_length else "over tokens" for by_length in means),
    }
    because = "least squares over the tokens' coefficients; β holds if the loss has no other common factor"
    average = "" if len(means) > 1 else ", averaged within rows" if best.by_length else ", averaged over tokens"
    average += " of each forward pass" if best.by_call else ""
    text = f"KL to {some(references)} by {' or '.join(forms)}, β = {number(abs(value))}{average}"
    if value < 0:
        sentence = f"the loss pushes away from the reference: {text}, with the opposite sign"
        return Reading("KL", "attention", sentence, because, numbers=numbers)
    if context.reordered is not None:
        return _of_other_rows(context.reordered.order, text, because, numbers)
    if len(forms) > 1:
        remedy = "record an update further from the reference"
        return Reading(
            "KL", "read", text, f"{because}; the estimators differ by less than the precision", remedy, numbers
        )
    kind_of = EXCHANGED in forms[0]
    return Reading("KL", "attention" if kind_of else "read", text, because, numbers=numbers)


def _of_other_rows(order: Sequence[int], text: str, because: str, numbers: Mapping[str, object]) -> Reading:
    """Return that the KL compares rows with the log-probs of other rows."""
    moved = [(row, other) for row, other in enumerate(order) if other not in {row, reordered.UNKNOWN}]
    pairs = some([f"row {row + 1} with row {other + 1}" for row, other in moved])
    sentence = f"the reference's log-probs are those of other rows: the KL compares {pairs}; {text}"
    remedy = "give the reference's log-probs back in the order of the rows"
    return Reading("KL", "attention", sentence, because, remedy, {**numbers, "order": list(order)})


def _none(context: Context, source: shapes.Source) -> Reading:
    """Return that no KL shows, and the largest β that would stay unseen."""
    largest = 0.0
    for shape in shapes.with_penalty(
        context.step, context.tokens, source, context.shape.old, [c.step for c in context.earlier]
    ):
        value, error = beta(context, shape)
        largest = max(largest, abs(value) + context.tokens.quantile * error)
    unseen = row_terms.excluded(context)
    if context.shape.old is not None or unseen is not None:
        sentence = f"no KL to {source.name} by k1, k2 or k3 shows, of tokens or of the sums of rows"
    else:
        sentence = (
            f"no KL of tokens to {source.name} by k2 or k3 shows; one by k1, or of the sums of rows, may be there"
        )
    if not np.isfinite(largest):
        return Reading(
            "KL", "cannot tell", f"whether there is a KL to {source.name} does not show", "", "record longer rows"
        )
    return Reading(
        "KL",
        "read",
        sentence,
        f"a β of k3 above {number(largest, 2)} would show",
        numbers={"beta": 0.0, "error": largest},
    )
