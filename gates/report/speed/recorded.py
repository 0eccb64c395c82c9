"""Of all recorded runs the newest measurement of each row, and which of them may be shown as a speed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gates.report.speed.numbers import dimensions
from gates.results.speed_file import Bound, SpeedResults, bound
from gates.results.speed_records import ComparisonRecord, SpeedRecord, TrainerRecord

WRONG = "wrong"
INSTRUCTION_SETS = ("scalar", "sse", "neon", "avx2", "avx512")  # a row on the best one of its machine counts
REFERENCE = "reference"
FIRST = ("rlox", "trl", "torch", "NumPy")  # as in the tables of the rlox documentation
PLAIN = ("NumPy", "torch", "MLX")  # the plain formula in it


@dataclass(frozen=True, slots=True)
class Kernel:
    """One op at one shape against one peer, and the run that it is of."""

    row: SpeedRecord
    run: SpeedResults

    @property
    def title(self) -> str:
        """Return the op with its variant."""
        return f"{self.row.op} {self.row.variant}".strip()

    @property
    def op(self) -> str:
        """Return the op's name without a dtype or the like behind it."""
        return self.row.op.split(maxsplit=1)[0]

    @property
    def bound(self) -> Bound | None:
        """Return the least time that it can take on its machine."""
        return bound(self.row, self.run.rooflines)

    @property
    def shown(self) -> bool:
        """Return whether it has a speed to show: it was timed, and conformance does not call the peer's op wrong."""
        return self.row.outcome == "timed" and self.row.conformance != WRONG and self.row.ours is not None


@dataclass(frozen=True, slots=True)
class Trainer:
    """One trainer on one workload, and the run that it is of."""

    row: TrainerRecord
    run: SpeedResults

    @property
    def shown(self) -> bool:
        """Return whether it has a speed to show."""
        return self.row.outcome == "timed" and self.row.conformance != WRONG


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the reports are of."""

    runs: Sequence[SpeedResults]
    kernels: Sequence[Kernel]
    trainers: Sequence[Trainer]
    comparisons: Sequence[ComparisonRecord]
    older: int  # rows that a newer or a better instruction set's measurement replaces

    @property
    def by_op(self) -> dict[str, list[Kernel]]:
        """Return the kernels by op, whatever their conventions, small shapes first."""
        found: dict[str, list[Kernel]] = defaultdict(list)
        for kernel in self.kernels:
            found[kernel.op].append(kernel)
        return {op: sorted(rows, key=_order) for op, rows in found.items()}

    @property
    def ops(self) -> dict[str, list[Kernel]]:
        """Return the kernels by op, small shapes first.

        Where variants are what tells peers apart, since each has conventions of its own, they are one op. Where one peer
        has several variants, each is an op by itself.
        """
        by_op: dict[str, dict[str, list[Kernel]]] = defaultdict(lambda: defaultdict(list))
        for kernel in self.kernels:
            by_op[kernel.row.op][kernel.row.variant].append(kernel)
        found: dict[str, list[Kernel]] = {}
        for op, variants in by_op.items():
            cells = [(kernel.row.shape, kernel.row.peer) for rows in variants.values() for kernel in rows]
            if len(set(cells)) == len(cells):
                rows = [kernel for rows in variants.values() for kernel in rows]
                found[f"{op} {_common(list(variants))}".strip()] = rows
            else:
                found |= {f"{op} {variant}".strip(): rows for variant, rows in variants.items()}
        return {title: sorted(rows, key=_order) for title, rows in found.items()}


def _common(variants: Sequence[str]) -> str:
    """Return the conventions that all variants begin with."""
    shared = []
    for parts in zip(*(variant.split(", ") for variant in variants), strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return ", ".join(shared)


def _order(kernel: Kernel) -> tuple[tuple[int, ...], int, str]:
    """Sort by shape and then by peer: those of the rlox documentation's tables first, then by name."""
    return dimensions(kernel.row.shape), *peer_order(kernel.row.peer)


def peer_order(peer: str) -> tuple[int, str]:
    """Return what to sort peers by."""
    name = base(peer)
    return FIRST.index(name) if name in FIRST else len(FIRST), peer.lower()


def base(peer: str) -> str:
    """Return a peer's name without its variant, such as `verl` of `verl@vectorized`."""
    return peer.partition("@")[0]


def gather(runs: Iterable[SpeedResults]) -> Recorded:
    """Return the newest measurement of each row; a smoke test counts only where there is nothing else."""
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
    """Return the newest row of the newest machine, of those with its best instruction set and its most threads."""
    machine = candidates[-1].run.header.machine.cpu
    here = [kernel for kernel in candidates if kernel.run.header.machine.cpu == machine]
    quick = all(kernel.run.header.quick for kernel in here)
    here = [kernel for kernel in here if quick or not kernel.run.header.quick]
    best = max((_rank(kernel.row.isa), kernel.row.threads) for kernel in here)
    return [kernel for kernel in here if (_rank(kernel.row.isa), kernel.row.threads) == best][-1]


def _rank(isa: str) -> int:
    """Return the place of an instruction set; a row without a speed names none and is as good as the best."""
    if not isa:
        return len(INSTRUCTION_SETS)
    return max((n for n, name in enumerate(INSTRUCTION_SETS) if isa.startswith(name)), default=-1)
