"""Collect the newest measurement of each row from all recorded runs, and decide which rows may show a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gates.report.speed.numbers import dimensions
from gates.results.speed_file import Bound, SpeedResults, bound
from gates.results.speed_records import ComparisonRecord, SpeedRecord, TrainerRecord

WRONG = "wrong"
INSTRUCTION_SETS = ("scalar", "sse", "neon", "avx2", "avx512")  # ascending; rows on the best one of a machine count
REFERENCE = "reference"
FIRST = ("rlox", "trl", "torch", "NumPy")  # columns in the order of the tables of the rlox documentation
PLAIN = ("NumPy", "torch", "MLX")  # peers that are plain implementations of the formula


@dataclass(frozen=True, slots=True)
class Kernel:
    """One op at one shape against one peer, and its run."""

    row: SpeedRecord
    run: SpeedResults

    @property
    def title(self) -> str:
        """Return the op and its variant."""
        return f"{self.row.op} {self.row.variant}".strip()

    @property
    def op(self) -> str:
        """Return the op's name without qualifiers such as a dtype."""
        return self.row.op.split(maxsplit=1)[0]

    @property
    def bound(self) -> Bound | None:
        """Return the roofline: the least possible time on this machine."""
        return bound(self.row, self.run.rooflines)

    @property
    def shown(self) -> bool:
        """Return whether the row may show a time: it was measured, and conformance does not grade the peer's op wrong."""
        return self.row.outcome == "timed" and self.row.conformance != WRONG and self.row.ours is not None


@dataclass(frozen=True, slots=True)
class Trainer:
    """One trainer on one workload, and its run."""

    row: TrainerRecord
    run: SpeedResults

    @property
    def shown(self) -> bool:
        """Return whether the row may show a time."""
        return self.row.outcome == "timed" and self.row.conformance != WRONG


@dataclass(frozen=True, slots=True)
class Recorded:
    """The content of the reports: all runs, and the newest measurement of each row."""

    runs: Sequence[SpeedResults]
    kernels: Sequence[Kernel]
    trainers: Sequence[Trainer]
    comparisons: Sequence[ComparisonRecord]
    older: int  # rows replaced by a newer measurement or by one on a better instruction set

    @property
    def by_op(self) -> dict[str, list[Kernel]]:
        """Return the kernels by op, with all conventions together, small shapes first."""
        by_op: dict[str, list[Kernel]] = defaultdict(list)
        for kernel in self.kernels:
            by_op[kernel.op].append(kernel)
        return {op: sorted(rows, key=_order) for op, rows in by_op.items()}

    @property
    def ops(self) -> dict[str, list[Kernel]]:
        """Return the kernels by title, small shapes first.

        If each peer has a single variant, its own conventions, all variants share the title of the op. If a peer has several
        variants, each variant has its own title.
        """
        by_op: dict[str, dict[str, list[Kernel]]] = defaultdict(lambda: defaultdict(list))
        for kernel in self.kernels:
            by_op[kernel.row.op][kernel.row.variant].append(kernel)
        by_title: dict[str, list[Kernel]] = {}
        for op, variants in by_op.items():
            cells = [(kernel.row.shape, kernel.row.peer) for rows in variants.values() for kernel in rows]
            if len(set(cells)) == len(cells):
                rows = [kernel for rows in variants.values() for kernel in rows]
                by_title[f"{op} {_common(list(variants))}".strip()] = rows
            else:
                by_title |= {f"{op} {variant}".strip(): rows for variant, rows in variants.items()}
        return {title: sorted(rows, key=_order) for title, rows in by_title.items()}


def _common(variants: Sequence[str]) -> str:
    """Return the leading conventions that all variants share."""
    shared = []
    for parts in zip(*(variant.split(", ") for variant in variants), strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return ", ".join(shared)


def _order(kernel: Kernel) -> tuple[tuple[int, ...], int, str]:
    """Return the sort key of a row: its shape, then its peer."""
    return dimensions(kernel.row.shape), *peer_order(kernel.row.peer)


def peer_order(peer: str) -> tuple[int, str]:
    """Return the sort key of a peer: those of the rlox documentation's tables first, then by name."""
    name = base(peer)
    return FIRST.index(name) if name in FIRST else len(FIRST), peer.lower()


def base(peer: str) -> str:
    """Return a peer's name without its variant: `verl` for `verl@vectorized`."""
    return peer.partition("@")[0]


def gather(runs: Iterable[SpeedResults]) -> Recorded:
    """Return the newest measurement of each row; a smoke test counts only if the row has no other measurement."""
    ordered = sorted(runs, key=lambda run: (not run.header.quick, run.header.started, run.path.name))
    kernels: dict[tuple[str, ...], list[Kernel]] = defaultdict(list)
    trainers: dict[tuple[str, ...], Trainer] = {}
    total = 0
    for run in ordered:
        for row in run.rows:
            kernels[row.op, row.variant, row.shape, row.peer].append(Kernel(row, run))
        for trainer in run.trainers:
            trainers[trainer.target, trainer.workload, trainer.model, trainer.entry] = Trainer(trainer, run)
        total += len(run.rows) + len(run.trainers)
    chosen = [_best(candidates) for candidates in kernels.values()]
    comparisons = next((run.comparisons for run in reversed(ordered) if run.comparisons), [])
    return Recorded(ordered, chosen, list(trainers.values()), comparisons, total - len(chosen) - len(trainers))


def _best(candidates: Sequence[Kernel]) -> Kernel:
    """Return the newest row on the newest machine with its best instruction set and its most threads."""
    machine = candidates[-1].run.header.machine.cpu
    local = [kernel for kernel in candidates if kernel.run.header.machine.cpu == machine]
    quick = all(kernel.run.header.quick for kernel in local)
    local = [kernel for kernel in local if quick or not kernel.run.header.quick]
    best = max((_rank(kernel.row.isa), kernel.row.threads) for kernel in local)
    return [kernel for kernel in local if (_rank(kernel.row.isa), kernel.row.threads) == best][-1]


def _rank(isa: str) -> int:
    """Return the rank of an instruction set; a row without a time names none and ranks above the best."""
    if not isa:
        return len(INSTRUCTION_SETS)
    return max((n for n, name in enumerate(INSTRUCTION_SETS) if isa.startswith(name)), default=-1)
