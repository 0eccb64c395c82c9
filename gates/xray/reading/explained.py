"""How much of the gradient the log-probs of the tokens explain, and what else was trained."""

from __future__ import annotations

import numpy as np

from gates.xray.documents import PER_TOKEN
from gates.xray.ranks import folded
from gates.xray.reading.context import Context
from gates.xray.reading.reading import Kind, Reading
from gates.xray.reading.words import number, plural, share, some

PASSES = 10  # the recorder measured one backward pass; columns and gradient carry one each, and the script may add in half precision
FINEST = 1e-6  # share that float32 leaves at least in a probe of five scripts (2e-7 to 9e-7)
MUCH = (
    1e-2  # share of the gradient: an entropy bonus or a router's loss without columns is smaller, and is fitted apart
)
MOVED = 1e-2  # nats of a token between two equal passes: rounding gives less, in half precision too
MOST = 2_000  # columns of a second fit
MORE = {
    "entropy": "the entropy",
    "kl": "the KL over the vocabulary",
    "router": "the router's loss",
    "padding": "padding",
}
SIGNS = {  # what the columns are of, and the sign of a coefficient that is meant: a positive one pushes it down
    "entropy": ("the entropy", -1),
    "kl": ("the KL over the vocabulary", 1),
    "router": ("the router's loss", 1),
}


def readings(context: Context) -> list[Reading]:
    """Return what the columns explain, and which columns have no number."""
    return [_explained(context), *_more(context), *_inseparable(context)]


def room(context: Context) -> float:
    """Return the share that may be left of a gradient that the columns explain."""
    return PASSES * max(context.step.fit.rounding, FINEST)


def much_is_left(context: Context) -> bool:
    """Return whether so much is unexplained that the coefficients say nothing of rows and tokens."""
    return context.step.fit.unexplained > max(MUCH, room(context))


def _explained(context: Context) -> Reading:
    fit, document = context.step.fit, context.step.update.document
    because = f"one backward pass of this script rounds {share(fit.rounding)} of the gradient away, so {share(room(context))} may be left"
    kinds = context.step.update.kinds
    numbers = {
        "unexplained": fit.unexplained,
        "rounding": fit.rounding,
        "condition": fit.condition,
        "columns": len(kinds),
        "outside": list(document.outside),
    }
    if not fit.size:
        off = context.trained_before & set(context.step.update.keys)
        why = "a bound switched off what trained before" if off else "this update trains nothing"
        return Reading("explained", "attention", f"the gradient is 0: {why}", numbers=numbers)
    more = [words for kind, words in MORE.items() if kind in kinds]
    tokens = plural(sum(kind in PER_TOKEN for kind in kinds), "token")
    what = f"the log-probs of {tokens}{f' and {some(more)}' if more else ''}"
    if fit.unexplained <= room(context):
        alone = "" if more else ": nothing else trained"
        sentence = f"{what} explain the gradient{alone} ({share(fit.unexplained)} left)"
        return Reading("explained", "read", sentence, because, numbers=numbers)
    sentence = f"{share(fit.unexplained)} of the gradient is not explained by {what}"
    if (kept := _not_reset(context)) is not None:
        sentence += (
            f": it is {kept} times the gradient of update {context.earlier[-1].step.update.number}, which was not reset"
        )
        return Reading("explained", "attention", sentence, because, "call zero_grad before each backward pass", numbers)
    if document.chance is not None and document.chance > MOVED:
        such = f"dropout of {number(document.dropout)}" if document.dropout else "dropout"
        sentence += f"; the pass that trains has chance in it, such as {such}: two of them over these rows, at the same weights, differ by up to {number(document.chance)} nats"
    if much_is_left(context):
        sentence += ", so nothing is said of who trains, of weights and of a KL"
    return Reading("explained", "attention", sentence, because, f"it may be {'; '.join(_causes(context))}", numbers)


def _not_reset(context: Context) -> str | None:
    """Return how much of the last update's gradient is in this one, where that explains what is left; else None."""
    here = context.step.update
    before = context.earlier[-1].step.update if context.earlier else None
    if before is None or before.document.seed != here.document.seed or len(here.kinds) > MOST:
        return None
    bins = min(len(here.gradient), len(before.gradient))
    sketch, gradient, kept = (
        folded(values, bins) for values in (here.sketch, here.gradient[None], before.gradient[None])
    )
    columns = np.concatenate([sketch, kept])
    norms = np.maximum(np.linalg.norm(columns, axis=1), np.finfo(float).tiny)
    solved = np.linalg.lstsq((columns / norms[:, None]).T, gradient[0], rcond=None)[0]
    left = gradient[0] - solved @ (columns / norms[:, None])
    if np.linalg.norm(left) > room(context) * max(float(np.linalg.norm(gradient)), np.finfo(float).tiny):
        return None
    return number(float(solved[-1] / norms[-1]))


def _causes(context: Context) -> list[str]:
    document = context.step.update.document
    causes = ["another loss (value head, full KL, distillation)"]
    if document.dropout:
        causes.insert(0, f"dropout of {number(document.dropout)}, which the columns are computed without")
    if document.restricted:
        causes.append("parameters that were left out")
    return [*causes, "rows that were scored in another way than the script trains on"]


def _more(context: Context) -> list[Reading]:
    """Return the coefficients of what is no token's log-prob: of an entropy bonus, a KL over the vocabulary, a router's loss."""
    fit, document = context.step.fit, context.step.update.document
    kinds = np.array(context.step.update.kinds)
    factor = document.clip.factor if document.clip else 1.0
    parts = []
    for kind, (words, wanted) in SIGNS.items():
        columns = np.flatnonzero(kinds == kind)
        if not len(columns):
            continue
        total = float(fit.least[columns].sum()) / factor
        sentence = (
            f"{words} is pushed {'down' if total > 0 else 'up'}, with a coefficient of {number(abs(total))} in all"
        )
        kind_of: Kind = "read" if total * wanted > 0 else "attention"
        because = "the sum over tokens, which is the loss's own coefficient where tokens are averaged"
        parts.append(Reading(words, kind_of, sentence, because, numbers={"sum": total, "columns": len(columns)}))
    if document.restricted:
        sentence = (
            f"only parameters named {some(document.restricted)} were fitted: the rest of the gradient is not read"
        )
        parts.append(Reading("parameters", "read", sentence, numbers={"patterns": list(document.restricted)}))
    if document.outside:
        sentence = f"{some(document.outside)} {'trains' if len(document.outside) == 1 else 'train'} as well, and no log-prob reaches {'it' if len(document.outside) == 1 else 'them'}"
        parts.append(Reading("outside", "read", sentence, numbers={"names": list(document.outside)}))
    return parts


def _inseparable(context: Context) -> list[Reading]:
    fit, parts = context.step.fit, []
    kinds = context.step.update.kinds
    groups = [group for group in fit.inseparable if any(kinds[column] in PER_TOKEN for column in group)]
    if groups:
        count = sum(map(len, groups))
        names = some([_where(context, column) for group in groups for column in group])
        parts.append(
            Reading(
                "inseparable",
                "cannot tell",
                f"{plural(count, 'column')} cannot be told apart and {'has' if count == 1 else 'have'} no number: {names}",
                f"a combination of them has a gradient below {share(fit.rounding)} of their length, the rounding of a backward pass",
                "fit more parameters, or record rows whose tokens follow other tokens",
                {"groups": [list(group) for group in groups]},
            )
        )
    flat = [column for column in fit.flat if kinds[column] in PER_TOKEN]
    if flat:
        names = some([_where(context, column) for column in flat])
        parts.append(
            Reading(
                "flat",
                "cannot tell",
                f"{plural(len(flat), 'token')} {'has' if len(flat) == 1 else 'have'} no number, since the model is certain of {'it' if len(flat) == 1 else 'them'}: {names}",
                "their gradient is so small beside the largest that float32 knows it to 10% at best",
                "sample at a higher temperature",
                {"columns": flat},
            )
        )
    return parts


def _where(context: Context, column: int) -> str:
    for index in context.step.users[column][:1]:
        row = context.step.rows[index].row
        position = int((row.columns == column).argmax())
        return f"row {index + 1} token {position + 1}"
    return f"the column of {MORE.get(context.step.update.kinds[column], 'a token')}"
