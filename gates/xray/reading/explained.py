"""How much of the gradient the log-probs of the tokens explain, and what else was trained."""

from __future__ import annotations

from gates.xray.reading.context import Context
from gates.xray.reading.reading import Reading
from gates.xray.reading.words import number, plural, share, some

PASSES = 4  # columns and gradient carry a backward pass each, and the recorder measured one: so many leave room
FINEST = 1e-6  # share that float32 leaves at least in a probe of five scripts (2e-7 to 9e-7)
MORE = {
    "entropy": "the entropy",
    "kl": "the KL over the vocabulary",
    "router": "the router's loss",
    "padding": "padding",
}


def readings(context: Context) -> list[Reading]:
    """Return what the columns explain, and which columns have no number."""
    return [_explained(context), *_inseparable(context)]


def room(context: Context) -> float:
    """Return the share that may be left of a gradient that the columns explain."""
    return PASSES * max(context.step.fit.rounding, FINEST)


def _explained(context: Context) -> Reading:
    fit, document = context.step.fit, context.step.update.document
    because = f"one backward pass of this script rounds {share(fit.rounding)} of the gradient away, so {share(room(context))} may be left"
    kinds = sorted({kind for kind in context.step.update.kinds if kind in MORE})
    numbers = {
        "unexplained": fit.unexplained,
        "rounding": fit.rounding,
        "condition": fit.condition,
        "columns": len(fit.coefficients),
    }
    if not fit.size:
        return Reading("explained", "attention", "the gradient is 0: this update trains nothing", numbers=numbers)
    with_more = f" and {some([MORE[kind] for kind in kinds])}" if kinds else ""
    if fit.unexplained <= room(context):
        alone = "" if kinds else ": nothing else trained"
        sentence = f"the log-probs of {plural(len(context.step.update.log_probs) - sum(k not in ('log_prob', 'padding') for k in context.step.update.kinds), 'token')}{with_more} explain the gradient{alone} ({share(fit.unexplained)} left)"
        return Reading("explained", "attention" if document.dropout else "read", sentence, because, numbers=numbers)
    causes = ["another loss (value head, full KL, distillation)"]
    if document.dropout:
        causes.insert(0, f"dropout of {number(document.dropout)}, which the columns are computed without")
    if document.restricted:
        causes.append("parameters that were left out")
    causes.append("rows that were scored in another way than the script trains on")
    sentence = f"{share(fit.unexplained)} of the gradient is not explained by the log-probs of tokens{with_more}"
    return Reading(
        "explained",
        "attention",
        sentence,
        because,
        f"it may be {'; '.join(causes)}",
        {**numbers, "outside": list(document.outside)},
    )


def _inseparable(context: Context) -> list[Reading]:
    fit, parts = context.step.fit, []
    if fit.inseparable:
        count = sum(map(len, fit.inseparable))
        names = some([_where(context, column) for group in fit.inseparable for column in group])
        parts.append(
            Reading(
                "inseparable",
                "cannot tell",
                f"{plural(count, 'column')} cannot be told apart and {'has' if count == 1 else 'have'} no number: {names}",
                f"a combination of them has a gradient below {share(fit.rounding)} of their length, the rounding of a backward pass",
                "fit more parameters, or record rows whose tokens follow other tokens",
                {"groups": [list(group) for group in fit.inseparable]},
            )
        )
    if fit.flat:
        names = some([_where(context, column) for column in fit.flat])
        parts.append(
            Reading(
                "flat",
                "cannot tell",
                f"{plural(len(fit.flat), 'token')} {'has' if len(fit.flat) == 1 else 'have'} no number, since the model is certain of {'it' if len(fit.flat) == 1 else 'them'}: {names}",
                "their gradient is so small beside the largest that float32 knows it to 10% at best",
                "sample at a higher temperature",
                {"columns": list(fit.flat)},
            )
        )
    return parts


def _where(context: Context, column: int) -> str:
    for index in context.step.users[column][:1]:
        row = context.step.rows[index].row
        position = int((row.columns == column).argmax())
        return f"row {index + 1} token {position + 1}"
    return f"the column of {MORE.get(context.step.update.kinds[column], 'a token')}"
