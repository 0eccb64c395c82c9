"""Combine the command line of `gates check` with the project's settings, which apply where it is silent."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from gates.config.settings import Settings
    from gates.model import Gate, Subject
    from gates.registry import Registry
    from gates.run.session import Requirement
    from gates.run.waivers import Extent, Waivers


@dataclass(frozen=True, slots=True)
class CommandLine:
    """The user's choices; empty or None where the project's settings apply. `select` may hold files, which are subjects."""

    select: Sequence[str] = ()
    subject: Sequence[str] = ()
    require: Sequence[str] = ()
    python: str | None = None
    waivers: Path | None = None
    quick: bool = False
    full: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """Gates and subjects of a run, what it requires, and what is waived."""

    settings: Settings
    gates: tuple[Gate, ...]
    subjects: list[Subject]
    where: str  # where the subjects come from, if nobody named them; "" if somebody did
    requirements: tuple[Requirement, ...]
    waivers: Waivers


def request(registry: Registry, line: CommandLine, today: date | None = None) -> Request:
    """Return what a run judges; `today`, by default the day in UTC, decides which waivers have expired."""
    from gates.cli import selection, setup
    from gates.config.settings import read, root
    from gates.run.session import Requirement
    from gates.run.waivers import Extent
    from gates.subjects import catalogue

    folder = root(Path.cwd())
    settings = read(folder)
    program = setup.interpreter(line.python or settings.python)
    files, patterns = selection.apart(line.select)
    all_gates = selection.chosen(registry, settings.select)
    gates = selection.chosen(registry, patterns) if patterns else all_gates
    named = (*line.subject, *files)
    by_default, where = _by_default(settings, folder, named)
    all_subjects = catalogue.choose(registry, by_default, program, variants=line.full)
    subjects = catalogue.choose(registry, named, program) if named else all_subjects
    names = [subject.name for subject in subjects]
    if line.require:
        requirements = _requirements(line, registry, gates, subjects)
    else:
        known = {*registry.subjects, *(subject.name for subject in all_subjects)}
        requirements = [Requirement.parse(text, names) for text in _of_project(settings, registry, names, known)]
    extent = Extent.of(all_gates, gates, all_subjects, subjects, registry.subjects, quick=line.quick)
    waivers = _waivers(folder, settings, line.waivers, extent, today or datetime.now(UTC).date())
    return Request(settings, gates, subjects, where, tuple(requirements), waivers)


def _by_default(settings: Settings, folder: Path, named: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Return who is judged where the command line names nobody, and where they come from; () are Gates' own subjects."""
    from gates.config import finding

    if settings.subjects:
        return tuple(settings.subjects), "" if named else f"named in {folder / 'pyproject.toml'}"
    if named:
        return (), ""
    files = finding.subjects_here(Path.cwd(), folder)
    return files, f"found in {Path.cwd()}" if files else "Gates' own subjects, in its checkout"


def _requirements(
    line: CommandLine, registry: Registry, gates: tuple[Gate, ...], subjects: list[Subject]
) -> list[Requirement]:
    """Return the requirements of the command line.

    Raises:
        ConfigurationError: this run judges nothing that a requirement names, so the requirement would have no effect.
    """
    from gates.model import ConfigurationError
    from gates.run.plan import plan
    from gates.run.session import Requirement

    judged = {(planned.subject.name, planned.gate.id) for planned in plan(gates, subjects, quick=line.quick)}
    requirements = []
    for text in line.require:
        requirement = Requirement.parse(text, [subject.name for subject in subjects])
        _gates_exist(requirement, registry, f"--require {text}")
        if not any(requirement.names(*names) for names in judged):
            those = "that subject and those gates" if requirement.gates else "that subject"
            raise ConfigurationError(
                f"--require {text}: this run judges nothing of {those}; choose other gates, or leave out the requirement"
            )
        requirements.append(requirement)
    return requirements


def _gates_exist(requirement: Requirement, registry: Registry, where: str) -> None:
    from gates.cli import selection
    from gates.model import ConfigurationError

    if requirement.gates is None:
        return
    try:
        selection.chosen(registry, (requirement.gates,))
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from None


def _of_project(settings: Settings, registry: Registry, names: list[str], known: set[str]) -> list[str]:
    """Return the project's requirements that name a subject of this run.

    Raises:
        ConfigurationError: a requirement names no gate that exists, or no subject of a project that lists its subjects.
    """
    from gates.model import ConfigurationError
    from gates.run.session import Requirement

    for text in settings.require:
        name, _, pattern = text.partition(":")
        _gates_exist(Requirement(name, pattern or None), registry, f"[tool.gates] require {text}")
        if settings.subjects and name not in {*names, *known}:
            raise ConfigurationError(
                f"[tool.gates] require {text}: {name!r} is no subject of this project; it has {', '.join(sorted(known))}"
            )
    return [text for text in settings.require if text.partition(":")[0] in names]


def _waivers(folder: Path, settings: Settings, named: Path | None, extent: Extent, today: date) -> Waivers:
    """Read the waivers of the named file, else of the project's gates.toml if it has one."""
    from gates.results.records import WaiverRecord
    from gates.run import waivers

    file = named or (Path(settings.waivers) if settings.waivers else folder / waivers.FILE)
    if named is None and settings.waivers is None and not file.is_file():
        return waivers.Waivers()
    entries = waivers.read(file)
    return waivers.Waivers([WaiverRecord(**entry.model_dump(), whole=extent.whole(entry)) for entry in entries], today)
