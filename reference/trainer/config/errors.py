"""What is said of a wrong configuration: which key, what was found, what is legal, and the nearest name."""

import difflib
from collections.abc import Iterable
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

Sections = list[type[BaseModel]]


class TrainerError(ValueError):
    """What the user of the trainer can put right; the message says how."""


class ConfigurationError(TrainerError):
    """The configuration is wrong; the message is for the person who wrote it."""


def unknown(name: str, legal: Iterable[str], where: str) -> str:
    """One sentence about a name that is not legal, with the nearest legal one and all of them."""
    names = sorted(legal)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f", did you mean {near[0]!r}" if near else ""
    return f"{where} has no {name!r}{hint}; legal are {', '.join(names)}"


def _sections_in(annotation: Any) -> Sections:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [section for part in get_args(annotation) for section in _sections_in(part)]


def _tagged(sections: Sections, tag: str) -> Sections:
    return [s for s in sections if "name" in s.model_fields and tag in get_args(s.model_fields["name"].annotation)]


def _legal(top: type[BaseModel], place: tuple[int | str, ...]) -> list[str]:
    """The keys of the section at `place`; numbers are places in a list, and a tag chooses one of several tables."""
    here: Sections = [top]
    for step in place:
        if isinstance(step, int):
            continue
        field = here[0].model_fields.get(step) if len(here) == 1 else None
        here = _tagged(here, step) if field is None else _sections_in(field.annotation)
    return [name for section in here for name in section.model_fields]


def sentences(error: ValidationError, top: type[BaseModel]) -> str:
    """Every mistake of a configuration, one line each."""
    lines: list[str] = []
    for one in error.errors():
        place = tuple(one["loc"])
        if one["type"] == "extra_forbidden":
            where = ".".join(str(step) for step in place[:-1])
            section = f"section [{where}]" if where else "the configuration"
            lines.append(unknown(str(place[-1]), _legal(top, place[:-1]), section))
            continue
        name = ".".join(str(step) for step in place) or "the configuration"
        found = "" if one["type"] in {"missing", "value_error"} else f", found {one['input']!r}"
        lines.append(f"{name}: {one['msg'].removeprefix('Value error, ')}{found}")
    return "\n".join(lines)
