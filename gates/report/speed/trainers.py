"""The table of trainers, the published row beside them, and the settings in which the targets differ."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gates.report.speed import published
from gates.report.speed.inline import Items, Paragraph, Part, Table, Text, code, grade, joined, strong
from gates.report.speed.numbers import interval, short
from gates.report.speed.recorded import REFERENCE, WRONG, Recorded, Trainer
from gates.results.speed_records import Interval, TrainerRecord

GB = 1e9
MOST_SETTINGS = 14
COLUMNS: dict[str, Callable[[TrainerRecord], Interval | None]] = {
    "rollout tok/s": lambda row: row.rollout_tokens_per_s,
    "gradient s": lambda row: row.gradient_s,
    "samples/s": lambda row: row.samples_per_s,
    "it/s": lambda row: row.iterations_per_s,
}
HEAD = ("target", "comparison", "model, workload", *COLUMNS, "peak GB", "time over the reference's", "control")


def parts(recorded: Recorded) -> Iterator[Part]:
    """Yield the table of trainers, what was published, and how the targets differ."""
    if not recorded.trainers:
        yield Paragraph("No trainer is recorded.")
        return
    groups = _groups(recorded.trainers)
    rows: list[Sequence[Text]] = []
    last = max((name for name in groups if _like_published(name[0])), default=list(groups)[-1])
    for name, trainers in groups.items():
        rows += [_row(trainer) for trainer in trainers]
        if name == last:
            rows.append(_published())
    yield Table(HEAD, rows, "Trainers")
    yield Items([*_notes(), *_entries(recorded.trainers), *_settings(groups)])


def _groups(trainers: Sequence[Trainer]) -> dict[tuple[str, str], list[Trainer]]:
    """Return the trainers by model and workload, the reference first."""
    found: dict[tuple[str, str], list[Trainer]] = defaultdict(list)
    for trainer in trainers:
        found[trainer.row.model, trainer.row.workload].append(trainer)
    return {name: sorted(rows, key=lambda t: (t.row.target != REFERENCE, t.row.target)) for name, rows in found.items()}


def _like_published(model: str) -> bool:
    return model.lower().startswith(published.TRAINERS_WORKLOAD[0])


def _row(trainer: Trainer) -> list[Text]:
    row = trainer.row
    named: list[Text] = [code(row.target), row.comparison or "–", f"{row.model}, {row.workload}"]
    if not trainer.shown:
        place = grade(WRONG) if row.conformance == WRONG else strong(row.outcome)
        return [*named, place, *[""] * (len(HEAD) - len(named) - 1)]
    figures = [short(found.value) if (found := get(row)) else "–" for get in COLUMNS.values()]
    ratio = interval(row.ratio) if row.ratio else "1" if row.target == REFERENCE else "–"
    return [*named, *figures, _peak(row), ratio, interval(row.control) if row.control else "–"]


def _peak(row: TrainerRecord) -> str:
    """Return the peak memory as the framework counts it, and of the whole process."""
    found = [f"{size / GB:.2f}" if size else "–" for size in (row.peak_memory_bytes, row.peak_rss_bytes)]
    return " / ".join(found)


def _published() -> list[Text]:
    """Return the row that mlxrl's authors published."""
    one = published.TRAINERS[0]
    figures = (one.rollout_tokens_per_s, one.gradient_s, one.samples_per_s, one.iterations_per_s)
    name: Text = [code(one.target), " as published, not measured here"]
    shown = ["–" if value is None else f"{value:g}" for value in figures]
    where = f"{', '.join(published.TRAINERS_WORKLOAD)}, {published.TRAINERS_SOURCE.machine}"
    return [name, one.comparison, where, *shown, f"{one.peak_gb} / –", "–", "–"]


def _notes() -> Iterator[Text]:
    source = published.TRAINERS_SOURCE
    yield (
        "Rollout counts completion tokens only. Gradient is a step without generation. Peak is the framework's own count / "
        "resident memory of the process. Warm-up with compilation is in no figure. Time over the reference's is of whole "
        "steps, or of generation where the comparison is “generation only”; above 1 is slower than our reference."
    )
    others = "; ".join(
        f"{one.target} ({one.comparison}) {one.rollout_tokens_per_s:g} tok/s"
        + (f", {one.iterations_per_s:g} it/s" if one.iterations_per_s else "")
        for one in published.TRAINERS[1:]
    )
    yield f"Published: {source.document}, {source.machine}; {source.note}. The same table has: {others}."


def _entries(trainers: Sequence[Trainer]) -> Iterator[Text]:
    """Yield what was called of each target, and its versions."""
    seen: dict[str, TrainerRecord] = {}
    for trainer in trainers:
        if trainer.row.outcome == "timed":
            seen[trainer.row.target] = trainer.row
    for target, row in sorted(seen.items(), key=lambda item: (item[0] != REFERENCE, item[0])):
        versions = ", ".join(f"{name} {version}" for name, version in row.versions.items())
        called: Text = [" calls ", code(row.entry)] if row.entry else ""
        yield [code(target), called, f"; {versions}" if versions else "", f". {row.note}" if row.note else ""]


def _settings(groups: dict[tuple[str, str], list[Trainer]]) -> Iterator[Text]:
    """Yield each setting that differs between targets of one workload, with the targets that have each value."""
    lines: dict[str, tuple[str, Text]] = {}
    for (model, workload), trainers in groups.items():
        timed = [trainer.row for trainer in trainers if trainer.row.outcome == "timed" and trainer.row.settings]
        for key in dict.fromkeys(key for row in timed for key in row.settings):
            values: dict[str, list[str]] = defaultdict(list)
            for row in timed:
                values[_value(row.settings.get(key, "not set"))].append(row.target)
            if len(values) < 2:
                continue
            words = "; ".join(f"{', '.join(dict.fromkeys(names))} {value}" for value, names in values.items())
            seen = f"{key}: {words}"
            where = f"{lines[seen][0]}, {workload} ({model})" if seen in lines else f"{workload} ({model})"
            lines[seen] = where, ["Differs: ", code(key), f": {words}"]
    every = len(groups)
    found = list(lines.values())
    for where, text in found[:MOST_SETTINGS]:
        yield text if where.count("(") == every else [text, f" — {where}"]
    if len(found) > MOST_SETTINGS:
        yield f"{len(found) - MOST_SETTINGS} more settings differ; they are in the files."


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def summary(recorded: Recorded) -> list[Text]:
    """Return for each workload how much longer each target's step takes than the reference's."""
    lines: list[Text] = []
    for (model, workload), trainers in _groups(recorded.trainers).items():
        peers = [trainer for trainer in trainers if trainer.row.target != REFERENCE]
        words = [[f"{trainer.row.target} ", _short(trainer)] for trainer in peers]
        controls = [trainer.row.control for trainer in trainers if trainer.shown and trainer.row.control]
        noise = f"; control {interval(max(controls, key=lambda c: abs(c.value - 1)))}" if controls else ""
        if words:
            lines.append([f"{model}, {workload}: ", joined(words), noise])
    return lines


def _short(trainer: Trainer) -> Text:
    row = trainer.row
    if row.conformance == WRONG:
        return grade(WRONG)
    if not trainer.shown or row.ratio is None:
        return strong(row.outcome) if row.outcome != "timed" else "–"
    label = {"same semantics": "", "": ""}.get(row.comparison, f" ({row.comparison})")
    return f"{interval(row.ratio)}{label}"
