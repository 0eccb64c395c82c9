"""The tables of kernels: ranges by peer and op, ratios at each shape with published ones, and time saved in a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gates.report.speed import published, step_share
from gates.report.speed.inline import Items, Part, Table, Text, code, grade, joined, strong
from gates.report.speed.numbers import (
    dimensions,
    intervals,
    seconds,
    short,
    size,
    span,
    titled,
)
from gates.report.speed.recorded import FIRST, WRONG, Kernel, Recorded, Trainer, base, peer_order

NONE = "–"
SMALL = 4096  # elements of an array; a training step has at least as many


def summary(recorded: Recorded, *, step: bool = True) -> Table | None:
    """Return a row for each peer and a column for each op: the range of ratios over shapes and conventions.

    The last rows are the control of the same measurements and, with `step`, the largest saving in a training step.
    """
    ops = {op: timed for op, kernels in recorded.by_op.items() if (timed := [k for k in kernels if k.row.peer])}
    if not ops:
        return None
    peers = sorted({kernel.row.peer for kernels in ops.values() for kernel in kernels}, key=peer_order)
    rows: list[list[Text]] = [
        [peer, *(_range([k for k in kernels if k.row.peer == peer]) for kernels in ops.values())] for peer in peers
    ]
    rows.append([strong("control: rlkernels against itself"), *(control(kernels) for kernels in ops.values())])
    if step:
        training_step = step_share.published_step()
        savings = [step_share.share(kernels, training_step) for kernels in ops.values()]
        cells = [saving.largest if saving else NONE for saving in savings]
        rows.append([strong(f"saved in a {training_step.name} of {seconds(training_step.seconds)}, at most"), *cells])
    return Table(["times faster than", *map(code, ops)], rows, "Times faster than each peer")


def against(kernels: Sequence[Kernel]) -> Text:
    """Return each peer of an op with the range of its ratios, or with the outcomes that replace them."""
    peers = sorted({kernel.row.peer for kernel in kernels if kernel.row.peer}, key=peer_order)
    return joined([[f"{peer} ", _range([k for k in kernels if k.row.peer == peer])] for peer in peers])


def _range(kernels: Sequence[Kernel]) -> Text:
    """Return the range of the ratios with the outermost ends of their intervals, and the outcomes of rows without a time."""
    ratios = [kernel.row.ratio for kernel in kernels if kernel.shown and kernel.row.ratio]
    outcomes = dict.fromkeys(WRONG if k.row.conformance == WRONG else k.row.outcome for k in kernels if not k.shown)
    marks: list[Text] = [grade(name) if name == WRONG else strong(name) for name in outcomes]
    return joined([*([intervals(ratios)] if ratios else []), *marks], ", ")


def control(kernels: Sequence[Kernel]) -> Text:
    """Return the range of the ratios of rlkernels to itself in the same pairs."""
    controls = [kernel.row.control for kernel in kernels if kernel.shown and kernel.row.control]
    return intervals(controls) if controls else NONE


def table(
    chosen: Sequence[tuple[str, Sequence[Kernel]]],
    caption: str,
    *,
    op_column: bool = True,
    with_published: bool = False,
) -> Table:
    """Return a table with a row for each op and shape and a column for each peer.

    Args:
        chosen: title and kernels of each op.
        caption: of the table.
        op_column: begin each row with the op.
        with_published: after the published peers, add a column of the times that others published for the same cells.
    """
    peers = sorted({k.row.peer for _, kernels in chosen for k in kernels if k.row.peer}, key=peer_order)
    first = [peer for peer in peers if base(peer) in FIRST] if with_published else peers
    head: list[Text] = [*(["op"] if op_column else []), "shape", "rlkernels, µs", *first]
    head += [*(["published elsewhere, µs"] if with_published else []), *peers[len(first) :], "control", "roofline"]
    rows = []
    for title, kernels in chosen:
        shapes: dict[str, dict[str, Kernel]] = {}
        for kernel in kernels:
            shapes.setdefault(kernel.row.shape, {})[kernel.row.peer] = kernel
        for shape, by_peer in shapes.items():
            cells = [_cell(by_peer[peer]) if peer in by_peer else "" for peer in peers]
            literature: list[Text] = [_published(kernels[0].op, shape)] if with_published else []
            measured = list(by_peer.values())
            start: list[Text] = [*([code(title)] if op_column else []), titled(shape), _ours(measured)]
            start += cells[: len(first)]
            rows.append([*start, *literature, *cells[len(first) :], control(measured), _roofline(measured)])
    return Table(head, rows, caption)


def _cell(kernel: Kernel) -> Text:
    """Return the peer's time and the ratio, or the outcome that replaces them."""
    if kernel.row.conformance == WRONG:
        return grade(WRONG)
    if not kernel.shown or kernel.row.ratio is None or kernel.row.theirs is None:
        return strong(kernel.row.outcome)
    ratio = kernel.row.ratio
    return f"{short(kernel.row.theirs.median_us)} µs, {short(ratio.value)}× [{short(ratio.low)}–{short(ratio.high)}]"


def _ours(kernels: Sequence[Kernel]) -> str:
    """Return the range of our medians: we are timed once with the conventions of each peer."""
    medians = [kernel.row.ours.median_us for kernel in kernels if kernel.shown and kernel.row.ours]
    return span(medians) if medians else NONE


def _roofline(kernels: Sequence[Kernel]) -> str:
    """Return the largest share of the roofline that rlkernels reaches, and the limiting resource."""
    reached = []
    for kernel in kernels:
        limit = kernel.bound
        if limit and kernel.shown and kernel.row.ours:
            reached.append((limit.microseconds / kernel.row.ours.median_us, limit.limited_by))
    if not reached:
        return ""
    share, limited_by = max(reached)
    return f"{100 * share:.0f}% ({limited_by})"


def _published(op: str, shape: str) -> str:
    return "; ".join(
        f"{times.source}: {', '.join(f'{side} {us:,g}' for side, us in times.medians.items())}"
        for times in published.kernels(op, dimensions(shape))
    )


def published_sources() -> Items:
    """Return the sources of the published times."""
    return Items(
        [
            f"{source.letter}, published elsewhere and not measured here: {source.document}; {source.machine}; {source.note}."
            for source in published.SOURCES
        ]
    )


def step_sized(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Return the rows with the shapes of a training step: a real vocabulary, or arrays that are large enough."""
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
    """Return the time that each op saves in a published step and in a step of the reference trainer."""
    published_step, own = step_share.published_step(), step_share.reference_step(recorded)
    rows: list[list[Text]] = []
    for op, kernels in recorded.by_op.items():
        saving = step_share.share(kernels, published_step)
        if saving is None:
            continue
        own_saving = step_share.share(kernels, own[0]) if own else None
        saved = " to ".join(dict.fromkeys((seconds(saving.least_s), seconds(saving.most_s))))
        calls = "1 call" if saving.calls == 1 else f"{short(saving.calls)} calls"
        rows.append(
            [
                code(op),
                f"{calls} of {titled(saving.shape)}",
                saved,
                saving.label,
                own_saving.label if own_saving else NONE,
                saving.meaning,
            ]
        )
    if not rows:
        return []
    head = [
        "op",
        "calls in a step",
        "time saved, fastest to slowest peer",
        f"share of a {published_step.name} of {seconds(published_step.seconds)}",
        f"share of a step of the reference trainer{f' of {seconds(own[0].seconds)}' if own else ''}",
        "effect",
    ]
    parts: list[Part] = [Table(head, rows, "Time saved in a training step")]
    return [*parts, Items(list(_assumptions(published_step, own)))]


def _assumptions(step: step_share.Step, own: tuple[step_share.Step, Trainer] | None) -> Iterator[Text]:
    parts = ", ".join(f"{name} {low:g}–{high:g} s" for name, (low, high) in published.STEP.parts.items())
    yield (
        "Time saved is the peer's time minus the time of rlkernels, over all calls of a step. Both are times on this CPU. Where "
        "the logits are on an accelerator, they are sampled and scored there: the rows over the vocabulary do not apply."
    )
    if own:
        description = (
            f"{step_share.step_label(own[1], own[1].row.step_s)} ({NONE}: its vocabulary is too small to compare)"
        )
    else:
        description = "not recorded"
    yield (
        f"{step.name}: published in the rlox documentation (A), not measured here: {parts}. We take the shortest such step, "
        f"{seconds(step.seconds)}, which makes every share as large as possible. The source does not state a batch size; we "
        f"assume {step_share.COMPLETIONS} completions of {step_share.TOKENS} tokens, two forward passes, and one call each of "
        f"packing and loss. Step of the reference trainer: {description}."
    )
