"""What a run of `gates check` is asked for: the command line, and where it is silent the project's own settings."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import date

    from gates.config.settings import Settings
    from gates.model import Gate, Subject
    from gates.registry import Registry
    from gates.run.session import Requirement
    from gates.run.waivers import Extent, Waivers


@dataclass(frozen=True, slots=True)
class Asked:
    """Gates and subjects of a run, what it requires, and what is waived."""

    told: Settings
    gates: tuple[Gate, ...]
    subjects: list[Subject]
    requirements: tuple[Requirement, ...]
    waivers: Waivers


def asked(
    registry: Registry,
    select: list[str] | None,
    subject: list[str] | None,
    require: list[str] | None,
    python: str | None,
    waivers: Path | None,
    *,
    quick: bool,
    today: date | None = None,
) -> Asked:
    """Return what a run is about; `today` decides which waivers have expired, by default the day in UTC."""
    from gates.cli import selection, setup
    from gates.config import settings
    from gates.run.session import Requirement
    from gates.run.waivers import Extent
    from gates.subjects import catalogue

    root = settings.root(Path.cwd())
    told = settings.read(root)
    program = setup.interpreter(python or told.python)
    all_gates = selection.chosen(registry, told.select)
    gates = selection.chosen(registry, select) if select else all_gates
    all_subjects = catalogue.choose(registry, tuple(told.subjects), program)
    subjects = catalogue.choose(registry, tuple(subject), program) if subject else all_subjects
    names = [found.name for found in subjects]
    if require:
        requirements = _asked_for(require, registry, gates, subjects, quick=quick)
    else:
        known = {*registry.subjects, *(found.name for found in all_subjects)}
        requirements = [Requirement.parse(text, names) for text in _required(told, registry, names, known)]
    extent = Extent.of(all_gates, gates, all_subjects, subjects, registry.subjects, quick=quick)
    return Asked(
        told,
        gates,
        subjects,
        tuple(requirements),
        _waivers(root, told, waivers, extent, today or datetime.now(UTC).date()),
    )


def _asked_for(
    texts: list[str], registry: Registry, gates: tuple[Gate, ...], subjects: list[Subject], *, quick: bool
) -> list[Requirement]:
    """Return what the command line requires.

    Raises:
        ConfigurationError: of what a requirement names nothing is judged in this run, so it would hold in silence.
    """
    from gates.model import ConfigurationError
    from gates.run.runner import plan
    from gates.run.session import Requirement

    cells = {(job.subject.name, job.gate.id) for job in plan(gates, subjects, quick=quick)}
    found = []
    for text in texts:
        requirement = Requirement.parse(text, [subject.name for subject in subjects])
        _gates_exist(requirement, registry, f"--require {text}")
        if not any(requirement.names(*cell) for cell in cells):
            those = "that subject and those gates" if requirement.gates else "that subject"
            raise ConfigurationError(
                f"--require {text}: this run asks nothing of {those}; choose other gates, or leave out the requirement"
            )
        found.append(requirement)
    return found


def _gates_exist(requirement: Requirement, registry: Registry, where: str) -> None:
    from gates.cli import selection
    from gates.model import ConfigurationError

    if requirement.gates is None:
        return
    try:
        selection.chosen(registry, (requirement.gates,))
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from None


def _required(told: Settings, registry: Registry, names: list[str], known: set[str]) -> list[str]:
    """Return what the project requires of this run: what names a subject of it; another run may judge the others.

    Raises:
        ConfigurationError: a requirement names no gate that there is, or the project says whom it judges and it names
            nobody: it would never be held.
    """
    from gates.model import ConfigurationError
    from gates.run.session import Requirement

    for text in told.require:
        name, _, pattern = text.partition(":")
        _gates_exist(Requirement(name, pattern or None), registry, f"[tool.gates] require {text}")
        if told.subjects and name not in {*names, *known}:
            raise ConfigurationError(
                f"[tool.gates] require {text}: {name!r} is no subject of this project; it has {', '.join(sorted(known))}"
            )
    return [text for text in told.require if text.partition(":")[0] in names]


def _waivers(root: Path, told: Settings, named: Path | None, extent: Extent, today: date) -> Waivers:
    """Read the waivers of the file that is named, else of the project's gates.toml, where there is one."""
    from gates.results.records import WaiverRecord
    from gates.run import waivers

    file = named or (Path(told.waivers) if told.waivers else root / waivers.FILE)
    if named is None and told.waivers is None and not file.is_file():
        return waivers.Waivers()
    found = waivers.read(file)
    return waivers.Waivers([WaiverRecord(**one.model_dump(), whole=extent.whole(one)) for one in found], today)
