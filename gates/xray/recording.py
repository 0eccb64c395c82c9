"""Load a recording: a folder with one folder for each process, whose ranks are joined."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gates.errors import ConfigurationError
from gates.xray import process, ranks
from gates.xray.documents import Event
from gates.xray.process import EVENTS, Process
from gates.xray.ranks import Update


@dataclass(frozen=True, slots=True)
class Recording:
    """The updates that a script's processes recorded together.

    Attributes:
        folder: that was read.
        framework: "torch 2.9.0".
        world_size: ranks that were joined.
        updates: in their order.
        events: of rank 0, and what the others noted and sampled.
        cannot: why updates could not be recorded, a sentence each.
        problems: files that a kill has cut, a sentence each.
        made: updates that the script made, None where it was ended before it could say.
    """

    folder: Path
    framework: str
    world_size: int
    updates: tuple[Update, ...]
    events: tuple[Event, ...]
    cannot: tuple[str, ...]
    problems: tuple[str, ...]
    made: int | None

    def of(self, name: str, update: int | None = None) -> list[Event]:
        """Return the events of one kind; with `update`, those that came before it and after the update before."""
        return [
            event
            for event in self.events
            if event.event == name and (update is None or event.get("update", 0) == update - 1)
        ]


def load(folder: Path) -> Recording:
    """Read and check a recording; a folder of one process is one too.

    Raises:
        ConfigurationError: there is none, a file contradicts the format, or the processes contradict each other.
    """
    processes = [process.load(path) for path in _folders(folder)]
    by_rank = _by_rank(folder, processes)
    first = by_rank[min(by_rank)]
    problems = [sentence for part in by_rank.values() for sentence in part.cut]
    numbers = sorted(set.intersection(*(set(part.updates) for part in by_rank.values())))
    problems += [
        f"update {number} is left out: {part.folder} has it, another rank has not"
        for part in by_rank.values()
        for number in sorted(set(part.updates) - set(numbers))
    ]
    if not numbers and problems:
        raise ConfigurationError(f"{'; '.join(problems)}; no whole update is left: record the script again")
    ends = first.of("end")
    starts = first.of("start")
    return Recording(
        folder=folder,
        framework=str(starts[0].get("framework", "")) if starts else "",
        world_size=len(by_rank),
        updates=tuple(ranks.join([by_rank[rank].updates[number] for rank in sorted(by_rank)]) for number in numbers),
        events=(
            *first.events,
            *(
                event
                for rank in sorted(by_rank)[1:]
                for name in ("note", "sampled")
                for event in by_rank[rank].of(name)
            ),
        ),
        cannot=tuple(dict.fromkeys(_cannot(by_rank.values()))),
        problems=tuple(problems),
        made=int(ends[-1].get("updates", 0)) if ends else None,
    )


def _folders(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise ConfigurationError(f"{folder} is no folder: name the folder of a recording")
    if (folder / EVENTS).is_file():
        return [folder]
    folders = sorted(path.parent for path in folder.glob(f"*/{EVENTS}"))
    if not folders:
        raise ConfigurationError(
            f"{folder} holds no recording: no process made an optimizer step that Gates saw (PyTorch and MLX are seen; "
            "`gates xray --help` says how a script is started)"
        )
    return folders


def _cannot(processes: Iterable[Process]) -> list[str]:
    sentences = []
    for part in processes:
        sentences += [str(event.get("reason", "")) for event in part.of("cannot")]
        sentences += [_too_large(event) for event in part.of("too large")]
    return sentences


def _too_large(event: Event) -> str:
    return (
        f"an update of {int(event.get('columns', 0)):,} tokens was too large to record (about {float(event.get('seconds', 0)):.0f} s): "
        "take fewer or shorter rows or a smaller model, or fit some parameters only (--parameters '*lora*')"
    )


def _by_rank(folder: Path, processes: Sequence[Process]) -> dict[int, Process]:
    """Return the processes by rank; refuse a missing rank, and two processes of one rank."""
    trained = [part for part in processes if part.updates or part.cut] or list(processes)
    ranks_of: dict[int, Process] = {}
    sizes = set()
    for part in trained:
        rank, size = _rank(part)
        sizes.add(size)
        if rank in ranks_of:
            raise ConfigurationError(
                f"{folder}: {ranks_of[rank].folder.name} and {part.folder.name} both recorded updates as rank {rank}: they "
                "are two runs; name the folder of one"
            )
        ranks_of[rank] = part
    if len(sizes) > 1:
        raise ConfigurationError(f"{folder}: the processes name different world sizes {sorted(sizes)}; record again")
    missing = sorted(set(range(sizes.pop())) - set(ranks_of))
    if missing and any(part.updates for part in trained):
        raise ConfigurationError(
            f"{folder}: rank {', '.join(map(str, missing))} left no update, so its rows are unknown; record all ranks on one "
            "machine, or a single process"
        )
    return ranks_of


def _rank(part: Process) -> tuple[int, int]:
    for update in part.updates.values():
        return update.document.rank, update.document.world_size
    for event in part.of("start"):
        return int(event.get("rank", 0)), int(event.get("world_size", 1))
    return 0, 1
