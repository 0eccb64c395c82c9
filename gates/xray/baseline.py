"""Compare two X-rays: which coefficients changed beyond the precision of both."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from gates.errors import ConfigurationError
from gates.xray.fit import quantile
from gates.xray.records import RowRecord, UpdateRecord, XrayRecord


@dataclass(frozen=True, slots=True)
class Change:
    """A coefficient that changed.

    Attributes:
        update: its number.
        row: its number in the new document, or in the old one where only that has the token, from 1.
        token: its number in the row, from 1.
        text: of the token, or its id.
        old, new: coefficients; None where a document lacks the token or its number.
        errors: by how many standard errors they differ; infinite where one is missing.
    """

    update: int
    row: int
    token: int
    text: str
    old: float | None
    new: float | None
    errors: float


@dataclass(frozen=True, slots=True)
class Changes:
    """What changed.

    Attributes:
        changed: largest first.
        compared: coefficients that both documents have.
        factor: by which all coefficients are multiplied, if one number explains every change.
        sentence: "no coefficient changed (76 compared, …)" or which did.
    """

    changed: tuple[Change, ...]
    compared: int
    factor: float | None
    sentence: str

    @property
    def none(self) -> bool:
        """Whether nothing changed: exit code 0."""
        return not self.changed


@dataclass(frozen=True, slots=True)
class Token:
    """A coefficient and where it stands first."""

    row: int
    token: int
    text: str
    value: float | None
    error: float


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> Changes:
    """Compare two documents of `gates xray --out X.json`.

    Raises:
        ConfigurationError: a document is no X-ray, or they have no update or no token in common.
    """
    before, after = (_parsed(document, name) for document, name in ((old, "the baseline"), (new, "the new X-ray")))
    numbers = sorted({update.update for update in before.updates} & {update.update for update in after.updates})
    if not numbers:
        raise ConfigurationError("the baseline and the new X-ray have no update in common: record the same updates")
    pairs = [pair for number in numbers for pair in _pairs(_of(before, number), _of(after, number), number)]
    both = [(number, a, b) for number, a, b in pairs if a is not None and b is not None]
    if not both:
        raise ConfigurationError(
            "the baseline and the new X-ray have no token in common: record the same rows, with the same seed"
        )
    room = quantile(len(both))
    changed = [change for number, a, b in pairs if (change := _change(number, a, b, room)) is not None]
    changed.sort(key=lambda change: -change.errors)
    factor = _factor(both, room) if changed and len(pairs) == len(both) else None
    return Changes(tuple(changed), len(both), factor, _sentence(changed, len(both), factor))


def _parsed(document: Mapping[str, Any], name: str) -> XrayRecord:
    try:
        return XrayRecord.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise ConfigurationError(
            f"{name} is no document of `gates xray --out X.json`: field `{field}`: {first['msg']}"
        ) from None


def _of(document: XrayRecord, number: int) -> UpdateRecord:
    return next(update for update in document.updates if update.update == number)


def _tokens(update: UpdateRecord) -> dict[str, Token]:
    """Return the first token of each key."""
    tokens: dict[str, Token] = {}
    for row in update.rows:
        for position, key in enumerate(row.keys):
            if key:
                tokens.setdefault(key, _token(row, position))
    return tokens


def _token(row: RowRecord, position: int) -> Token:
    text = str(row.ids[position]) if row.text is None else row.text[position]
    return Token(row.row, position + 1, text, row.coefficients[position], row.errors[position] or 0.0)


def _pairs(before: UpdateRecord, after: UpdateRecord, number: int) -> Iterator[tuple[int, Token | None, Token | None]]:
    """Yield the tokens of both documents by their key: equal tokens after equal tokens."""
    old, new = _tokens(before), _tokens(after)
    for key, token in new.items():
        yield number, old.get(key), token
    for key, token in old.items():
        if key not in new:
            yield number, token, None


def _change(number: int, old: Token | None, new: Token | None, room: float) -> Change | None:
    token = new or old
    assert token is not None
    a, b = (None if side is None else side.value for side in (old, new))
    if a is None and b is None:
        return None
    if a is None or b is None or old is None or new is None:
        return Change(number, token.row, token.token, token.text, a, b, math.inf)
    error = math.hypot(old.error, new.error)
    apart = abs(a - b) / error if error else math.inf if a != b else 0.0
    return Change(number, token.row, token.token, token.text, a, b, apart) if apart > room else None


def _factor(both: list[tuple[int, Token, Token]], room: float) -> float | None:
    """Return the number by which every coefficient is multiplied, if there is one."""
    values = [(a.value, b.value, a.error, b.error) for _, a, b in both if a.value is not None and b.value is not None]
    above, below = sum(a * b for a, b, _, _ in values), sum(a * a for a, _, _, _ in values)
    if not below or not above:
        return None
    factor = above / below
    fits = all(abs(b - factor * a) <= room * math.hypot(factor * e, f) for a, b, e, f in values)
    return factor if fits else None


def _sentence(changed: list[Change], compared: int, factor: float | None) -> str:
    if not changed:
        return f"no coefficient changed beyond the precision of both X-rays ({compared:,} compared)"
    if factor is not None:
        return f"all coefficients are multiplied by {factor:.4g}: a common factor of the loss, or a clip of the norm"
    rows = sorted({(change.update, change.row) for change in changed})
    where = ", ".join(f"row {row} of update {update}" for update, row in rows[:3])
    more = f" and {len(rows) - 3} more rows" if len(rows) > 3 else ""
    count = f"{len(changed):,} coefficient{'' if len(changed) == 1 else 's'}"
    return f"{count} changed beyond the precision of both X-rays ({compared:,} compared), in {where}{more}"
