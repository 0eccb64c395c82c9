"""An X-ray as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from gates.xray.picture import Picture, Xray
from gates.xray.reading.reading import Reading
from gates.xray.records import ReadingRecord, RowRecord, UpdateRecord, VerdictRecord, XrayRecord
from gates.xray.step import Step
from gates.xray.verdict import Verdict


def record(xray: Xray) -> dict[str, Any]:
    """Return the document: what the screen and the page show, and each coefficient with its error."""
    recording = xray.recording
    document = XrayRecord(
        framework=recording.framework,
        world_size=recording.world_size,
        made=recording.made,
        cannot=list(recording.cannot),
        problems=list(recording.problems),
        updates=[_update(picture) for picture in xray.updates],
    )
    return document.model_dump(mode="json")


def schema() -> dict[str, Any]:
    """Return the JSON Schema of the document."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **XrayRecord.model_json_schema()}


def _update(picture: Picture) -> UpdateRecord:
    step, document = picture.step, picture.step.update.document
    return UpdateRecord(
        update=picture.number,
        model=document.model,
        dtype=document.dtype,
        unexplained=step.fit.unexplained,
        rounding=step.fit.rounding,
        condition=step.fit.condition,
        gradient_norm=document.gradient_norm,
        temperature=document.temperature,
        optimizer={"name": document.optimizer.name, "groups": _plain(list(document.optimizer.groups))},
        readings=[_reading(reading) for reading in picture.readings],
        verdicts=[_verdict(verdict) for verdict in picture.verdicts],
        rows=[_row(step, index) for index in range(len(step.rows))],
    )


def _reading(reading: Reading) -> ReadingRecord:
    return ReadingRecord(
        name=reading.name,
        kind=reading.kind,
        sentence=reading.sentence,
        because=reading.because,
        remedy=reading.remedy,
        numbers=_plain(reading.numbers),
    )


def _verdict(verdict: Verdict) -> VerdictRecord:
    return VerdictRecord(
        quantity=verdict.quantity,
        status=verdict.status,
        sentence=verdict.sentence,
        computes=verdict.computes,
        because=verdict.because,
        remedy=verdict.remedy,
        numbers=_plain(verdict.numbers),
    )


def _row(step: Step, index: int) -> RowRecord:
    row = step.rows[index]
    columns, parts = row.row.columns, step.share(index)
    has = columns >= 0
    return RowRecord(
        row=index + 1,
        rank=row.row.rank,
        call=row.row.call,
        begin=row.begin,
        begins=row.begins,
        closing=row.closing,
        truncated=row.truncated,
        sum=float(np.nansum(parts)),
        ids=list(row.row.ids),
        text=None if row.row.text is None else list(row.row.text),
        attended=row.row.attended.tolist(),
        keys=[step.update.keys[column] if column >= 0 else "" for column in columns],
        coefficients=_numbers(np.where(has, step.fit.coefficients[columns], np.nan)),
        errors=_numbers(np.where(has, step.fit.errors[columns], np.nan)),
        parts=_numbers(parts),
    )


def _numbers(values: Iterable[float]) -> list[float | None]:
    return [float(value) if math.isfinite(value) else None for value in values]


def _plain(value: Any) -> Any:
    """Return numbers as JSON has them: what is not finite is text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
