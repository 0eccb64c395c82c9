"""A further update of the same rollout: does the ratio of policy and old policy act, token by token or row by row, and where is it clipped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gates.model import Array
from gates.xray.reading import fresh, objective, odd_ratios, row_terms, shapes, within
from gates.xray.reading.context import Context
from gates.xray.reading.reading import Kind, Reading
from gates.xray.reading.words import number, plural, rows, share
from gates.xray.step import Step

LEAST = 3  # rows that must have moved the way they were pushed
LARGER = "record an update after a larger step, or more updates of one rollout (--updates)"


def readings(context: Context) -> list[Reading]:
    """Return what the ratio does."""
    if objective.kind(context) != "policy gradient" or context.shape.own:
        return []
    if context.mistaken:
        return _mistaken(context)
    before, partner = _before(context)
    return _stale(context) if before is None else _repeated(context, before, partner)


def _repeated(context: Context, before: Context, partner: Mapping[int, int]) -> list[Reading]:
    """Return the ratio of rows that an earlier update had."""
    sources = [source for source in shapes.olds(context.step, [before.step]) if _complete(context, source)]
    different = [source for source in sources if shapes.differs(context.step, context.tokens, source)]
    if not different:
        sentence = "whether a ratio acts does not show: the policy has moved by less than the precision"
        because = "ratios to the weights before are 1 within the errors"
        return [Reading("second update", "cannot tell", sentence, because, LARGER)]
    columns = context.tokens.column
    ratios = {source.name: np.exp((context.step.update.log_probs - source.values)[columns]) for source in different}
    clipped = _clipped(context, before, partner, ratios)
    level = _level(context, before, partner, different[0], ratios, clipped)
    unsure = level.kind == "cannot tell" or not context.fitting
    silent = unsure and not objective.sampled(context)  # it may be no policy gradient
    return clipped if silent else [level, *clipped]


def _level(
    context: Context,
    before: Context,
    partner: Mapping[int, int],
    source: shapes.Source,
    ratios: Mapping[str, Array],
    clipped: Sequence[Reading],
) -> Reading:
    """Return whether the ratio acts by token, by row or not at all."""
    acting = [shape for shape in context.fitting if shape.old is not None and shape.old in ratios]
    plain = [shape for shape in context.fitting if shape.old is None]
    if acting and not plain:
        return _by_token(acting[0].old or "", ratios, clipped)
    switched = _switched_off(context, before, partner, source) if plain else None
    if switched is not None:
        return switched
    if plain and not acting:
        return _by_row(context, before, partner, source, ratios[source.name])
    if acting:
        sentence = "whether the ratio acts does not show: weights with and without it agree with the coefficients"
        return Reading("second update", "cannot tell", sentence, "", LARGER)
    if context.only_copies:
        return Reading("second update", "cannot tell", f"whether a ratio acts does not show: {within.COPIES}", "")
    return Reading("second update", "attention", "neither a ratio of tokens nor one of rows fits", within.PRECISE)


def _complete(context: Context, source: shapes.Source) -> bool:
    return bool(np.isfinite(source.values[context.tokens.column]).all())


def _identity(step: Step, row: int) -> str:
    """Return the key of the last token of a row: it covers all tokens."""
    columns = step.rows[row].row.columns[step.rows[row].completion]
    return step.update.keys[int(columns[-1])] if len(columns) else ""


def _before(context: Context) -> tuple[Context | None, Mapping[int, int]]:
    """Return the first update with these rows, and the index of each of our rows there."""
    for before in context.earlier:
        known = {_identity(before.step, row): row for row in before.tokens.rows}
        partner = {
            row: known[_identity(context.step, row)]
            for row in context.tokens.rows
            if _identity(context.step, row) in known
        }
        if partner:
            return before, partner
    return None, {}


def _span(ratio: Array) -> str:
    return f"{number(float(ratio.min()))} to {number(float(ratio.max()))}"


def _by_token(old: str, ratios: Mapping[str, Array], clipped: Sequence[Reading]) -> Reading:
    ratio = ratios[old]
    inside = "" if clipped else ", none of them clipped"
    sentence = f"tokens weigh by their ratio to {old}: {_span(ratio)}{inside}"
    numbers = {"level": "token", "old": old, "least": float(ratio.min()), "largest": float(ratio.max())}
    return Reading("second update", "read", sentence, "equal weights do not fit, these ratios do", numbers=numbers)


def _logs(context: Context, row: int, source: shapes.Source) -> Array:
    """Return policy − old over the whole completion of a row, tokens that rows share included."""
    columns = context.step.rows[row].row.columns[context.step.rows[row].completion]
    values = (context.step.update.log_probs - source.values)[columns]
    return np.asarray(values[np.isfinite(values)])


def _by_row(
    context: Context, before: Context, partner: Mapping[int, int], source: shapes.Source, ratio: Array
) -> Reading:
    """Compare the rows' weights with those of the update before: unchanged, or times a ratio of the row."""
    old = source.name
    trained = [row for row in partner if abs(before.weights[partner[row]]) > 0]  # not NaN
    kept = [row for row in trained if abs(context.weights[row]) > 0]
    off = [row for row in trained if context.weights[row] == 0]
    numbers = {"old": old, "least": float(ratio.min()), "largest": float(ratio.max())}
    whole = len(partner) == len(context.tokens.rows) == len(before.tokens.rows)  # so that sums are divided alike
    if len(kept) < 2 - (whole and bool(kept)):
        sentence = "the tokens of a row weigh the same, and fewer than two rows have a weight in both updates"
        return Reading("second update", "cannot tell", sentence, "", LARGER, numbers)
    quotient = np.log([abs(context.shape.weights[row] / before.shape.weights[partner[row]]) for row in kept])
    error = np.array([np.hypot(_relative(context, row), _relative(before, partner[row])) for row in kept])
    logs = [_logs(context, row, source) for row in kept]
    wanted = {
        "none": np.zeros(len(kept)),
        "row mean": np.array([values.mean() for values in logs]),
        "row product": np.array([values.sum() for values in logs]),
    }
    room = 2 * context.tokens.quantile * error
    factor = np.log(_factor(context) / _factor(before)) if len(kept) < 2 else None
    fitting = [
        name
        for name, values in wanted.items()
        if _constant(quotient - values, error, room, factor) and _bounded(context, before, partner, off, source, name)
    ]
    names = {
        "none": f"no ratio acts: rows weigh as in update {before.step.update.number}, although the ratios are {_span(ratio)}",
        "row mean": f"rows weigh by the mean of their ratios to {old}, as a sequence (GSPO)",
        "row product": f"rows weigh by the product of their ratios to {old}",
    }
    for name in ("row mean", "row product"):
        names[name] += f": {_span(np.exp(wanted[name]))}{'' if off else ', none of them clipped'}"
    if len(fitting) != 1:
        sentence = "the tokens of a row weigh the same; which ratio of the row acts does not show"
        return Reading(
            "second update",
            "cannot tell",
            sentence,
            "the quotients of both updates' weights",
            LARGER,
            {**numbers, "fitting": fitting},
        )
    because = f"the quotients of the rows' weights in updates {context.step.update.number} and {before.step.update.number}, to {share(float(room.max()))}"
    return Reading(
        "second update",
        "attention" if fitting == ["none"] else "read",
        names[fitting[0]],
        because,
        numbers={**numbers, "level": fitting[0]},
    )


def _switched_off(
    context: Context, before: Context, partner: Mapping[int, int], source: shapes.Source
) -> Reading | None:
    """Return that a bound has cut the ratios of whole rows, where no row that trained is left and a bound of tokens would cut other tokens."""
    weighed = [row for row in partner if abs(before.weights[partner[row]]) > 0]
    if len(weighed) < LEAST or any(context.weights[row] != 0 for row in weighed):
        return None
    logs = [_logs(context, row, source) * -np.sign(before.weights[partner[row]]) for row in weighed]
    against = sum(int((values < 0).sum()) for values in logs)
    if not against or any(values.sum() <= 0 for values in logs):
        return None
    sentence = f"a bound cuts the ratio of rows to {source.name}, not of tokens: it switches off {rows(weighed)} whole"
    because = f"each row has moved the way it was pushed, {plural(against, 'token')} of them have not"
    numbers = {"level": "row", "old": source.name, "rows": weighed, "against": against}
    return Reading("second update", "read", sentence, because, numbers=numbers)


def _relative(context: Context, row: int) -> float:
    return max(context.shape.errors[row] / abs(context.shape.weights[row]), context.step.fit.rounding)


def _factor(context: Context) -> float:
    clip = context.step.update.document.clip
    return clip.factor if clip else 1.0


def _bounded(
    context: Context, before: Context, partner: Mapping[int, int], off: Sequence[int], source: shapes.Source, level: str
) -> bool:
    """Return whether a bound of a row's ratio may have switched rows off: it has moved the way that they were pushed."""
    moved = [_logs(context, row, source).sum() * -before.weights[partner[row]] > 0 for row in off]
    return all(moved) and not (off and level == "none")


def _constant(values: Array, errors: Array, room: Array, centre: float | None) -> bool:
    """Return whether numbers are one number within their errors: a clip of the norm multiplies all by one."""
    centre = float(np.average(values, weights=1.0 / errors**2)) if centre is None else centre
    return bool((np.abs(values - centre) <= room).all())


def _clipped(
    context: Context, before: Context, partner: Mapping[int, int], ratios: Mapping[str, Array]
) -> list[Reading]:
    """Return the tokens that trained before and whose ratio is switched off now, and where the bounds lie."""
    tokens = context.tokens
    earlier = {
        key: not zero
        for key, zero in zip(
            (before.step.update.keys[int(c)] for c in before.tokens.column), before.tokens.zero, strict=True
        )
    }
    trained = np.array([earlier.get(context.step.update.keys[int(c)], False) for c in tokens.column], dtype=bool)
    off = context.off & trained & np.isin(tokens.row, list(partner))
    old = context.shape.old if context.shape.old in ratios else next(iter(ratios))
    because = "they trained in the update before, and their coefficient is 0 now, or the KL's alone"
    return _clip(context, off, trained & ~off, ratios[old or ""], because)


def _mistaken(context: Context) -> list[Reading]:
    """Return that the old log-probs are not the old policy's, and whose they are."""
    ratio, *clipped = _stale(context)
    names = list(dict.fromkeys(shape.old or "" for shape in context.fitting))
    again = bool(context.trained_before & set(context.step.update.keys))
    if (odd := odd_ratios.reading(context.shape, names, ratio, again=again)) is not None:
        return [odd, *clipped]
    sentence = f"old log-probs are not those of these tokens under the old policy: tokens weigh by their ratio to {' or '.join(names)}: {_span(context.shape.surrogate)}"
    return [Reading("ratio", "attention", sentence, ratio.because, numbers=ratio.numbers), *clipped]


def _stale(context: Context) -> list[Reading]:
    """Return the ratio of rows that no earlier update had: they were scored before one."""
    old, ratio = context.shape.old, context.shape.ratio
    if old is None:
        return _stale_rows(context)
    numbers = {"level": "token", "old": old, "least": float(ratio.min()), "largest": float(ratio.max())}
    sentence, kind = f"tokens weigh by their ratio to {old}: {_span(ratio)}", _kind(context)
    if kind == "attention":
        sentence += ": another pass over these same weights, in which every ratio ought to be 1"
    because = "their coefficient is 0, or the KL's alone, on the side of 1 that a bound cuts"
    on = ~context.tokens.zero & ~context.clipped & (context.weights[context.tokens.row] != 0)
    clipped = _clip(context, context.clipped, on, ratio, because)
    ratios = Reading("ratio", kind, sentence, "equal weights do not fit, these ratios do", numbers=numbers)
    return [fresh.older(context, ratios), *clipped]


def _kind(context: Context) -> Kind:
    """Return whether the old log-probs are another pass's over the weights of this update: then ratios ought to be 1."""
    return "attention" if context.shape.old == f"the weights before update {context.step.update.number}" else "read"


def _stale_rows(context: Context) -> list[Reading]:
    """Return the ratio by which whole rows weigh, where the sums over each prompt show it."""
    weighed = row_terms.ratio(context)
    if weighed is None:
        return []
    level, old, ratios = weighed
    how = {"row mean": "the mean of their ratios", "row product": "the product of their ratios"}[level]
    numbers = {"level": level, "old": old, "least": float(ratios.min()), "largest": float(ratios.max())}
    because = "divided by it, the coefficients of each prompt's rows sum to 0, and as they are they do not"
    return [Reading("ratio", "read", f"rows weigh by {how} to {old}: {_span(ratios)}", because, numbers=numbers)]


def _clip(context: Context, off: Array, on: Array, ratio: Array, because: str) -> list[Reading]:
    """Return the ratios at which tokens are switched off, and those up to which they are not."""
    tokens = context.tokens
    if not off.any():
        return []
    whole = [row for row in tokens.rows if (off & (tokens.row == row)).any() and not (on & (tokens.row == row)).any()]
    parts = [plural(int(off.sum()), "token") + " clipped"]
    numbers: dict[str, object] = {"tokens": int(off.sum()), "rows": whole}
    weights = context.weights[tokens.row]
    if wrong := int((off & (((weights < 0) & (ratio < 1)) | ((weights > 0) & (ratio > 1)))).sum()):
        sentence = f"{plural(wrong, 'token')} switched off where the ratio moved against the advantage: no bound of a clip cuts there"
        return [Reading("clip of the ratio", "attention", sentence, because, numbers={**numbers, "wrong": wrong})]
    up = weights < 0  # rows that are pushed up meet the upper bound, the others the lower one
    for name, off_side, on_side in (
        ("above", off & (ratio > 1), on & up & (ratio > 1)),
        ("below", off & (ratio < 1), on & ~up & (ratio < 1)),
    ):
        sign = 1.0 if name == "above" else -1.0
        inside = float(sign * (sign * ratio[on_side]).max()) if on_side.any() else 1.0
        numbers[f"unclipped_{name}"] = inside
        if off_side.any():
            edge = float(sign * (sign * ratio[off_side]).min())
            numbers[f"clipped_{name}"] = edge
            bound = (
                f"between {number(inside)} and {number(edge)}"
                if sign * inside <= sign * edge
                else f"at {number(edge, 4)}"
            )
            parts.append(f"{name} a bound {bound}")
    if whole:
        parts[-1] += f" ({rows(whole)} wholly)"
    sentence = " ".join([parts[0], " and ".join(parts[1:])]).strip()
    return [Reading("clip of the ratio", "read", sentence, because, numbers=numbers)]
