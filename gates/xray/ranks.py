"""Join what the ranks of one update recorded: rows one after the other, equal tokens after equal tokens in one column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gates.errors import ConfigurationError
from gates.model import Array
from gates.xray.documents import PER_TOKEN, Kind, Scorer, Texts, UpdateDocument
from gates.xray.process import Part

SAME = (
    1e-3  # two columns of one key are one if they differ by less of their norm: half precision rounds by 4e-3 a number
)
AGREE = 1e-4  # ranks receive one averaged gradient: copies differ by nothing, sums in another order by 1e-7


@dataclass(frozen=True, slots=True)
class Row:
    """A row that the script scored with gradient.

    Attributes:
        rank: that scored it.
        call: index of its forward pass in its rank.
        ids: all tokens, padding included.
        attended: whether the attention mask shows a token.
        columns: of each token; −1 for none.
        prompt: attended tokens that the sampler was given; None where nobody saw it.
        labels: as the script passed them.
        text: the pieces of text.
        encoded: attended tokens at its beginning that the tokenizer was given by themselves; None where it was not.
        texts: where several stand in it.
    """

    rank: int
    call: int
    ids: tuple[int, ...]
    attended: Array
    columns: Array
    prompt: int | None
    labels: tuple[int, ...] | None
    text: tuple[str, ...] | None
    encoded: int | None = None
    texts: Texts | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """An update, over all ranks.

    Attributes:
        document: of rank 0.
        rows: of all ranks.
        kinds: of each column.
        keys: of each column; empty where it is no token's.
        sketch: (columns, bins).
        gradient: (bins,).
        log_probs, entropy, start_log_probs: of each column; NaN where there is none.
        scored: who scored without gradient, and the log-probs.
        sample: single weights, by name without `sample.`.
        noise: share of the gradient that one backward pass in this dtype adds.
    """

    document: UpdateDocument
    rows: tuple[Row, ...]
    kinds: tuple[Kind, ...]
    keys: tuple[str, ...]
    sketch: Array
    gradient: Array
    log_probs: Array
    entropy: Array
    start_log_probs: Array
    scored: tuple[tuple[Scorer, Array], ...]
    sample: Mapping[str, Array]
    noise: float

    @property
    def number(self) -> int:
        """The number of the update, from 1."""
        return self.document.update


def join(parts: Sequence[Part]) -> Update:
    """Return one update of all ranks.

    Raises:
        ConfigurationError: sketches have different seeds, or the ranks received different gradients.
    """
    bins = min(part.document.bins for part in parts)
    seeds = {part.document.seed for part in parts}
    if len(seeds) > 1:
        raise ConfigurationError(f"{parts[0].file}: the ranks' sketches have seeds {sorted(seeds)}, must be one")
    gradients = [folded(part.arrays["gradient"][None], bins)[0] for part in parts]
    _agree(parts, gradients)
    sketches = [folded(part.arrays["sketch"], bins) for part in parts]
    places, order = _places(parts, sketches)
    kinds_of = [_kinds(part) for part in parts]
    tokens_of = [_token_columns(part) for part in parts]
    keys = [parts[p].document.keys[tokens_of[p][c]] if c in tokens_of[p] else "" for p, c in order]
    values = {name: _gathered(parts, order, name) for name in ("log_probs", "entropy", "start_log_probs")}
    whole = len(parts) == 1 and len(order) == len(sketches[0])
    return Update(
        document=parts[0].document,
        rows=tuple(row for number, part in enumerate(parts) for row in _rows(part, places[number])),
        kinds=tuple(kinds_of[part][column] for part, column in order),
        keys=tuple(keys),
        sketch=sketches[0] if whole else np.stack([sketches[part][column] for part, column in order]),
        gradient=np.mean(gradients, axis=0),
        scored=tuple(_scored(parts, order)),
        sample={
            name.removeprefix("sample."): array for name, array in parts[0].arrays.items() if name.startswith("sample.")
        },
        noise=max(part.document.noise for part in parts),
        **values,
    )


def folded(sketch: Array, bins: int) -> Array:
    """Return a sketch in fewer bins: a bin's number modulo the fewer ones is its place there."""
    wide = np.asarray(sketch, np.float64)
    return wide if wide.shape[1] == bins else wide.reshape(len(wide), -1, bins).sum(axis=1)


def _agree(parts: Sequence[Part], gradients: Sequence[Array]) -> None:
    size = max(float(np.linalg.norm(gradient)) for gradient in gradients)
    for part, gradient in zip(parts[1:], gradients[1:], strict=True):
        apart = float(np.linalg.norm(gradient - gradients[0]))
        if apart > max(AGREE, 4 * part.document.noise) * size:
            raise ConfigurationError(
                f"{part.file}: rank {part.document.rank} received another gradient than rank {parts[0].document.rank} "
                f"(apart by {apart / size:.2g} of its norm), so the ranks did not average theirs before this update"
            )


def _kinds(part: Part) -> list[Kind]:
    return [kind for kind, count in part.document.kinds for _ in range(count)]


def _token_columns(part: Part) -> dict[int, int]:
    """Return the index among the columns of tokens of each column that is a token's."""
    return {column: index for index, column in enumerate(c for c, kind in enumerate(_kinds(part)) if kind in PER_TOKEN)}


def _places(parts: Sequence[Part], sketches: Sequence[Array]) -> tuple[list[dict[int, int]], list[tuple[int, int]]]:
    """Return the joined index of each rank's token columns, and the rank and column of each joined one."""
    order: list[tuple[int, int]] = []
    by_key: dict[str, list[int]] = {}
    places: list[dict[int, int]] = []
    for number, part in enumerate(parts):
        place = {}
        tolerance = max(SAME, 4 * part.document.noise)
        for column, index in _token_columns(part).items():
            vector = sketches[number][column]
            alike = by_key.setdefault(part.document.keys[index], [])
            joined = next((at for at in alike if _same(vector, sketches[order[at][0]][order[at][1]], tolerance)), None)
            if joined is None:
                joined = len(order)
                order.append((number, column))
                alike.append(joined)
            place[index] = joined
        places.append(place)
    for number, part in enumerate(parts):
        tokens = _token_columns(part)
        order += [(number, column) for column in range(len(_kinds(part))) if column not in tokens]
    return places, order


def _same(left: Array, right: Array, tolerance: float) -> bool:
    return bool(np.linalg.norm(left - right) <= tolerance * np.linalg.norm(right))


def _gathered(parts: Sequence[Part], order: Sequence[tuple[int, int]], name: str) -> Array:
    columns = [_token_columns(part) for part in parts]
    values = np.full(len(order), np.nan)
    for at, (part, column) in enumerate(order):
        index = columns[part].get(column)
        if index is not None and name in parts[part].arrays:
            values[at] = parts[part].arrays[name][index]
    return values


def _scored(parts: Sequence[Part], order: Sequence[tuple[int, int]]) -> list[tuple[Scorer, Array]]:
    """Return the log-probs of each scorer, joined over ranks by who scored and when."""
    joined: dict[tuple[str, str, int, int], tuple[Scorer, Array]] = {}
    for number, part in enumerate(parts):
        seen: Counter[tuple[str, str, int]] = Counter()
        for index, scorer in enumerate(part.document.scorers):
            name = (scorer.by, scorer.model, scorer.update)
            seen[name] += 1  # two models of one class are two scorers
            identity = (*name, seen[name])
            values = _gathered([part], [(0, c) if p == number else (0, -1) for p, c in order], f"scored.{index}")
            before = joined.get(identity)
            joined[identity] = (scorer, values if before is None else np.where(np.isnan(before[1]), values, before[1]))
    return list(joined.values())


def _rows(part: Part, place: Mapping[int, int]) -> list[Row]:
    return [
        Row(
            rank=part.document.rank,
            call=row.call,
            ids=row.ids,
            attended=np.array(row.attended, dtype=bool),
            columns=np.array([place.get(column, -1) for column in row.columns], dtype=np.int64),
            prompt=row.prompt,
            labels=row.labels,
            text=row.text,
            encoded=row.encoded,
            texts=row.texts,
        )
        for row in part.document.rows
    ]
