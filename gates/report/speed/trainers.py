"""The table of trainers, the published row beside them, and the settings in which the targets differ."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gates.report.speed import published
from gates.report.speed.inline import Items, Paragraph, Part, Table, Text, code, grade, joined, strong
from gates.report.speed.numbers import interval, intervals, short, span
from gates.report.speed.recorded import REFERENCE, WRONG, Recorded, Trainer
from gates.results.speed_records import Interval, TrainerRecord

Groups = dict[tuple[str, str], list[Trainer]]  # by model and workload
GB = 1e9
MOST_ROWS, FEW_ROWS = 28, 16  # of the table of trainers: up to so many are all shown, of more only these
MOST_SETTINGS = 16
LONGEST = 60  # letters of a setting's value
COLUMNS: dict[str, Callable[[TrainerRecord], Interval | None]] = {
    "rollout tok/s": lambda row: row.rollout_tokens_per_s,
    "gradient s": lambda row: row.gradient_s,
    "samples/s": lambda row: row.samples_per_s,
    "it/s": lambda row: row.iterations_per_s,
}
HEAD = (
    "target",
    "comparison",
    "model, workload",
    *COLUMNS,
    "peak GB, framework / RSS",
    "time over the reference's",
    "control",
)


def parts(recorded: Recorded, *, whole: bool) -> Iterator[Part]:
    """Yield the table of trainers, what was published, and how the targets differ.

    Args:
        recorded: with trainers.
        whole: show every figure of every workload, however many there are.
    """
    groups = _groups(recorded.trainers)
    shown = list(groups) if whole else _chosen(groups)
    rows: list[Sequence[Text]] = []
    last = next((name for name in reversed(shown) if _like_published(name[0])), shown[-1])
    for name in shown:
        rows += [_row(trainer) for trainer in groups[name]]
        if name == last:
            rows.append(_published())
    yield Table(HEAD, rows, "Trainers")
    if others := {name: trainers for name, trainers in groups.items() if name not in shown}:
        yield _short_table(others)
    yield Items([*_notes(recorded.trainers), *_entries(recorded.trainers)])
    if settings := list(_settings(groups)):
        yield Paragraph("Settings that differ between the targets that have them:")
        yield Items(settings, 5)


def _chosen(groups: Groups) -> list[tuple[str, str]]:
    """Return the workloads that are shown in full: those of the published model, then the first of each model, and on."""
    place: dict[tuple[str, str], int] = {}
    for model, workload in groups:
        place[model, workload] = sum(name == model for name, _ in place)
    chosen: list[tuple[str, str]] = []
    left = sum(map(len, groups.values()))
    left = left if left <= MOST_ROWS else FEW_ROWS
    for name in sorted(groups, key=lambda name: (not _like_published(name[0]), place[name])):
        if not chosen or len(groups[name]) <= left:
            chosen.append(name)
            left -= len(groups[name])
    return [name for name in groups if name in chosen]


def _short_table(groups: Groups) -> Table:
    """Return a row for each workload: the reference's steps a second, and what each target takes over it."""
    targets = sorted({t.row.target for rows in groups.values() for t in rows if t.row.target != REFERENCE})
    rows: list[Sequence[Text]] = []
    for (model, workload), trainers in groups.items():
        found = {trainer.row.target: trainer for trainer in trainers}
        own = found.get(REFERENCE)
        speed = short(own.row.iterations_per_s.value) if own and own.shown and own.row.iterations_per_s else "–"
        noise = interval(own.row.control) if own and own.row.control else "–"
        cells = [_time(found[target]) if target in found else "" for target in targets]
        rows.append([f"{model}, {workload}", speed, *cells, noise])
    head = ["time over the reference's", "reference it/s", *targets, "control"]
    return Table(head, rows, "Time over the reference's on the other workloads")


def _time(trainer: Trainer) -> Text:
    if not trainer.shown:
        return grade(WRONG) if trainer.row.conformance == WRONG else strong(trainer.row.outcome)
    return interval(trainer.row.ratio) if trainer.row.ratio else "–"


def _groups(trainers: Sequence[Trainer]) -> Groups:
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


def _notes(trainers: Sequence[Trainer]) -> Iterator[Text]:
    source = published.TRAINERS_SOURCE
    passes = [trainer.row.passes for trainer in trainers if trainer.shown and trainer.row.passes]
    many = f", {span(passes)} processes each, in turns" if passes else ""
    yield (
        f"Each target runs in its own environment through its own entry point{many}. Rollout counts completion tokens only. "
        "Gradient is a step without generation. RSS is of the whole process. Warm-up with compilation is in no figure. Time "
        "over the reference's is that of a step for each completion token, or of generation where the comparison is "
        "“generation only”; above 1 is slower."
    )
    others = "; ".join(
        f"{one.target} ({one.comparison}) {one.rollout_tokens_per_s:g} tok/s"
        + (f", {one.iterations_per_s:g} it/s" if one.iterations_per_s else "")
        for one in published.TRAINERS[1:]
    )
    yield f"Published: {source.document}, {source.machine}; {source.note}. The same table has: {others}."


def _entries(trainers: Sequence[Trainer]) -> Iterator[Text]:
    """Yield what was called of each target, with its versions and what it does differently."""
    seen: dict[str, TrainerRecord] = {}
    for trainer in trainers:
        if trainer.row.outcome == "timed" and trainer.row.entry:
            seen.setdefault(trainer.row.target, trainer.row)
    for target, row in sorted(seen.items(), key=lambda item: (item[0] != REFERENCE, item[0])):
        versions = ", ".join(f"{name} {value}" for name, value in row.versions.items())
        yield [code(target), f": {'; '.join(part for part in (row.entry, row.note, versions) if part)}."]


def _settings(groups: Groups) -> Iterator[Text]:
    """Yield each setting that differs between the targets that have it, with the targets that have each value."""
    found: dict[str, dict[str, list[str]]] = {}  # values of each target, of the workloads on which they differ
    for trainers in groups.values():
        timed = [trainer.row for trainer in trainers if trainer.row.outcome == "timed"]
        for key in dict.fromkeys(key for row in timed for key in row.settings):
            values = {row.target: _value(row.settings[key]) for row in timed if key in row.settings}
            if len({value.casefold() for value in values.values()}) > 1:
                for target, value in values.items():
                    before = found.setdefault(key, {}).setdefault(target, [])
                    before += [value] if value not in before else []
    for key, targets in list(found.items())[:MOST_SETTINGS]:
        same: dict[str, list[str]] = defaultdict(list)
        for target, several in targets.items():
            same[" or ".join(several)].append(target)
        yield [code(key), ": ", "; ".join(f"{value} ({', '.join(names)})" for value, names in same.items()), "."]
    if len(found) > MOST_SETTINGS:
        yield f"{len(found) - MOST_SETTINGS} more settings differ; they are in the files."


def _value(value: Any) -> str:
    """Return a setting in few letters: numbers with six digits, types without the name of their framework."""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    text = text.removeprefix("mlx.core.").removeprefix("torch.")
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def summary(recorded: Recorded) -> Text:
    """Return for each target how its time compares with the reference's, over all workloads, and the control."""
    groups = _groups(recorded.trainers)
    targets = {t.row.target: t for rows in groups.values() for t in rows if t.row.target != REFERENCE}
    if not targets:
        return ""
    words = [_over(target, [t for t in recorded.trainers if t.row.target == target]) for target in sorted(targets)]
    controls = [trainer.row.control for trainer in recorded.trainers if trainer.shown and trainer.row.control]
    noise = f". Control, the reference over itself: {intervals(controls)}" if controls else ""
    count = f"{len(groups)} workload{'s' if len(groups) != 1 else ''}"
    return [
        f"Trainers, time for each completion token over our reference's on {count}, above 1 is slower: ",
        joined(words),
        noise,
        ".",
    ]


def _over(target: str, trainers: Sequence[Trainer]) -> Text:
    ratios = [trainer.row.ratio for trainer in trainers if trainer.shown and trainer.row.ratio]
    labels = dict.fromkeys(t.row.comparison for t in trainers if t.shown and t.row.comparison != "same semantics")
    others = dict.fromkeys(WRONG if t.row.conformance == WRONG else t.row.outcome for t in trainers if not t.shown)
    marks: list[Text] = [grade(name) if name == WRONG else strong(name) for name in others]
    label = f" ({', '.join(filter(None, labels))})" if any(labels) else ""
    return [f"{target} ", joined([*([f"{intervals(ratios)}{label}"] if ratios else []), *marks], ", ")]
