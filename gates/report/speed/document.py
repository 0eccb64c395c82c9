"""The sections of the speed report, shared by the markdown file and the HTML page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from gates.report.speed import counts, history, kernels, pictures, remarks, trainers
from gates.report.speed.inline import Items, Paragraph, Part, Section, Text, code, joined, strong
from gates.report.speed.numbers import span
from gates.report.speed.recorded import Kernel, Recorded, gather
from gates.results.speed_file import SpeedResults

TITLE = "Speed: kernels and trainers compared with other libraries"
ADVANTAGES, KL = "group_advantages", "token_kl"
VOCABULARY = ("selective_log_softmax", "sample_tokens", "filtered_logprobs", "full_kl")


def document(runs: Iterable[SpeedResults], *, whole: bool = False) -> tuple[Recorded, list[Section]]:
    """Return the newest rows of the runs, and the report's sections.

    Args:
        runs: all recorded runs.
        whole: list every measurement of every trainer.
    """
    recorded = gather(runs)
    sections = [
        Section("summary", "Summary", list(_summary(recorded))),
        Section("how", "How it was measured, and our bias", [Items([*_how(recorded), *remarks.runs(recorded)])]),
        Section("advantages", "Group advantages", list(_family(recorded, ADVANTAGES))),
        Section("kl", "Token KL", list(_family(recorded, KL))),
        Section(
            "vocabulary",
            "Ops over the vocabulary: log-probabilities and sampling",
            list(_step_sized(recorded, "Ops over the vocabulary", vocabulary=True)),
        ),
        Section(
            "others",
            "Loss, packing and other ops",
            list(_step_sized(recorded, "Loss, packing and other ops", vocabulary=False)),
        ),
        Section("step", "Time saved in a training step", kernels.shares(recorded)),
        Section("trainers", "Trainers", list(trainers.parts(recorded, whole=whole)) if recorded.trainers else []),
        Section("history", "History", list(history.parts(_asv(recorded), recorded.comparisons))),
        Section("without", "Rows without a time", _items(remarks.without_time(recorded), remarks.MOST)),
        Section("statements", "The calls that were timed", _items(_calls(recorded), 6)),
    ]
    return recorded, [section for section in sections if section.parts]


def _items(lines: list[Text], least: int) -> list[Part]:
    return [Items(lines, least)] if lines else []


def _asv(recorded: Recorded) -> Path | None:
    """Return the folder of asv's results, a sibling of the folder of the runs."""
    return recorded.runs[0].path.absolute().parent.parent / "asv" if recorded.runs else None


def _summary(recorded: Recorded) -> Iterator[Part]:
    yield Items([*counts.of_kernels(recorded), *counts.untimed(recorded)])
    doubtful = [run for run in recorded.runs if remarks.doubts(run)]
    if doubtful:
        yield Paragraph(
            [
                strong("Conclude nothing"),
                " from ",
                joined([code(run.path.name) for run in doubtful], ", "),
                ": see below.",
            ]
        )
    table = kernels.summary(recorded)
    if table:
        yield Paragraph(
            "How many times faster rlkernels is, that is the peer's time divided by its own: the least and the greatest over all "
            "shapes, and in brackets the outermost ends of their 95% intervals. The last row is the most that an op saves in "
            "one training step, with its share of the step (see Time saved in a training step)."
        )
        yield table
    if text := trainers.summary(recorded):
        yield Paragraph([*counts.of_trainers(recorded), " ", text])


def _how(recorded: Recorded) -> Iterator[Text]:
    pairs = sorted({kernel.row.pairs for kernel in recorded.kernels if kernel.shown})
    processes = sorted({kernel.row.processes for kernel in recorded.kernels if kernel.shown})
    samples = (
        f" ({span(pairs)} pairs per row, in {span(processes)} process{'es' if processes[-1] > 1 else ''})"
        if pairs
        else ""
    )
    yield (
        "The peer's installed code and rlkernels run in the peer's interpreter, on the same data, with the same number of "
        f"threads, in the order ABBA{samples}. Both results are first compared with the float64 oracle; a side with a wrong "
        f"result is not timed.{remarks.accuracy(recorded)}"
    )
    yield (
        "A ratio is the peer's time divided by the time of rlkernels: the median over the pairs, with a 95% bootstrap "
        "interval. A range covers all shapes, with the outermost ends of the intervals in brackets. The control compares "
        "rlkernels with itself in the same pairs: its distance from 1 is noise."
    )
    yield (
        "The roofline is the least possible time: the longer of moving the bytes and of doing the operations that every "
        "implementation needs, at the best rates measured in the same run. It excludes the overhead of a call from Python, so "
        "small inputs reach only a small share of it."
    )
    yield [
        "If the ",
        strong("conformance report", "CONFORMANCE.md"),
        " grades a peer's op as wrong, its row shows the grade instead of a time. The newest measurement of each row counts",
        f"; {recorded.older} older ones are in the files" if recorded.older else "",
        ". The ranges and the pictures are over all shapes; tables below Token KL list those of a training step.",
    ]
    yield (
        "Our bias: we wrote the kernels and the reference trainer, and chose the shapes and the machine. Everything runs on a "
        "CPU, where torch and MLX are not at their best. Some peers do more than the op (see The calls that were timed). The "
        "results of rlkernels are accurate to float64, for which the ratios give no credit."
    )


def _family(recorded: Recorded, op: str) -> Iterator[Part]:
    """Yield one of the tables of the rlox documentation, measured with the peers' own code."""
    chosen = [(title, rows) for title, rows in recorded.ops.items() if rows[0].op == op]
    if chosen:
        yield kernels.table(chosen, op, op_column=len(chosen) > 1, with_published=True)
        if op == ADVANTAGES or ADVANTAGES not in recorded.by_op:
            yield kernels.published_sources()
        yield from pictures.figures(recorded, op)


def _step_sized(recorded: Recorded, caption: str, *, vocabulary: bool) -> Iterator[Part]:
    """Yield the tables of the other ops at the shapes of a training step, and their pictures."""
    chosen = [
        (title, step_rows)
        for title, rows in recorded.ops.items()
        if (rows[0].op in VOCABULARY) == vocabulary
        and rows[0].op not in {ADVANTAGES, KL}
        and (step_rows := kernels.step_sized(rows))
    ]
    for group in _sharing_peers(chosen):
        yield kernels.table(group, caption)
    if vocabulary:
        yield from pictures.figures(recorded, *VOCABULARY[:3])


def _sharing_peers(chosen: Sequence[tuple[str, list[Kernel]]]) -> list[list[tuple[str, list[Kernel]]]]:
    """Return the ops in groups that share no peer, so that each table has few empty cells."""
    groups: list[tuple[set[str], list[tuple[str, list[Kernel]]]]] = []
    for title, rows in chosen:
        peers, ops = {kernel.row.peer for kernel in rows}, [(title, rows)]
        for group in [group for group in groups if group[0] & peers]:
            groups.remove(group)
            peers, ops = peers | group[0], [*group[1], *ops]
        groups.append((peers, ops))
    return sorted((ops for _, ops in groups), key=len, reverse=True)


def _calls(recorded: Recorded) -> list[Text]:
    lines = remarks.statements(recorded)
    versions = remarks.versions(recorded.kernels)
    return [*lines, f"Versions: {versions}."] if versions else lines
