"""Match the rows of a note with those of an update: by their order, or by the tokens of their completions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gates.model import Array
from gates.xray.reading.context import Context
from gates.xray.reading.words import plural
from gates.xray.step import Step, StepRow
from gates.xray.verdict.unmatched import UnmatchedError, flat

IDS = "note `ids`, the tokens of each completion"


def by_order(context: Context, time: int, count: int) -> tuple[list[int], Array]:
    """Return the rows, and the noted row of each: in the order of the update that followed the note."""
    first = following(context, time)
    names = [identity(first.step, index) for index in range(first.rows)]
    scored = once(names, count)
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


def following(context: Context, time: int) -> Context:
    """Return the update that followed a note."""
    return next((each for each in (*context.earlier, context) if each.step.update.number > time), context)


def once(names: Sequence[str], count: int) -> list[int] | None:
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


def by_ids(
    step: Step, ids: Sequence[Any], groups: Sequence[tuple[int, str]] | None
) -> tuple[list[int], Array, list[int | None], bool]:
    """Return the rows, the noted row of each by the tokens of its completion, where that begins, and whether it is unsure.

    Of equal completions, the one in the group of the row's prompt is taken, and one that no other row has. A row is unsure
    where equal completions are of several groups and nothing says which is the row's.

    Raises:
        UnmatchedError: a row has no noted completion.
    """
    eos, pad = frozenset(step.update.document.special.eos), step.update.document.special.pad
    completions = [_cut([int(token) for token in flat(row)], eos, pad) for row in ids]
    left: dict[int, set[int]] = {}
    begins: list[int | None] = []
    rows = np.full(len(step.rows), -1)
    used: set[int] = set()
    unsure = False
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
        prompt = _prompt(step, index, begins[index])
        known = None if groups is None or prompt is None else group_of.get(prompt)
        mine = {k for k in left[index] if groups is None or known is None or groups[k] == known} or left[index]
        if not mine - used:  # scored once more
            continue
        unsure |= groups is not None and known is None and len({groups[k] for k in mine - used}) > 1
        rows[index] = min(mine - used)
        used.add(int(rows[index]))
        if groups is not None and prompt is not None:
            group_of[prompt] = groups[int(rows[index])]
    kept = np.flatnonzero(rows >= 0).tolist()
    return kept, rows[kept], [begins[k] for k in kept], unsure


def _prompt(step: Step, index: int, begin: int | None) -> tuple[int, ...] | None:
    """Return the tokens before a completion, whether or not its beginning is known to others than the note."""
    if step.prompts[index] is not None or begin is None:
        return step.prompts[index]
    row = step.rows[index].row
    return tuple(np.array(row.ids)[:begin][row.attended[:begin]].tolist())


def ambiguous(
    ids: Sequence[Any], groups: Sequence[tuple[int, str]] | None, numbers: Mapping[str, Array | None]
) -> bool:
    """Return whether equal completions of one group have different numbers."""
    first: dict[Any, int] = {}
    for row, completion in enumerate(ids):
        key = (tuple(flat(completion)), None if groups is None else groups[row])
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
    return _hidden(row, completion)


def _hidden(row: StepRow, completion: Sequence[int]) -> int | None:
    """Return where a completion begins that the attention mask hides, as TRL's does of a truncated row that is left out."""
    attended = np.flatnonzero(row.row.attended)
    begin = int(attended[-1]) + 1 if len(attended) else 0
    return begin if list(row.row.ids[begin : begin + len(completion)]) == list(completion) else None
