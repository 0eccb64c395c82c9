"""The tables of trainers with the published row, the entry points, and the settings that differ."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gates.report.speed import published
from gates.report.speed.inline import Items, Paragraph, Part, Table, Text, code, grade, joined, strong
from gates.report.speed.numbers import interval, intervals, short, span
from gates.report.speed.recorded import REFERENCE, WRONG, Recorded, Trainer
from gates.results.speed_records import Interval, TrainerRecord

Groups = dict[tuple[str, str], list[Trainer]]  # by model and workload
GB = 1e9
MOST_ROWS, FEW_ROWS = 28, 16  # the full table shows up to MOST_ROWS; of more rows it shows FEW_ROWS
MOST_SETTINGS = 16
LONGEST = 60  # characters of a setting's value
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
    "time relative to the reference",
    "control",
)


def parts(recorded: Recorded, *, whole: bool) -> Iterator[Part]:
    """Yield the tables of trainers, notes on the measurements, and the settings that differ.

    Args:
        recorded: the rows of the report, with at least one trainer.
        whole: show every measurement of every workload.
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
    if hidden := {name: trainers for name, trainers in groups.items() if name not in shown}:
        yield _short_table(hidden)
    yield Items([*_notes(recorded.trainers), *_entries(recorded.trainers)])
    if settings := list(_settings(groups)):
        yield Paragraph("Settings that differ between the targets that have them:")
        yield Items(settings, 5)


def _chosen(groups: Groups) -> list[tuple[str, str]]:
    """Return the workloads to show in full: those of the published model, then the first, second, … of each model."""
    position: dict[tuple[str, str], int] = {}
    for model, workload in groups:
        position[model, workload] = sum(name == model for name, _ in position)
    chosen: list[tuple[str, str]] = []
    left = sum(map(len, groups.values()))
    left = left if left <= MOST_ROWS else FEW_ROWS
    for name in sorted(groups, key=lambda name: (not _like_published(name[0]), position[name])):
        if not chosen or len(groups[name]) <= left:
            chosen.append(name)
            left -= len(groups[name])
    return [name for name in groups if name in chosen]


def _short_table(groups: Groups) -> Table:
    """Return a row for each workload: the reference's steps per second, and the relative time of each target."""
    targets = sorted({t.row.target for rows in groups.values() for t in rows if t.row.target != REFERENCE})
    rows: list[Sequence[Text]] = []
    for (model, workload), trainers in groups.items():
        by_target = {trainer.row.target: trainer for trainer in trainers}
        own = by_target.get(REFERENCE)
        speed = short(own.row.iterations_per_s.value) if own and own.shown and own.row.iterations_per_s else "–"
        noise = interval(own.row.control) if own and own.row.control else "–"
        cells = [_time(by_target[target]) if target in by_target else "" for target in targets]
        rows.append([f"{model}, {workload}", speed, *cells, noise])
    head = ["time relative to the reference", "reference it/s", *targets, "control"]
    return Table(head, rows, "Time relative to the reference on the other workloads")


def _time(trainer: Trainer) -> Text:
    if not trainer.shown:
        return grade(WRONG) if trainer.row.conformance == WRONG else strong(trainer.row.outcome)
    return interval(trainer.row.ratio) if trainer.row.ratio else "–"


def _groups(trainers: Sequence[Trainer]) -> Groups:
    """Return the trainers by model and workload, the reference first."""
    groups: dict[tuple[str, str], list[Trainer]] = defaultdict(list)
    for trainer in trainers:
        groups[trainer.row.model, trainer.row.workload].append(trainer)
    return {
        name: sorted(rows, key=lambda t: (t.row.target != REFERENCE, t.row.target)) for name, rows in groups.items()
    }


def _like_published(model: str) -> bool:
    return model.lower().startswith(published.TRAINERS_WORKLOAD[0])


def _row(trainer: Trainer) -> list[Text]:
    row = trainer.row
    labels: list[Text] = [code(row.target), row.comparison or "–", f"{row.model}, {row.workload}"]
    if not trainer.shown:
        outcome = grade(WRONG) if row.conformance == WRONG else strong(row.outcome)
        return [*labels, outcome, *[""] * (len(HEAD) - len(labels) - 1)]
    estimates = [short(estimate.value) if (estimate := column(row)) else "–" for column in COLUMNS.values()]
    ratio = interval(row.ratio) if row.ratio else "1" if row.target == REFERENCE else "–"
    return [*labels, *estimates, _peak(row), ratio, interval(row.control) if row.control else "–"]


def _peak(row: TrainerRecord) -> str:
    """Format the peak memory as the framework counts it, and that of the whole process."""
    sizes = [f"{size / GB:.2f}" if size else "–" for size in (row.peak_memory_bytes, row.peak_rss_bytes)]
    return " / ".join(sizes)


def _published() -> list[Text]:
    """Return the row of measurements that mlxrl's authors published."""
    mlxrl = published.TRAINERS[0]
    values = (mlxrl.rollout_tokens_per_s, mlxrl.gradient_s, mlxrl.samples_per_s, mlxrl.iterations_per_s)
    name: Text = [code(mlxrl.target), " as published, not measured here"]
    cells = ["–" if value is None else f"{value:g}" for value in values]
    workload = f"{', '.join(published.TRAINERS_WORKLOAD)}, {published.TRAINERS_SOURCE.machine}"
    return [name, mlxrl.comparison, workload, *cells, f"{mlxrl.peak_gb} / –", "–", "–"]


def _notes(trainers: Sequence[Trainer]) -> Iterator[Text]:
    source = published.TRAINERS_SOURCE
    passes = [trainer.row.passes for trainer in trainers if trainer.shown and trainer.row.passes]
    processes = f", in {span(passes)} processes, interleaved with the other targets" if passes else ""
    yield (
        f"Each target runs in its own environment through its own entry point{processes}. Rollout counts completion tokens "
        "only. Gradient is the time of a step without generation. RSS is that of the whole process. All columns exclude warm-up "
        "and compilation. Time relative to the reference is per completion token, of a whole step, or of generation alone if "
        "the comparison is “generation only”; above 1 is slower."
    )
    peers = "; ".join(
        f"{row.target} ({row.comparison}) {row.rollout_tokens_per_s:g} tok/s"
        + (f", {row.iterations_per_s:g} it/s" if row.iterations_per_s else "")
        for row in published.TRAINERS[1:]
    )
    yield f"Published: {source.document}, {source.machine}; {source.note}. The same table lists {peers}."


def _entries(trainers: Sequence[Trainer]) -> Iterator[Text]:
    """Yield the entry point of each target, with its differences and versions."""
    rows: dict[str, TrainerRecord] = {}
    for trainer in trainers:
        if trainer.row.outcome == "timed" and trainer.row.entry:
            rows.setdefault(trainer.row.target, trainer.row)
    for target, row in sorted(rows.items(), key=lambda item: (item[0] != REFERENCE, item[0])):
        versions = ", ".join(f"{name} {value}" for name, value in row.versions.items())
        yield [code(target), f": {'; '.join(part for part in (row.entry, row.note, versions) if part)}."]


def _settings(groups: Groups) -> Iterator[Text]:
    """Yield each setting with different values, and the targets with each value."""
    settings: dict[str, dict[str, list[str]]] = {}  # values of each target, on the workloads where targets differ
    for trainers in groups.values():
        timed = [trainer.row for trainer in trainers if trainer.row.outcome == "timed"]
        for key in dict.fromkeys(key for row in timed for key in row.settings):
            values = {row.target: _value(row.settings[key]) for row in timed if key in row.settings}
            if len({value.casefold() for value in values.values()}) > 1:
                for target, value in values.items():
                    known = settings.setdefault(key, {}).setdefault(target, [])
                    known += [value] if value not in known else []
    for key, targets in list(settings.items())[:MOST_SETTINGS]:
        by_value: dict[str, list[str]] = defaultdict(list)
        for target, values_of_target in targets.items():
            by_value[" or ".join(values_of_target)].append(target)
        yield [code(key), ": ", "; ".join(f"{value} ({', '.join(names)})" for value, names in by_value.items()), "."]
    if len(settings) > MOST_SETTINGS:
        yield f"{len(settings) - MOST_SETTINGS} more settings differ; they are in the files."


def _value(value: Any) -> str:
    """Format a setting briefly: numbers with six digits, types without the name of their framework."""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    text = text.removeprefix("mlx.core.").removeprefix("torch.")
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def summary(recorded: Recorded) -> Text:
    """Return the relative time of each target over all workloads, and the control."""
    groups = _groups(recorded.trainers)
    targets = {t.row.target: t for rows in groups.values() for t in rows if t.row.target != REFERENCE}
    if not targets:
        return ""
    ranges = [_range(target, [t for t in recorded.trainers if t.row.target == target]) for target in sorted(targets)]
    controls = [trainer.row.control for trainer in recorded.trainers if trainer.shown and trainer.row.control]
    noise = f". Control, the reference against itself: {intervals(controls)}" if controls else ""
    count = f"{len(groups)} workload{'s' if len(groups) != 1 else ''}"
    return [
        f"Trainers, time per completion token divided by that of the reference trainer, over {count} (above 1 is slower): ",
        joined(ranges),
        noise,
        ".",
    ]


def _range(target: str, trainers: Sequence[Trainer]) -> Text:
    ratios = [trainer.row.ratio for trainer in trainers if trainer.shown and trainer.row.ratio]
    comparisons = dict.fromkeys(t.row.comparison for t in trainers if t.shown and t.row.comparison != "same semantics")
    outcomes = Counter(WRONG if t.row.conformance == WRONG else t.row.outcome for t in trainers if not t.shown)
    marks: list[Text] = [
        [grade(name) if name == WRONG else strong(name), f" on {count}"] for name, count in outcomes.items()
    ]
    label = f" ({', '.join(filter(None, comparisons))})" if any(comparisons) else ""
    return [f"{target} ", joined([*([f"{intervals(ratios)}{label}"] if ratios else []), *marks], ", ")]
