"""The sections of the speed report, the same for markdown and for the page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from gates.report.speed import history, kernels, pictures, remarks, trainers
from gates.report.speed.inline import Items, Paragraph, Part, Section, Text, code, joined, strong
from gates.report.speed.numbers import interval
from gates.report.speed.recorded import Kernel, Recorded, gather
from gates.results.speed_file import SpeedResults

TITLE = "Speed: kernels and trainers beside the peers' own code"
ADVANTAGES, KL = "group_advantages", "token_kl"
VOCABULARY = ("selective_log_softmax", "sample_tokens", "filtered_logprobs", "full_kl")


def document(runs: Iterable[SpeedResults]) -> tuple[Recorded, list[Section]]:
    """Return the newest rows of the runs and the sections of the report."""
    recorded = gather(runs)
    sections = [
        Section("summary", "Summary", list(_summary(recorded))),
        Section("how", "How it was measured, and our bias", [Items(list(_how(recorded)))]),
        Section("advantages", "Group advantages", list(_family(recorded, ADVANTAGES))),
        Section("kl", "Token KL", list(_family(recorded, KL))),
        Section("vocabulary", "Over the vocabulary: log-probabilities and sampling", list(_vocabulary(recorded))),
        Section("others", "Loss, packing and the rest", list(_others(recorded))),
        Section("step", "What a ratio means for a training step", kernels.shares(recorded)),
        Section("trainers", "Trainers", list(trainers.parts(recorded)) if recorded.trainers else []),
        Section("history", "History", list(history.parts(_asv(recorded), recorded.comparisons))),
        Section("without", "Rows without a speed", _items(remarks.without_speed(recorded))),
        Section("statements", "What was called", _items(_calls(recorded))),
        Section("runs", "Runs", [remarks.runs(recorded)]),
    ]
    return recorded, [section for section in sections if section.parts]


def _items(lines: list[Text]) -> list[Part]:
    return [Items(lines)] if lines else []


def _asv(recorded: Recorded) -> Path | None:
    """Return the folder of asv's results beside that of the runs."""
    return recorded.runs[0].path.absolute().parent.parent / "asv" if recorded.runs else None


def counts(recorded: Recorded) -> Text:
    """Return how many rows were timed, on which side of 1 they are, and how many have no speed."""
    shown = [kernel for kernel in recorded.kernels if kernel.shown and kernel.row.ratio]
    slower = [kernel for kernel in shown if kernel.row.ratio and kernel.row.ratio.high < 1]
    equal = [kernel for kernel in shown if kernel.row.ratio and kernel.row.ratio.low <= 1 <= kernel.row.ratio.high]
    pieces: list[Text] = []
    if shown:
        peers = len({kernel.row.peer for kernel in shown})
        faster = len(shown) - len(slower) - len(equal)
        pieces.append(
            f"{len(shown)} rows against {peers} {'peer' if peers == 1 else 'peers'}: ours is faster in {faster}, the peer in "
            f"{len(slower)}, the interval holds 1 in {len(equal)}"
        )
        if slower:
            pieces.append([". Peers are faster: ", joined([_where(kernel) for kernel in slower[:6]], ", ")])
            pieces.append(f" and {len(slower) - 6} more" if len(slower) > 6 else "")
    timed = [trainer for trainer in recorded.trainers if trainer.shown]
    if timed:
        pieces.append(f"{'. ' if pieces else ''}{len(timed)} rows of {len({t.row.target for t in timed})} trainers")
    missing = remarks.without_count(recorded)
    if missing:
        pieces.append([". Without a speed: ", missing])
    return [*pieces, "."]


def _where(kernel: Kernel) -> Text:
    ratio = f" {interval(kernel.row.ratio)}" if kernel.row.ratio else ""
    return [kernel.row.peer, " ", code(kernel.title), f" {kernel.row.shape}{ratio}"]


def _summary(recorded: Recorded) -> Iterator[Part]:
    yield Paragraph(counts(recorded))
    doubted = [run for run in recorded.runs if remarks.doubts(run)]
    if doubted:
        yield Paragraph(
            [
                strong("Conclude nothing"),
                " from ",
                joined([code(run.path.name) for run in doubted], ", "),
                ": see Runs.",
            ]
        )
    table = kernels.summary(recorded)
    if table:
        yield table
    lines = trainers.summary(recorded)
    if lines:
        yield Paragraph(
            "Trainers, time of a step over that of our reference trainer (above 1 is slower), with its control, the "
            "reference over itself:"
        )
        yield Items(lines)


def _how(recorded: Recorded) -> Iterator[Text]:
    pairs = sorted({kernel.row.pairs for kernel in recorded.kernels if kernel.shown})
    processes = sorted({kernel.row.processes for kernel in recorded.kernels if kernel.shown})
    many = f" ({pairs[0]} to {pairs[-1]} pairs in {processes[0]} to {processes[-1]} processes)" if pairs else ""
    yield (
        "Each pair is the peer's own installed code and ours, in the peer's interpreter, on the same data, in turns (ABBA), "
        f"with as many threads{many}. Both results are first compared with the float64 oracle; a wrong one gets no speed."
    )
    yield (
        "A ratio is the peer's time over ours, the median of the pairs with a 95% interval by bootstrap; a range holds the "
        "least and the greatest over shapes, in brackets the outermost ends of the intervals. The control is ours over ours in "
        "the same pairs: what it is away from 1 is noise."
    )
    yield (
        "The roofline is the longer of moving the bytes that any implementation must move and doing the operations that it "
        "must do, at the best rates measured in the same run. Calling from Python is not in it, so small jobs stay far below."
    )
    yield [
        "A row whose op the ",
        strong("conformance report", "CONFORMANCE.md"),
        " calls wrong shows that grade in the place of a speed. Of each row the newest measurement counts",
        f"; {recorded.older} older ones are in the files." if recorded.older else ".",
    ]
    yield (
        "Our bias: we wrote the kernels and the reference trainer, chose the shapes and chose the machine. All of it is on a "
        "processor, where torch and MLX are not at their best. Peers do more than the op in places (What was called). Our "
        "results are accurate to float64, which is credited nowhere."
    )
    yield from remarks.accuracy(recorded)


def _family(recorded: Recorded, op: str) -> Iterator[Part]:
    """Yield one of the tables that the rlox documentation has, with the peers' real code."""
    chosen = [(title, rows) for title, rows in recorded.ops.items() if rows[0].op == op]
    if chosen:
        yield kernels.table(chosen, op, ops=len(chosen) > 1, beside=True)
        yield kernels.published_sources("A", "B", "C") if op == ADVANTAGES else kernels.published_sources("A", "B")
        yield from pictures.figures(recorded, op)


def _vocabulary(recorded: Recorded) -> Iterator[Part]:
    chosen = [(title, rows) for title, rows in recorded.ops.items() if rows[0].op in VOCABULARY]
    if chosen:
        yield kernels.table(chosen, "Ops over the vocabulary")
        yield from pictures.figures(recorded, *VOCABULARY[:3])


def _others(recorded: Recorded) -> Iterator[Part]:
    known = {ADVANTAGES, KL, *VOCABULARY}
    chosen = [(title, rows) for title, rows in recorded.ops.items() if rows[0].op not in known]
    if chosen:
        yield kernels.table(chosen, "Other ops")


def _calls(recorded: Recorded) -> list[Text]:
    lines = remarks.statements(recorded)
    versions = remarks.versions(recorded.kernels)
    return [*lines, f"Versions: {versions}."] if versions else lines
