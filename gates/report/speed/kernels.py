"""The tables of kernels: the summary of each op, the ratios at each shape, and what was published of the same cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from gates.report.speed import published, step_share
from gates.report.speed.inline import Items, Part, Table, Text, code, grade, joined, strong
from gates.report.speed.numbers import dimensions, interval, intervals, percent, seconds, short, span, titled
from gates.report.speed.recorded import WRONG, Kernel, Recorded, Trainer
from gates.results.speed_file import bound

NOTHING_TIMED = "–"


def summary(recorded: Recorded) -> Table | None:
    """Return for each op the range of its ratios over the shapes against each peer, the control, and the step share."""
    step = step_share.published_step()
    rows = []
    for title, kernels in recorded.ops.items():
        if not any(kernel.row.peer for kernel in kernels):
            continue
        share = step_share.share(kernels, step)
        meaning = f"at most {percent(share.most)}: {share.meaning}" if share else ""
        rows.append([code(title), against(kernels), control(kernels), meaning])
    head = ["op", "times faster than", "control", f"saved of a {step.name}"]
    return Table(head, rows, "Times faster than each peer") if rows else None


def against(kernels: Sequence[Kernel]) -> Text:
    """Return each peer of an op with the range of its ratios and their intervals, or why there is none."""
    peers: dict[str, list[Kernel]] = {}
    for kernel in kernels:
        if kernel.row.peer:
            peers.setdefault(kernel.row.peer, []).append(kernel)
    return joined([[f"{peer} ", _range(found)] for peer, found in peers.items()])


def _range(kernels: Sequence[Kernel]) -> Text:
    ratios = [kernel.row.ratio for kernel in kernels if kernel.shown and kernel.row.ratio]
    if ratios:
        return intervals(ratios) if len(ratios) > 1 else interval(ratios[0])
    return joined([mark for mark, _ in reasons(kernels)], ", ")


def reasons(kernels: Sequence[Kernel]) -> list[tuple[Text, int]]:
    """Return what stands in the place of a speed, and how often."""
    counts = Counter(_place(kernel) for kernel in kernels if not kernel.shown)
    return [(grade(WRONG) if name == WRONG else strong(name), count) for name, count in counts.items()]


def _place(kernel: Kernel) -> str:
    return WRONG if kernel.row.conformance == WRONG else kernel.row.outcome


def control(kernels: Sequence[Kernel]) -> Text:
    """Return the range of our own time over our own time, in the same pairs."""
    found = [kernel.row.control for kernel in kernels if kernel.shown and kernel.row.control]
    return intervals(found) if len(found) > 1 else interval(found[0]) if found else NOTHING_TIMED


def table(
    chosen: Sequence[tuple[str, Sequence[Kernel]]], caption: str, *, ops: bool = True, beside: bool = False
) -> Table:
    """Return a row for each op and shape, a cell for each peer.

    Args:
        chosen: title and kernels of each op.
        caption: of the table.
        ops: begin each row with the op.
        beside: add what was published of the same cells.
    """
    peers = list(dict.fromkeys(kernel.row.peer for _, kernels in chosen for kernel in kernels if kernel.row.peer))
    sparse = len(peers) > 5
    columns = ["against"] if sparse else peers
    rows = []
    for title, kernels in chosen:
        shapes: dict[str, dict[str, Kernel]] = {}
        for kernel in kernels:
            shapes.setdefault(kernel.row.shape, {})[kernel.row.peer] = kernel
        for shape, found in shapes.items():
            named = [code(title)] if ops else []
            cells = [_cell(found[peer]) if peer in found else "" for peer in peers]
            if sparse:
                cells = [joined([[f"{p} ", c] for p, c in zip(peers, cells, strict=True) if c])]
            line: list[Text] = [*named, titled(shape), _ours(list(found.values())), *cells]
            line += [control(list(found.values())), _roofline(list(found.values()))]
            rows.append([*line, _published(kernels[0].op, shape)] if beside else line)
    head = [*(["op"] if ops else []), "shape", "ours µs", *columns, "control", "roofline"]
    return Table([*head, "published elsewhere, µs"] if beside else head, rows, caption)


def _cell(kernel: Kernel) -> Text:
    """Return the peer's time and the ratio, or what stands in their place."""
    if kernel.row.conformance == WRONG:
        return grade(WRONG)
    if not kernel.shown or kernel.row.ratio is None or kernel.row.theirs is None:
        return strong(kernel.row.outcome)
    return f"{short(kernel.row.theirs.median_us)}: {interval(kernel.row.ratio)}×"


def _ours(kernels: Sequence[Kernel]) -> str:
    """Return our median; against several peers it is measured several times, so it is a range."""
    found = [kernel.row.ours.median_us for kernel in kernels if kernel.shown and kernel.row.ours]
    return span(found) if found else NOTHING_TIMED


def _roofline(kernels: Sequence[Kernel]) -> str:
    """Return which share of the machine's limit our quickest time reaches, and what the limit is."""
    shares = []
    for kernel in kernels:
        limit = bound(kernel.row, kernel.run.rooflines)
        if limit and kernel.shown and kernel.row.ours:
            shares.append((limit.microseconds / kernel.row.ours.median_us, limit.limited_by))
    if not shares:
        return ""
    share, limited_by = max(shares)
    return f"{100 * share:.0f}% ({limited_by})"


def _published(op: str, shape: str) -> str:
    found = published.kernels(op, dimensions(shape))
    return "; ".join(
        f"{times.source}: {', '.join(f'{side} {short(us)}' for side, us in times.medians.items())}" for times in found
    )


def published_sources(*letters: str) -> Items:
    """Return where the published figures come from."""
    return Items(
        [
            f"{source.letter}, published by others and not measured here: {source.document}; {source.machine}; {source.note}."
            for source in published.SOURCES
            if source.letter in letters
        ]
    )


def shares(recorded: Recorded) -> list[Part]:
    """Return what each op saves in a published step and in one of our own, and whether that matters."""
    theirs, own = step_share.published_step(), step_share.reference_step(recorded)
    rows: list[list[Text]] = []
    for title, kernels in recorded.ops.items():
        found = step_share.share(kernels, theirs)
        if found is None:
            continue
        here = step_share.share(kernels, own[0]) if own else None
        saved = "–".join(dict.fromkeys((seconds(found.least_s), seconds(found.most_s))))
        calls = "1 call" if found.calls == 1 else f"{short(found.calls)} calls"
        rows.append(
            [
                code(title),
                f"{calls} of {titled(found.shape)}",
                saved,
                found.words,
                here.words if here else NOTHING_TIMED,
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
        f"{step_share.TOKENS} tokens and two forward passes are our assumption."
    )
    if own:
        yield f"Our step: {step_share.step_words(own[1], own[1].row.step_s)}. “–”: its vocabulary is a toy's, or the op is not in it."
    else:
        yield "Our step: no recorded run has a step of the reference trainer."
    yield (
        "“Saved” is as if the peer's op ran on this processor in that step. Where logits are on an accelerator, they are "
        "sampled and scored there, and the ratios of the vocabulary say nothing about that."
    )
