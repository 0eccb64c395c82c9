"""The tables of kernels: ranges by peer and op, the ratios at each shape beside published ones, and shares of a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gates.report.speed import published, step_share
from gates.report.speed.inline import Items, Part, Table, Text, code, grade, joined, strong
from gates.report.speed.numbers import (
    dimensions,
    intervals,
    percent,
    seconds,
    short,
    size,
    span,
    titled,
)
from gates.report.speed.recorded import FIRST, WRONG, Kernel, Recorded, Trainer, base, peer_order

NONE = "–"
SMALL = 4096  # numbers of a step's arrays; tables that leave out toys begin above


def summary(recorded: Recorded, *, step: bool = True) -> Table | None:
    """Return a row for each peer and a column for each op: the range of ratios over shapes and conventions.

    Below stand the control of the same rows, and with `step` how much of a training step the op saves.
    """
    ops = {op: found for op, kernels in recorded.by_op.items() if (found := [k for k in kernels if k.row.peer])}
    if not ops:
        return None
    peers = sorted({kernel.row.peer for kernels in ops.values() for kernel in kernels}, key=peer_order)
    rows: list[list[Text]] = [
        [peer, *(_range([k for k in kernels if k.row.peer == peer]) for kernels in ops.values())] for peer in peers
    ]
    rows.append([strong("control, ours over ours"), *(control(kernels) for kernels in ops.values())])
    if step:
        whole = step_share.published_step()
        shares_ = [step_share.share(kernels, whole) for kernels in ops.values()]
        words = [f"at most {percent(share.most)}: {share.meaning}" if share else NONE for share in shares_]
        rows.append([strong(f"saved of a {whole.name}"), *words])
    return Table(["times faster than", *map(code, ops)], rows, "Times faster than each peer")


def against(kernels: Sequence[Kernel]) -> Text:
    """Return each peer of an op with the range of its ratios and their intervals, or why there is none."""
    peers = sorted({kernel.row.peer for kernel in kernels if kernel.row.peer}, key=peer_order)
    return joined([[f"{peer} ", _range([k for k in kernels if k.row.peer == peer])] for peer in peers])


def _range(kernels: Sequence[Kernel]) -> Text:
    """Return the least and the greatest ratio with the outermost ends of the intervals, or what stands in their place."""
    ratios = [kernel.row.ratio for kernel in kernels if kernel.shown and kernel.row.ratio]
    others = list(dict.fromkeys(WRONG if k.row.conformance == WRONG else k.row.outcome for k in kernels if not k.shown))
    marks: list[Text] = [grade(name) if name == WRONG else strong(name) for name in others]
    return joined([*([intervals(ratios)] if ratios else []), *marks], ", ")


def control(kernels: Sequence[Kernel]) -> Text:
    """Return the range of our own time over our own time, in the same pairs."""
    found = [kernel.row.control for kernel in kernels if kernel.shown and kernel.row.control]
    return intervals(found) if found else NONE


def table(
    chosen: Sequence[tuple[str, Sequence[Kernel]]], caption: str, *, ops: bool = True, beside: bool = False
) -> Table:
    """Return a table with a row for each op and shape and a column for each peer.

    Args:
        chosen: title and kernels of each op.
        caption: of the table.
        ops: begin each row with the op.
        beside: add what was published of the same cells, behind the peers that were published.
    """
    peers = sorted({k.row.peer for _, kernels in chosen for k in kernels if k.row.peer}, key=peer_order)
    first = [peer for peer in peers if base(peer) in FIRST] if beside else peers
    head: list[Text] = [*(["op"] if ops else []), "shape", "ours µs", *first]
    head += [*(["published elsewhere, µs"] if beside else []), *peers[len(first) :], "control", "roofline"]
    rows = []
    for title, kernels in chosen:
        shapes: dict[str, dict[str, Kernel]] = {}
        for kernel in kernels:
            shapes.setdefault(kernel.row.shape, {})[kernel.row.peer] = kernel
        for shape, found in shapes.items():
            cells = [_cell(found[peer]) if peer in found else "" for peer in peers]
            others: list[Text] = [_published(kernels[0].op, shape)] if beside else []
            every = list(found.values())
            line: list[Text] = [*([code(title)] if ops else []), titled(shape), _ours(every), *cells[: len(first)]]
            rows.append([*line, *others, *cells[len(first) :], control(every), _roofline(every)])
    return Table(head, rows, caption)


def _cell(kernel: Kernel) -> Text:
    """Return the peer's time and the ratio, or what stands in their place."""
    if kernel.row.conformance == WRONG:
        return grade(WRONG)
    if not kernel.shown or kernel.row.ratio is None or kernel.row.theirs is None:
        return strong(kernel.row.outcome)
    ratio = kernel.row.ratio
    return f"{short(kernel.row.theirs.median_us)} µs, {short(ratio.value)}× [{short(ratio.low)}–{short(ratio.high)}]"


def _ours(kernels: Sequence[Kernel]) -> str:
    """Return our median; it is measured once in the conventions of each peer, so it is a range."""
    found = [kernel.row.ours.median_us for kernel in kernels if kernel.shown and kernel.row.ours]
    return span(found) if found else NONE


def _roofline(kernels: Sequence[Kernel]) -> str:
    """Return the greatest share of the machine's limit that we reach, and what the limit is."""
    shares = []
    for kernel in kernels:
        limit = kernel.bound
        if limit and kernel.shown and kernel.row.ours:
            shares.append((limit.microseconds / kernel.row.ours.median_us, limit.limited_by))
    if not shares:
        return ""
    share, limited_by = max(shares)
    return f"{100 * share:.0f}% ({limited_by})"


def _published(op: str, shape: str) -> str:
    return "; ".join(
        f"{times.source}: {', '.join(f'{side} {us:,g}' for side, us in times.medians.items())}"
        for times in published.kernels(op, dimensions(shape))
    )


def published_sources() -> Items:
    """Return where the published figures come from."""
    return Items(
        [
            f"{source.letter}, published by others and not measured here: {source.document}; {source.machine}; {source.note}."
            for source in published.SOURCES
        ]
    )


def of_a_step(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Return the rows that are not toys: a real vocabulary, or as many numbers as a step has."""
    logits = step_share.WORK.get(kernels[0].op) in step_share.ROWS
    return [
        kernel
        for kernel in kernels
        if (
            max(dimensions(kernel.row.shape), default=0) >= step_share.VOCABULARY
            if logits
            else _large(kernel.row.shape)
        )
    ]


def _large(shape: str) -> bool:
    return len(dimensions(shape)) < 2 or size(shape) >= SMALL


def shares(recorded: Recorded) -> list[Part]:
    """Return what each op saves in a published step and in one of our own, and whether that matters."""
    theirs, own = step_share.published_step(), step_share.reference_step(recorded)
    rows: list[list[Text]] = []
    for op, kernels in recorded.by_op.items():
        found = step_share.share(kernels, theirs)
        if found is None:
            continue
        here = step_share.share(kernels, own[0]) if own else None
        saved = " to ".join(dict.fromkeys((seconds(found.least_s), seconds(found.most_s))))
        calls = "1 call" if found.calls == 1 else f"{short(found.calls)} calls"
        rows.append(
            [
                code(op),
                f"{calls} of {titled(found.shape)}",
                saved,
                found.words,
                here.words if here else NONE,
                found.meaning,
            ]
        )
    if not rows:
        return []
    head = ["op", "in a step", "saved", f"of a {theirs.name}", "of our step", "so"]
    parts: list[Part] = [Table(head, rows, "What a ratio means for a training step")]
    return [*parts, Items(list(_assumptions(theirs, own)))]


def _assumptions(step: step_share.Step, own: tuple[step_share.Step, Trainer] | None) -> Iterator[Text]:
    parts = ", ".join(f"{name} {low:g}–{high:g} s" for name, (low, high) in published.STEP.parts.items())
    yield (
        f"{step.name}, published by the rlox documentation (A), not measured here: {parts}. The shares are of its shortest, "
        f"{step.seconds:.3g} s, so they are the greatest. Its batch is not named; {step_share.COMPLETIONS} completions of "
        f"{step_share.TOKENS} tokens and two forward passes are our assumption. Packing and loss are one call."
    )
    if own:
        ours = f"{step_share.step_words(own[1], own[1].row.step_s)} ({NONE}: its vocabulary is a toy's)"
    else:
        ours = "no recorded run has a step of the reference trainer"
    yield (
        f"Our step: {ours}. Saved is as if the peer's op ran on this processor in that step. Where logits are on an accelerator, they are "
        "sampled and scored there, and the ratios over the vocabulary say nothing about that."
    )
