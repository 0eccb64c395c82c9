"""What a run of `gates check` is asked for: the command line, and where it is silent the project's own settings."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import date

    from gates.model import Gate, Subject
    from gates.registry import Registry
    from gates.session import Requirement
    from gates.settings import Settings
    from gates.waivers import Extent, Waivers


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
    from gates import settings
    from gates.cli import selection, setup
    from gates.session import Requirement
    from gates.subjects import catalogue
    from gates.waivers import Extent

    root = settings.root(Path.cwd())
    told = settings.read(root)
    program = setup.interpreter(python or told.python)
    all_gates = selection.chosen(registry, told.select)
    gates = selection.chosen(registry, select) if select else all_gates
    all_subjects = catalogue.choose(registry, tuple(told.subjects), program)
    subjects = catalogue.choose(registry, tuple(subject), program) if subject else all_subjects
    names = [found.name for found in subjects]
    required = require or _required(told, names, {*registry.subjects, *(found.name for found in all_subjects)})
    requirements = tuple(Requirement.parse(text, names) for text in required)
    _vet(requirements, registry, gates if require else None)
    extent = Extent.of(all_gates, gates, all_subjects, subjects, registry.subjects, quick=quick)
    return Asked(
        told,
        gates,
        subjects,
        requirements,
        _waivers(root, told, waivers, extent, today or datetime.now(UTC).date()),
    )


def _required(told: Settings, names: list[str], known: set[str]) -> list[str]:
    """Return what the project requires of this run: what names a subject of it; another run may judge the others.

    Raises:
        ConfigurationError: the project says whom it judges, and a requirement names nobody, so it would never be held.
    """
    from gates.model import ConfigurationError

    for text in told.require:
        name = text.partition(":")[0]
        if told.subjects and name not in {*names, *known}:
            raise ConfigurationError(
                f"[tool.gates] require {text}: {name!r} is no subject of this project; it has {', '.join(sorted(known))}"
            )
    return [text for text in told.require if text.partition(":")[0] in names]


def _vet(requirements: tuple[Requirement, ...], registry: Registry, run: tuple[Gate, ...] | None) -> None:
    """Refuse a requirement that would never be held; the command line's own must name gates of this run.

    Raises:
        ConfigurationError: it names no gate, or none of this run.
    """
    from gates.cli import selection
    from gates.model import ConfigurationError

    for one in requirements:
        if one.gates is None:
            continue
        said = f"{'[tool.gates] require' if run is None else '--require'} {one.subject}:{one.gates}"
        try:
            named = selection.chosen(registry, [one.gates])
        except ConfigurationError as error:
            raise ConfigurationError(f"{said}: {error}") from None
        if run is not None and not {gate.id for gate in named} & {gate.id for gate in run}:
            raise ConfigurationError(f"{said}: this run has none of its gates; select them too")


def _waivers(root: Path, told: Settings, named: Path | None, extent: Extent, today: date) -> Waivers:
    """Read the waivers of the file that is named, else of the project's gates.toml, where there is one."""
    from gates import waivers
    from gates.report.records import WaiverRecord

    file = named or (Path(told.waivers) if told.waivers else root / waivers.FILE)
    if named is None and told.waivers is None and not file.is_file():
        return waivers.Waivers()
    found = waivers.read(file)
    return waivers.Waivers([WaiverRecord(**one.model_dump(), whole=extent.whole(one)) for one in found], today)
