"""The sections of the speed report, the same for markdown and for the page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from gates.report.speed import history, kernels, pictures, remarks, trainers
from gates.report.speed.inline import Items, Paragraph, Part, Section, Text, code, joined, strong
from gates.report.speed.numbers import interval, span
from gates.report.speed.recorded import PLAIN, Kernel, Recorded, base, gather
from gates.results.speed_file import SpeedResults

TITLE = "Speed: kernels and trainers beside the peers' own code"
NOISE = 0.1  # of a control
MOST = 6  # rows that the first screen names
ADVANTAGES, KL = "group_advantages", "token_kl"
VOCABULARY = ("selective_log_softmax", "sample_tokens", "filtered_logprobs", "full_kl")


def document(runs: Iterable[SpeedResults], *, whole: bool = False) -> tuple[Recorded, list[Section]]:
    """Return the newest rows of the runs and the sections of the report; with `whole` every figure of every trainer."""
    recorded = gather(runs)
    sections = [
        Section("summary", "Summary", list(_summary(recorded))),
        Section("how", "How it was measured, and our bias", [Items([*_how(recorded), *remarks.runs(recorded)])]),
        Section("advantages", "Group advantages", list(_family(recorded, ADVANTAGES))),
        Section("kl", "Token KL", list(_family(recorded, KL))),
        Section(
            "vocabulary",
            "Over the vocabulary: log-probabilities and sampling",
            list(_of_a_step(recorded, "Ops over the vocabulary", vocabulary=True)),
        ),
        Section(
            "others",
            "Loss, packing and the rest",
            list(_of_a_step(recorded, "Loss, packing and other ops", vocabulary=False)),
        ),
        Section("step", "What a ratio means for a training step", kernels.shares(recorded)),
        Section("trainers", "Trainers", list(trainers.parts(recorded, whole=whole)) if recorded.trainers else []),
        Section("history", "History", list(history.parts(_asv(recorded), recorded.comparisons))),
        Section("without", "Rows without a speed", _items(remarks.without_speed(recorded), remarks.MOST)),
        Section("statements", "What was called", _items(_calls(recorded), 6)),
    ]
    return recorded, [section for section in sections if section.parts]


def _items(lines: list[Text], least: int) -> list[Part]:
    return [Items(lines, least)] if lines else []


def _asv(recorded: Recorded) -> Path | None:
    """Return the folder of asv's results beside that of the runs."""
    return recorded.runs[0].path.absolute().parent.parent / "asv" if recorded.runs else None


def counts(recorded: Recorded) -> Text:
    """Return how many rows were timed, on which side of 1 they are, and how many have no speed."""
    missing = remarks.without_count(recorded)
    words = [_kernel_counts(recorded), _trainer_counts(recorded), ["Without a speed: ", missing] if missing else ""]
    return [joined([words_ for words_ in words if words_], ". "), "."]


def _kernel_counts(recorded: Recorded) -> Text:
    rows = [kernel for kernel in recorded.kernels if kernel.shown and kernel.row.ratio]
    if not rows:
        return ""
    behind = [kernel for kernel in rows if kernel.row.ratio and kernel.row.ratio.high < 1]
    equal = sum(kernel.row.ratio.low <= 1 <= kernel.row.ratio.high for kernel in rows if kernel.row.ratio)
    noisy = sum(_rough(kernel) for kernel in rows)
    ahead = len(rows) - len(behind) - equal
    words = f"{len(rows)} timings, an op at a shape against one peer, of {_peers(rows)}: ours is faster in {ahead}, "
    found: list[Text] = [words, f"the peer in {len(behind)}, neither in {equal}"]
    if noisy:
        found.append(
            f"; {noisy} are rough: the control is more than {100 * NOISE:g}% away from 1, or others used more than "
            f"{remarks.BUSY_PERCENT:g}% of the processors"
        )
    if behind:
        found.append([". Peers are faster: ", joined([_where(kernel) for kernel in behind[:MOST]], ", ")])
        found.append(f" and {len(behind) - MOST} more" if len(behind) > MOST else "")
    return found


def _rough(kernel: Kernel) -> bool:
    """Return whether noise may be as large as an effect."""
    control, busy = kernel.row.control, kernel.row.busy_percent
    return (control is not None and abs(control.value - 1) > NOISE) or (busy or 0.0) > remarks.BUSY_PERCENT


def _trainer_counts(recorded: Recorded) -> Text:
    timed = [trainer.row for trainer in recorded.trainers if trainer.shown]
    if not timed:
        return ""
    ratios = [row.ratio for row in timed if row.ratio]
    faster, slower = sum(ratio.high < 1 for ratio in ratios), sum(ratio.low > 1 for ratio in ratios)
    return (
        f"{len(timed)} timings of {len({row.target for row in timed})} trainers: slower than our reference in {slower}, "
        f"faster in {faster}, neither in {len(ratios) - slower - faster}"
    )


def _peers(kernels: Sequence[Kernel]) -> str:
    """Return how many libraries there are, and the frameworks in which the plain formula was written."""
    names = {base(kernel.row.peer) for kernel in kernels}
    libraries, plain = len(names - set(PLAIN)), [name for name in PLAIN if name in names]
    words = [f"{libraries} {'library' if libraries == 1 else 'libraries'}"] if libraries else []
    return " and ".join([*words, *([f"the plain formula in {', '.join(plain)}"] if plain else [])])


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
                ": see below.",
            ]
        )
    table = kernels.summary(recorded)
    if table:
        yield Paragraph(
            "A number is the peer's time over ours: at 3 ours takes a third of it. Least to greatest over the shapes, and in "
            "brackets the 95% intervals' ends."
        )
        yield table
    if words := trainers.summary(recorded):
        yield Paragraph(words)


def _how(recorded: Recorded) -> Iterator[Text]:
    pairs = sorted({kernel.row.pairs for kernel in recorded.kernels if kernel.shown})
    processes = sorted({kernel.row.processes for kernel in recorded.kernels if kernel.shown})
    many = (
        f" ({span(pairs)} pairs a row, in {span(processes)} process{'es' if processes[-1] > 1 else ''})"
        if pairs
        else ""
    )
    yield (
        "Each pair is the peer's own installed code and ours, in the peer's interpreter, on the same data, in turns (ABBA), "
        f"with as many threads{many}. Both results are first compared with the float64 oracle; a wrong one gets no "
        f"speed.{remarks.accuracy(recorded)}"
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
        f"; {recorded.older} older ones are in the files" if recorded.older else "",
        ". Shapes smaller than a step's are in the ranges above and in the pictures, in the tables only of the first two ops.",
    ]
    yield (
        "Our bias: we wrote the kernels and the reference trainer, chose the shapes and chose the machine. All of it is on a "
        "processor, where torch and MLX are not at their best. Peers do more than the op in places (What was called). Our "
        "results are accurate to float64, which is credited nowhere."
    )


def _family(recorded: Recorded, op: str) -> Iterator[Part]:
    """Yield one of the tables that the rlox documentation has, with the peers' real code."""
    chosen = [(title, rows) for title, rows in recorded.ops.items() if rows[0].op == op]
    if chosen:
        yield kernels.table(chosen, op, ops=len(chosen) > 1, beside=True)
        if op == ADVANTAGES or ADVANTAGES not in recorded.by_op:
            yield kernels.published_sources()
        yield from pictures.figures(recorded, op)


def _of_a_step(recorded: Recorded, caption: str, *, vocabulary: bool) -> Iterator[Part]:
    """Yield the table of the other ops at shapes that a step has, and their pictures."""
    chosen = [
        (title, rows)
        for title, kernels_ in recorded.ops.items()
        if (kernels_[0].op in VOCABULARY) == vocabulary
        and kernels_[0].op not in {ADVANTAGES, KL}
        and (rows := kernels.of_a_step(kernels_))
    ]
    for some in _sharing_peers(chosen):
        yield kernels.table(some, caption)
    if vocabulary:
        yield from pictures.figures(recorded, *VOCABULARY[:3])


def _sharing_peers(chosen: Sequence[tuple[str, list[Kernel]]]) -> list[list[tuple[str, list[Kernel]]]]:
    """Return the ops in groups without a peer in common, so that a table has few empty cells."""
    groups: list[tuple[set[str], list[tuple[str, list[Kernel]]]]] = []
    for title, rows in chosen:
        peers, found = {kernel.row.peer for kernel in rows}, [(title, rows)]
        for group in [group for group in groups if group[0] & peers]:
            groups.remove(group)
            peers, found = peers | group[0], [*group[1], *found]
        groups.append((peers, found))
    return sorted((found for _, found in groups), key=len, reverse=True)


def _calls(recorded: Recorded) -> list[Text]:
    lines = remarks.statements(recorded)
    versions = remarks.versions(recorded.kernels)
    return [*lines, f"Versions: {versions}."] if versions else lines
