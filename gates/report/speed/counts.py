"""How many timings there are, whom they favour, and how many rows have no time: each total is the sum of its parts."""

from __future__ import annotations

from collections.abc import Sequence

from gates.report.speed import remarks
from gates.report.speed.inline import Text, code, joined
from gates.report.speed.numbers import interval
from gates.report.speed.recorded import PLAIN, REFERENCE, Kernel, Recorded, base
from gates.results.speed_records import Interval

NOISE = 0.1  # a control further from 1 makes a row noisy
MOST_SLOWER = 6  # rows with a faster peer that are named


def counts(recorded: Recorded) -> list[Text]:
    """Return a sentence each on kernels, trainers and rows without a time, as far as there are any."""
    return [*of_kernels(recorded), *of_trainers(recorded), *untimed(recorded)]


def untimed(recorded: Recorded) -> list[Text]:
    """Return how many rows have no time, by grade or outcome."""
    total = sum(not row.shown for rows in (recorded.kernels, recorded.trainers) for row in rows)
    rows = f"{total} {'row' if total == 1 else 'rows'}"
    return [["Without a time: ", rows, ", ", remarks.untimed_counts(recorded), "."]] if total else []


def of_kernels(recorded: Recorded) -> list[Text]:
    """Return whom the timings of kernels favour, and how many are noisy."""
    rows = [(kernel, kernel.row.ratio) for kernel in recorded.kernels if kernel.shown and kernel.row.ratio]
    if not rows:
        return []
    faster, slower, undecided = _sides([ratio for _, ratio in rows])
    timings = f"{len(rows)} {'timing' if len(rows) == 1 else 'timings'}"
    if faster == len(rows):
        sides = f"rlkernels is faster in all {timings}" if faster > 1 else "rlkernels is faster in the only timing"
    else:
        sides = f"of {timings}, rlkernels is faster in {faster} and the peer in {slower}"
        sides += f"; in {undecided} the 95% interval includes 1" if undecided else ""
    line: list[Text] = [f"Kernels, against {_peers([kernel for kernel, _ in rows])}: {sides}."]
    if slower:
        named = [_label(kernel) for kernel, ratio in rows if ratio.high < 1]
        more = f" and {len(named) - MOST_SLOWER} more" if len(named) > MOST_SLOWER else ""
        line += [" The peer is faster in ", joined(named[:MOST_SLOWER], ", "), f"{more}."]
    if noisy := sum(_noisy(kernel) for kernel, _ in rows):
        line.append(
            f" {noisy} of the {len(rows)} {'is' if noisy == 1 else 'are'} noisy: rlkernels timed against itself differs by more "
            f"than {100 * NOISE:g}%, or other processes used more than {remarks.BUSY_PERCENT:g}% of the CPU."
        )
    return [line]


def of_trainers(recorded: Recorded) -> list[Text]:
    """Return how many timings of trainers are slower than the reference trainer, and how many faster."""
    rows = [trainer.row for trainer in recorded.trainers if trainer.shown and trainer.row.target != REFERENCE]
    ratios = [row.ratio for row in rows if row.ratio]
    if not ratios:
        return []
    targets = len({row.target for row in rows if row.ratio})
    faster, slower, undecided = _sides([Interval(value=1 / r.value, low=1 / r.high, high=1 / r.low) for r in ratios])
    named = f"{targets} {'trainer' if targets == 1 else 'trainers'}"
    timings = f"{len(ratios)} {'timing' if len(ratios) == 1 else 'timings'}"
    sides = f"slower in {slower}, faster in {faster}" + (
        f"; in {undecided} the 95% interval includes 1" if undecided else ""
    )
    return [f"Trainers, {timings} of {named} against the reference trainer: {sides}."]


def _sides(ratios: Sequence[Interval]) -> tuple[int, int, int]:
    """Return how many ratios are above 1, below 1, and neither; they add up to all of them."""
    above, below = sum(ratio.low > 1 for ratio in ratios), sum(ratio.high < 1 for ratio in ratios)
    return above, below, len(ratios) - above - below


def _noisy(kernel: Kernel) -> bool:
    """Return whether the noise may be as large as the effect."""
    control, busy = kernel.row.control, kernel.row.busy_percent
    return (control is not None and abs(control.value - 1) > NOISE) or (busy or 0.0) > remarks.BUSY_PERCENT


def _peers(kernels: Sequence[Kernel]) -> str:
    """Return the number of libraries, and the frameworks with a plain implementation of the formula."""
    names = {base(kernel.row.peer) for kernel in kernels}
    libraries, plain = len(names - set(PLAIN)), [name for name in PLAIN if name in names]
    kinds = [f"{libraries} {'library' if libraries == 1 else 'libraries'}"] if libraries else []
    kinds += [f"plain implementations in {', '.join(plain)}"] if plain else []
    return " and ".join(kinds)


def _label(kernel: Kernel) -> Text:
    ratio = f" {interval(kernel.row.ratio)}" if kernel.row.ratio else ""
    return [kernel.row.peer, " ", code(kernel.title), f" {kernel.row.shape}{ratio}"]
