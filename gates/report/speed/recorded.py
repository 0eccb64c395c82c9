"""Of all recorded runs the newest measurement of each row, and which of them may be shown as a speed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gates.report.speed.numbers import size
from gates.results.speed_file import SpeedResults
from gates.results.speed_records import ComparisonRecord, SpeedRecord, TrainerRecord

WRONG = "wrong"
INSTRUCTION_SETS = ("scalar", "sse", "neon", "avx2", "avx512")  # a row on the best one of its machine counts
REFERENCE = "reference"


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
    def ops(self) -> dict[str, list[Kernel]]:
        """Return the kernels by op and variant, small shapes first."""
        found: dict[str, list[Kernel]] = defaultdict(list)
        for kernel in self.kernels:
            found[kernel.title].append(kernel)
        return {title: sorted(rows, key=lambda k: size(k.row.shape)) for title, rows in found.items()}


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
