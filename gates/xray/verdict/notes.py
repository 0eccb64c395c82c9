"""What a script has noted for an update: its facts, and which of its rows each row of the update is."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gates.model import Array
from gates.xray.documents import Event
from gates.xray.reading.context import Context
from gates.xray.reading.words import plural
from gates.xray.step import Step, StepRow

NUMBERS = ("rewards", "advantages")
BY_ROW = (*NUMBERS, "groups", "ids")
IDS = "note `ids`, the tokens of each completion"


@dataclass(frozen=True, slots=True)
class Note:
    """The facts of a note.

    Attributes:
        rewards, advantages: a number for each noted row; None where they are not noted.
        groups: the prompt of each noted row.
        settings: in the words of `gates judge`.
        kept: rows of the update, each once where a script has scored its rows several times.
        rows: for each of these, the noted row.
        begins: for each of these, where its completion begins; None where nobody knows.
        count: noted rows.
        ambiguous: whether rows of equal tokens have different numbers, and nothing says which is whose.
    """

    rewards: Array | None
    advantages: Array | None
    groups: Sequence[Hashable] | None
    settings: Mapping[str, Any]
    kept: Sequence[int]
    rows: Array
    begins: Sequence[int | None]
    count: int
    ambiguous: bool = False


class UnmatchedError(Exception):
    """The rows of a note are not those of the update.

    Attributes:
        remedy: what to note.
    """

    def __init__(self, sentence: str, remedy: str) -> None:
        super().__init__(sentence)
        self.remedy = remedy


def noted(context: Context) -> Note | None:
    """Return the note on the rows of an update, or None if the script has noted nothing before it.

    Notes between two updates are one note. A note with `ids` serves every later update of its rows; without, it is of the
    rows of the update that follows it, in their order.

    Raises:
        UnmatchedError: a note cannot be assigned.
    """
    number = context.step.update.number
    events = [event for event in context.recording.of("note") if _time(event) < number]
    if not events:
        return None
    settings: dict[str, Any] = {}
    for event in events:
        settings |= dict(event.get("settings") or {})
    times = sorted({_time(event) for event in events if any(event.get(name) is not None for name in BY_ROW)})
    if not times:
        return Note(None, None, None, settings, (), np.array([], dtype=np.int64), (), 0)
    problem: UnmatchedError | None = None
    for time in reversed(times):
        try:
            return _matched(context, [event for event in events if _time(event) == time], time, settings)
        except UnmatchedError as error:
            problem = problem or error
    assert problem is not None
    raise problem


def _time(event: Event) -> int:
    return int(event.get("update", 0) or 0)


def _matched(context: Context, events: Sequence[Event], time: int, settings: Mapping[str, Any]) -> Note:
    facts = {name: _joined(events, name) for name in BY_ROW}
    counts = {name: len(values) for name, values in facts.items() if values is not None}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{count} {name}" for name, count in counts.items())
        raise UnmatchedError(f"the notes before update {time + 1} have {listed}", "note as many of each")
    count = next(iter(counts.values()))
    ids = facts["ids"]
    if ids is not None:
        kept, rows, begins = _by_ids(context.step, ids, facts["groups"])
    else:
        kept, rows = _by_order(context, time, count)
        begins = [context.step.rows[k].begin for k in kept]
    groups = facts["groups"]
    numbers = {name: _numbers(facts[name]) for name in NUMBERS}
    prompts = [context.step.prompts[k] for k in kept]
    labels = (
        _without_groups(settings, rows, prompts, count)
        if groups is None
        else _labels(groups, rows, prompts, ordered=ids is None)
    )
    return Note(
        numbers["rewards"],
        numbers["advantages"],
        labels,
        settings,
        kept,
        rows,
        begins,
        count,
        ids is not None and _ambiguous(ids, groups, numbers),
    )


def _joined(events: Sequence[Event], name: str) -> list[Any] | None:
    """Return what the notes say of the rows, one note after the other; groups as (note, label)."""
    values: list[Any] | None = None
    for index, event in enumerate(events):
        given = event.get(name)
        if given is None:
            continue
        listed = list(given) if name == "ids" else _flat(given)
        values = [*(values or []), *([(index, str(label)) for label in listed] if name == "groups" else listed)]
    return values


def _flat(value: Any) -> list[Any]:
    """Return nested lists as one."""
    return [item for part in value for item in _flat(part)] if isinstance(value, list) else [value]


def _numbers(values: list[Any] | None) -> Array | None:
    """Return numbers; what JSON lacks is text there, and null is not scored."""
    if values is None:
        return None
    try:
        return np.array([float("nan") if value is None else float(value) for value in values])
    except (TypeError, ValueError):
        raise UnmatchedError(
            "the note holds rewards or advantages that are no numbers", "note a number a row"
        ) from None


def _labels(
    groups: Sequence[tuple[int, str]],
    rows: Array,
    prompts: Sequence[tuple[int, ...] | None],
    *,
    ordered: bool,
) -> Sequence[Hashable]:
    """Return the prompt of each noted row.

    Several notes may share their labels, or each may count from 0: the prompts decide. Labels that contradict the prompts
    say that the order is another, where the note is in an order.
    """
    for labels in ([label for _, label in groups], list(groups)):
        prompt_of: dict[Hashable, set[tuple[int, ...]]] = {}
        for row, prompt in zip(rows.tolist(), prompts, strict=True):
            if prompt is not None:
                prompt_of.setdefault(labels[row], set()).add(prompt)
        if all(len(known) == 1 for known in prompt_of.values()):
            return labels
    if ordered:
        raise UnmatchedError("rows of one noted group have different prompts, so the note has another order", IDS)
    raise UnmatchedError("rows of one noted group have different prompts", "note as `groups` the prompt of each row")


def _without_groups(
    settings: Mapping[str, Any], rows: Array, prompts: Sequence[tuple[int, ...] | None], count: int
) -> Sequence[Hashable] | None:
    """Return the prompt of each noted row by the setting `group_size`, or by the prompts if every noted row is scored."""
    size = settings.get("group_size")
    if isinstance(size, int) and size > 0:
        return [row // size for row in range(count)]
    if None in prompts or sorted(rows.tolist()) != list(range(count)):
        return None
    prompt_of = dict(zip(rows.tolist(), prompts, strict=True))
    return [prompt_of[row] for row in range(count)]


def _by_order(context: Context, time: int, count: int) -> tuple[list[int], Array]:
    """Return the rows, and the noted row of each: in the order of the update that followed the note."""
    first = next((each for each in (*context.earlier, context) if each.step.update.number > time), context)
    names = [identity(first.step, index) for index in range(first.rows)]
    scored = _once(names, count)
    if scored is None:
        raise UnmatchedError(
            f"the note before update {time + 1} has {plural(count, 'row')}, and update {first.step.update.number} "
            f"scored {first.rows}",
            IDS,
        )
    if first is context:
        return scored, np.arange(count)
    places: dict[str, list[int]] = {}
    for row, index in enumerate(scored):
        places.setdefault(names[index], []).append(row)
    kept, rows = [], []
    for index in range(context.rows):
        name = identity(context.step, index)
        if name not in places:
            raise UnmatchedError(
                f"the last note came before update {time + 1}, and this update has other rows",
                "note before each update",
            )
        if places[name]:
            kept.append(index)
            rows.append(places[name].pop(0))
    return kept, np.array(rows)


def _once(names: Sequence[str], count: int) -> list[int] | None:
    """Return the rows of the first scoring, where all rows are scored as often; None if their number is another."""
    if len(names) == count:
        return list(range(count))
    if not count or len(names) % count:
        return None
    if all(names[k] == names[k % count] for k in range(len(names))):
        return list(range(count))
    first = [names.index(name) for name in dict.fromkeys(names)]
    return first if len(first) == count else None


def identity(step: Step, index: int) -> str:
    """Return the key of the last attended token of a row: it covers all tokens."""
    row = step.rows[index].row
    places = np.flatnonzero(row.attended & (row.columns >= 0))
    return step.update.keys[int(row.columns[places[-1]])] if len(places) else ""


def _by_ids(
    step: Step, ids: Sequence[Any], groups: Sequence[tuple[int, str]] | None
) -> tuple[list[int], Array, list[int | None]]:
    """Return the rows, the noted row of each by the tokens of its completion, and where that begins.

    Of equal completions, the one in the group of the row's prompt is taken, and one that no other row has.

    Raises:
        UnmatchedError: a row has no noted completion.
    """
    eos, pad = frozenset(step.update.document.special.eos), step.update.document.special.pad
    completions = [_cut([int(token) for token in _flat(row)], eos, pad) for row in ids]
    left: dict[int, set[int]] = {}
    begins: list[int | None] = []
    rows = np.full(len(step.rows), -1)
    used: set[int] = set()
    for index, row in enumerate(step.rows):
        alike = [k for k, completion in enumerate(completions) if completion and _ends(row, completion) is not None]
        if not alike:
            remedy = "note the completions' ids as they are scored"
            raise UnmatchedError(f"the completion of row {index + 1} is not among the {len(ids)} noted ids", remedy)
        longest = max(len(completions[k]) for k in alike)
        left[index] = {k for k in alike if len(completions[k]) == longest}
        begin = _ends(row, completions[min(left[index])])
        begins.append(row.begin if row.begins in {"sampler", "labels"} else begin)
    group_of: dict[tuple[int, ...], tuple[int, str]] = {}
    for index in sorted(left, key=lambda i: len(left[i])):
        prompt = step.prompts[index]
        known = None if groups is None or prompt is None else group_of.get(prompt)
        mine = {k for k in left[index] if groups is None or known is None or groups[k] == known} or left[index]
        if not mine - used:  # scored once more
            continue
        rows[index] = min(mine - used)
        used.add(int(rows[index]))
        if groups is not None and prompt is not None:
            group_of[prompt] = groups[int(rows[index])]
    kept = np.flatnonzero(rows >= 0).tolist()
    return kept, rows[kept], [begins[k] for k in kept]


def _ambiguous(
    ids: Sequence[Any], groups: Sequence[tuple[int, str]] | None, numbers: Mapping[str, Array | None]
) -> bool:
    """Return whether equal completions of one group have different numbers."""
    first: dict[Any, int] = {}
    for row, completion in enumerate(ids):
        key = (tuple(_flat(completion)), None if groups is None else groups[row])
        other = first.setdefault(key, row)
        if any(values is not None and values[row] != values[other] for values in numbers.values()):
            return True
    return False


def _cut(ids: list[int], eos: frozenset[int], pad: int | None) -> list[int]:
    """Return the tokens up to the first that ends a row, without padding behind."""
    end = next((k + 1 for k, token in enumerate(ids) if token in eos), len(ids))
    kept = ids[:end]
    while kept and kept[-1] == pad and pad not in eos:
        kept = kept[:-1]
    return kept


def _ends(row: StepRow, completion: Sequence[int]) -> int | None:
    """Return where a completion begins in a row, or None if the row is another's."""
    places = np.flatnonzero(row.row.attended)
    places = places[~np.isin(places, row.after)]
    if row.hidden and row.closing is not None:
        places = np.append(places, row.closing)
    tokens = [row.row.ids[k] for k in places]
    for count in {len(tokens), len(tokens) - 1}:  # the last token may be hidden, or be fed and not scored
        kept = tokens[:count]
        if len(kept) > len(completion) and kept[-len(completion) :] == list(completion):
            begin = int(places[len(kept) - len(completion)])
            if row.begins in {"sampler", "labels"} and row.begin != begin:
                continue
            return begin
    return None
