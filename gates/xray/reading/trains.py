"""Which tokens train: prompt, completion, its first and its closing token, what stands behind it, padding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from gates.xray.reading import drawn, encoded
from gates.xray.reading.context import Context
from gates.xray.reading.objective import kind
from gates.xray.reading.objective import readings as objective
from gates.xray.reading.pairs import common
from gates.xray.reading.reading import Kind, Reading
from gates.xray.reading.words import plural, rows, some
from gates.xray.step import State, StepRow

PROMPT_UNSEEN = "nobody saw where the prompts end: sample with `generate` in this script, or pass labels"
OTHER_ROWS = "record rows of one prompt whose coefficients do not sum to 0: of other lengths, or with other rewards"
STANDARD = "a token counts as trained if its coefficient is beyond its standard error, with one false alarm in a million updates"
PAIRS = 2  # that must begin alike
BEGINNING = 3  # tokens with which both rows of a pair begin, if that is to be a prompt


def readings(context: Context) -> list[Reading]:
    """Return who trains."""
    if not context.step.fit.size:
        return []
    parts = [
        _prompt(context),
        completion(context),
        _first(context),
        _closing(context),
        _behind(context),
        _padding(context),
    ]
    shifted = _shifted(context)
    return [reading for reading in (shifted, *parts) if reading is not None]


def weighty(context: Context) -> list[int]:
    """Return the rows that are known to weigh something."""
    weights = context.weights
    return [index for index, weight in enumerate(weights) if np.isfinite(weight) and weight != 0.0]


def _states(context: Context, places: Iterable[tuple[int, int]]) -> list[State]:
    """Return the states of tokens, each column once."""
    states: dict[int, State] = {}
    for index, position in places:
        column = int(context.step.rows[index].row.columns[position])
        if column >= 0 and column not in states:
            states[column] = state(context, index, position)
    return [state for state in states.values() if state != "no column"]


def state(context: Context, index: int, position: int) -> State:
    """Return whether a token trains; unknown where a bound may have switched it off, or where a KL crosses 0 there."""
    seen, row = context.step.state(index, position), context.step.rows[index]
    column = int(row.row.columns[position])
    if seen != "still" or column in context.masked:
        return seen
    off = column in context.clipped_columns or context.step.update.keys[column] in context.trained_before
    off = off or (
        context.shape.old is not None and len(context.step.users[column]) > 1
    )  # a bound may act in one of them
    with_kl = context.shape.form is not None and row.begin is not None and position >= row.begin
    return "unknown" if off or with_kl else seen


def _counted(states: Sequence[State]) -> dict[str, int]:
    return {state: list(states).count(state) for state in ("trains", "still", "unknown")}


def _prompt(context: Context) -> Reading | None:
    seen = [(i, row) for i, row in enumerate(context.step.rows) if row.begins in {"sampler", "labels"}]
    if not seen:
        return _unseen(context)
    counts = _counted(_states(context, ((i, int(k)) for i, row in seen for k in row.prompt)))
    total = sum(counts.values())
    if not total:
        return Reading(
            "prompt", "read", "rows have no prompt: every token trains from the second on", STANDARD, numbers=counts
        )
    if counts["trains"]:
        sentence = f"prompts train: {counts['trains']} of {plural(total, 'token')}"
        return Reading("prompt", "attention", sentence, STANDARD, numbers=counts)
    if not counts["still"]:
        because = "the rows of each prompt sum to 0, so a trained prompt has coefficient 0 as well"
        return Reading("prompt", "cannot tell", "whether prompts train does not show", because, OTHER_ROWS, counts)
    unknown = f", of {counts['unknown']} more it does not show" if counts["unknown"] else ""
    sentence = f"prompts do not train ({plural(counts['still'], 'token')}{unknown})"
    return Reading("prompt", "read", sentence, STANDARD, numbers=counts)


def _unseen(context: Context) -> Reading:
    """Return where training begins, for rows whose prompts nobody saw."""
    if kind(context) == "supervised" and (reading := encoded.reading(context)) is not None:
        return reading
    if kind(context) == "preference" and (reading := _of_pairs(context)) is not None:
        return reading
    rows = [row for row in context.step.rows if row.begin is not None]
    firsts = [int(np.flatnonzero(row.row.columns >= 0)[0]) for row in rows]
    if rows and all(row.begin == first for row, first in zip(rows, firsts, strict=True)):
        sentence = "rows train from their second token on: they have no prompt, or it trains"
        known: Kind = "read" if kind(context) == "supervised" else "cannot tell"
        return Reading("prompt", known, sentence, STANDARD, "" if known == "read" else PROMPT_UNSEEN)
    starts = sorted({row.begin + 1 for row in rows if row.begin is not None})
    first = f"nothing before token {some(starts)} trains" if starts else "no token trains"
    return Reading("prompt", "cannot tell", f"{first}; where prompts end is not known", STANDARD, PROMPT_UNSEEN)


def _of_pairs(context: Context) -> Reading | None:
    """Return whether the tokens with which both rows of each pair begin train; None where that does not show, of a single pair too."""
    numbers = objective(context)[0].numbers
    if len(numbers["pairs"]) < PAIRS:
        return None
    if numbers["unit"] == "token":
        sentence = "whether prompts train makes no difference: what both rows of a pair begin with cancels"
        return Reading("prompt", "read", sentence, "the rows of a pair have opposite weights, token by token")
    begins = []
    for pair in numbers["pairs"]:
        rows = [context.step.rows[index] for index in pair]
        if len({int(row.row.attended.sum()) for row in rows}) == 2 and common(context, *pair) >= BEGINNING:
            begins += [row.begin == int(np.flatnonzero(row.row.columns >= 0)[0]) for row in rows]
    if len(begins) < 2 * PAIRS or not all(begins):
        return None
    sentence = "prompts train: both rows of a pair begin with the same tokens, and these train from the second on"
    because = "rows that are averaged over their tokens leave a coefficient there, where their lengths differ"
    return Reading("prompt", "attention", sentence, because, numbers={"rows": len(begins)})


def completion(context: Context) -> Reading | None:
    """Return which tokens inside of completions train, without the first and the closing one."""
    step = context.step
    heavy = weighty(context)
    if not heavy:
        return None
    given = drawn.given(context)
    inner = [
        (i, int(k))
        for i in heavy
        for k in step.rows[i].completion
        if k not in {step.rows[i].closing, step.rows[i].begin} and (i, int(k)) not in given
    ]
    counts = _counted(_states(context, inner))
    if not sum(counts.values()):
        return None
    lacking = [(i, k) for i, k in inner if state(context, i, k) == "still"]
    if not lacking:
        bounded = any(step.state(i, k) == "still" for i, k in inner) and context.shape.form is None
        off = ", but for those that a bound switches off" if bounded else ""
        sentence = f"every token of a completion trains{off}"
        return Reading("completion", "read", sentence, STANDARD, numbers=counts)
    known = counts["trains"] + counts["still"]
    sentence = f"{counts['trains']} of {plural(known, 'token')} inside of completions train; {counts['still']} {'does' if counts['still'] == 1 else 'do'} not, in {rows(sorted({i for i, _ in lacking}))}"
    numbers = {**counts, "still_at": [list(pair) for pair in lacking]}
    if all(step.rows[i].begins == "coefficients" for i, _ in lacking):  # they may be of a prompt that trains
        return Reading("completion", "cannot tell", sentence, STANDARD, PROMPT_UNSEEN, numbers)
    return Reading("completion", "attention", sentence, STANDARD, numbers=numbers)


def _first(context: Context) -> Reading | None:
    step = context.step
    seen = [
        (i, row)
        for i, row in enumerate(step.rows)
        if row.begins in {"sampler", "labels"} and i in set(weighty(context))
    ]
    counts = _counted(_states(context, ((i, row.begin) for i, row in seen if row.begin)))
    if counts["still"] and not counts["trains"]:
        sentence = f"the first token of a completion does not train ({counts['still']} of {counts['still']})"
        return Reading("first token", "attention", sentence, STANDARD, numbers=counts)
    if counts["still"]:
        sentence = f"the first token of a completion does not train in {counts['still']} of {counts['still'] + counts['trains']} cases"
        return Reading("first token", "attention", sentence, STANDARD, numbers=counts)
    return None


def _shifted(context: Context) -> Reading | None:
    """Tell a mask that is off by one: the token before a completion trains, and its last token does not."""
    step = context.step
    seen = [
        (i, row)
        for i, row in enumerate(step.rows)
        if row.begins == "sampler" and len(row.prompt) and len(row.completion)
    ]
    heavy = [(i, row) for i, row in seen if i in set(weighty(context))]
    before = _counted(_states(context, ((i, int(row.prompt[-1])) for i, row in seen)))
    earlier = _counted(_states(context, ((i, int(k)) for i, row in seen for k in row.prompt[:-1])))
    last = _counted(_states(context, ((i, int(row.completion[-1])) for i, row in heavy)))
    if before["trains"] and not earlier["trains"] and last["still"] and not last["trains"]:
        sentence = "the mask is one token early: the last token of prompts trains, the last of completions does not"
        return Reading(
            "mask", "attention", sentence, STANDARD, numbers={"before": before["trains"], "last": last["still"]}
        )
    return None


def _closing(context: Context) -> Reading | None:
    """Return whether the token that ends a completion trains."""
    step = context.step
    ended = [i for i, row in enumerate(step.rows) if row.closing is not None and i in set(weighty(context))]
    if not ended:
        return None
    states = {i: state(context, i, step.rows[i].closing or 0) for i in ended}
    trained = [i for i in ended if states[i] == "trains"]
    still = [i for i in ended if states[i] in {"still", "no column"}]
    numbers = {"trains": len(trained), "still": len(still), "hidden": sum(step.rows[i].hidden for i in ended)}
    if not still:
        if not trained:
            return None
        return Reading(
            "closing token",
            "read",
            f"the closing token trains ({plural(len(trained), 'row')})",
            STANDARD,
            numbers=numbers,
        )
    hidden = " (the attention mask hides it)" if all(step.rows[i].hidden for i in still) else ""
    where = "in no row" if not trained else f"in {len(trained)} of {len(trained) + len(still)} rows"
    sentence = (
        f"the closing token trains {where}{hidden}, so the model does not learn to end"
        if not trained
        else f"the closing token trains {where}{hidden}"
    )
    return Reading("closing token", "attention", sentence, STANDARD, numbers={**numbers, "rows": still})


def _behind(context: Context) -> Reading | None:
    ended = [(i, row) for i, row in enumerate(context.step.rows) if row.closing is not None]
    counts = _counted(_states(context, ((i, int(k)) for i, row in ended for k in row.after)))
    if counts["trains"]:
        sentence = f"{plural(counts['trains'], 'token')} behind the closing token {'trains' if counts['trains'] == 1 else 'train'}"
        return Reading("after the end", "attention", sentence, STANDARD, numbers=counts)
    if counts["still"]:
        return Reading("after the end", "read", "nothing behind the closing token trains", STANDARD, numbers=counts)
    return None


def _padding(context: Context) -> Reading | None:
    hidden = any(not row.row.attended.all() for row in context.step.rows)
    seen = {int(column) for row in context.step.rows for column in row.row.columns[row.row.attended]}
    places = (  # a token that a mask leaves out of one row may train in another that begins alike
        (i, k) for i, row in enumerate(context.step.rows) for k in _hidden(row) if int(row.row.columns[k]) not in seen
    )
    trains = sum(state(context, i, k) == "trains" for i, k in places)  # those that share a column train alike
    if trains:
        sentence = f"{plural(trains, 'token')} of padding {'trains' if trains == 1 else 'train'}"
        return Reading("padding", "attention", sentence, STANDARD, numbers={"trains": trains})
    if hidden:
        return Reading("padding", "read", "padding does not train", STANDARD, numbers={"trains": 0})
    return None


def _hidden(row: StepRow) -> list[int]:
    """Return the positions that the attention mask hides, but for a closing token."""
    return [int(k) for k in np.flatnonzero(~row.row.attended) if k != row.closing]
