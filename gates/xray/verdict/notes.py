"""What a script has noted for an update: its facts, and which of its rows each row of the update is."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gates.model import Array
from gates.xray.documents import Event
from gates.xray.reading.context import Context
from gates.xray.verdict.matching import IDS, ambiguous, by_ids, by_order, following, identity
from gates.xray.verdict.ragged import LOG_PROBS, by_token, of_rows
from gates.xray.verdict.unmatched import UnmatchedError, flat

NUMBERS = ("rewards", "advantages", "chosen", "desirable")
BY_ROW = (*NUMBERS, "groups", "ids", *LOG_PROBS)
NESTED = ("ids", "advantages", *LOG_PROBS)


@dataclass(frozen=True, slots=True)
class Note:
    """The facts of a note.

    Attributes:
        rewards, advantages: a number for each noted row; None where they are not noted.
        groups: the prompt of each noted row, or the pair.
        settings: in the words of `gates judge`.
        kept: rows of the update, each once where a script has scored its rows several times.
        rows: for each of these, the noted row.
        begins: for each of these, where its completion begins; None where nobody knows.
        count: noted rows.
        ambiguous: whether rows of equal tokens have different numbers, and nothing says which is whose.
        unsure: whether a row's completion is noted for several prompts, and nothing says which of them is its own.
        chosen, desirable: 1 for each noted row that is, else 0; None where they are not noted.
        tokens: numbers for the tokens of each noted row: "advantages", "sampler_log_probs" and "reference_log_probs".
        mismatched: log-ratios of completions under prompts that are not theirs; None where they are not noted.
        lengths: tokens of each noted completion; None where these are not noted.
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
    unsure: bool = False
    chosen: Array | None = None
    desirable: Array | None = None
    tokens: Mapping[str, Sequence[Array]] = field(default_factory=dict)
    mismatched: Array | None = None
    lengths: Sequence[int] | None = None

    @property
    def by_ids(self) -> bool:
        """Whether the tokens of completions are noted."""
        return self.lengths is not None

    @property
    def says_advantages(self) -> bool:
        """Whether advantages are noted, of rows or of tokens."""
        return self.advantages is not None or "advantages" in self.tokens


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
    tokens = _tokens(context, facts, time)
    counts = {name: len(values) for name, values in facts.items() if values is not None}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{count} {name}" for name, count in counts.items())
        raise UnmatchedError(f"the notes before update {time + 1} have {listed}", "note as many of each")
    count = next(iter(counts.values()))
    ids, unsure = facts["ids"], False
    if ids is not None:
        kept, rows, begins, unsure = by_ids(context.step, ids, facts["groups"])
    else:
        kept, rows = by_order(context, time, count)
        begins = [context.step.rows[k].begin for k in kept]
    groups = facts["groups"]
    numbers = {name: None if name in tokens else _numbers(facts[name]) for name in NUMBERS}
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
        ids is not None and ambiguous(ids, groups, numbers),
        unsure,
        numbers["chosen"],
        numbers["desirable"],
        tokens,
        _numbers(_joined(events, "mismatched")),
        None if ids is None else [len(flat(completion)) for completion in ids],
    )


def _tokens(context: Context, facts: dict[str, list[Any] | None], time: int) -> Mapping[str, Sequence[Array]]:
    """Return the numbers of tokens, and make nested lists of rows' advantages one list."""
    after = following(context, time)
    others = [len(values) for name, values in facts.items() if values is not None and name != "advantages"]
    scored = [identity(after.step, index) for index in range(after.rows)]
    listed = {name: facts[name] for name in LOG_PROBS}
    if by_token(facts["advantages"], others, scored):
        return of_rows({**listed, "advantages": facts["advantages"]})
    if facts["advantages"] is not None:
        facts["advantages"] = flat(facts["advantages"])
    return of_rows(listed)


def _joined(events: Sequence[Event], name: str) -> list[Any] | None:
    """Return what the notes say of the rows, one note after the other; groups as (note, label)."""
    values: list[Any] | None = None
    for index, event in enumerate(events):
        given = event.get(name)
        if given is None:
            continue
        listed = list(given) if name in NESTED and isinstance(given, list) else flat(given)
        values = [*(values or []), *([(index, str(label)) for label in listed] if name == "groups" else listed)]
    return values


def _numbers(values: list[Any] | None) -> Array | None:
    """Return numbers; what JSON lacks is text there, and null is not scored."""
    if values is None:
        return None
    try:
        return np.array([float("nan") if value is None else float(value) for value in values])
    except (TypeError, ValueError):
        raise UnmatchedError(
            "the note holds rewards, advantages or labels that are not numbers", "note a number a row"
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
