"""The JSON document of an X-ray: what `gates xray --out X.json` writes and `--baseline` reads."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """A part of the document."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ReadingRecord(Record):
    """The answer to one question: what was read, what needs attention, or what the numbers do not decide."""

    name: str
    kind: Literal["read", "attention", "cannot tell"]
    sentence: str
    because: str
    remedy: str
    numbers: dict[str, Any]


class VerdictRecord(Record):
    """The verdict on a quantity that the script's note defines, in the grades of `gates judge`."""

    quantity: str
    status: str
    sentence: str
    computes: str
    because: str
    remedy: str
    numbers: dict[str, Any]


class RowRecord(Record):
    """A row; its lists have an entry for each token, padding included.

    Attributes:
        row: its number in the update, from 1.
        rank, call: which process scored it, in which of its forward passes.
        begin: position of the first token of the completion, from 0; null where nobody saw it.
        begins: who says so: "sampler", "labels", "coefficients" or "unknown".
        closing: position of the closing token, from 0; null where there is none.
        truncated: whether the sampler's limit ended it; null where that is not known.
        sum: of the tokens' parts.
        ids, text: the tokens; `text` is null where no tokenizer was seen.
        attended: whether the attention mask shows a token.
        keys: equal for equal tokens after equal tokens; empty for a token without column.
        coefficients: derivative of the loss with respect to the token's log-prob, summed over all rows with this key; positive
            pushes the token down. Null where it has no number.
        errors: standard errors of them.
        parts: what of each coefficient belongs to this row.
    """

    row: int
    rank: int
    call: int
    begin: int | None
    begins: str
    closing: int | None
    truncated: bool | None
    sum: float | None
    ids: list[int]
    text: list[str] | None
    attended: list[bool]
    keys: list[str]
    coefficients: list[float | None]
    errors: list[float | None]
    parts: list[float | None]


class UpdateRecord(Record):
    """An update.

    Attributes:
        update: its number, from 1.
        unexplained: share of the gradient that no column explains.
        rounding: share that one backward pass of the script rounds away.
        condition: of the columns, scaled to length 1.
        gradient_norm: as the optimizer received it.
        temperature: by which the loss divides logits.
        optimizer: its name, and its settings by group.
    """

    update: int
    model: str
    dtype: str
    unexplained: float
    rounding: float
    condition: float
    gradient_norm: float
    temperature: float
    optimizer: dict[str, Any]
    readings: list[ReadingRecord]
    verdicts: list[VerdictRecord] = []
    rows: list[RowRecord]


class XrayRecord(Record):
    """What a recording shows.

    Attributes:
        kind: "xray".
        format: 1.
        framework: "torch 2.9.0".
        world_size: ranks that were joined.
        made: updates that the script made; null where it was ended before it could say.
        cannot: why updates could not be recorded.
        problems: files that are not whole.
    """

    kind: Literal["xray"] = "xray"
    format: Literal[1] = 1
    framework: str
    world_size: int
    made: int | None
    cannot: list[str]
    problems: list[str]
    updates: list[UpdateRecord]
