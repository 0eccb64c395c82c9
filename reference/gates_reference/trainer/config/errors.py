"""Messages for a wrong configuration: the key, what was found, what is legal, and the nearest legal name."""

import difflib
import re
from collections.abc import Iterable
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

Sections = list[type[BaseModel]]


class TrainerError(ValueError):
    """A mistake that the user of the trainer can correct; the message says how."""


class ConfigurationError(TrainerError):
    """The configuration is wrong."""


def unknown(name: str, legal: Iterable[str], where: str) -> str:
    """Return the message for an unknown name, with the nearest legal name and all legal names."""
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


def _legal(top: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """Return the keys of the section at `location`; numbers are list items, and a tag selects one of several tables."""
    here: Sections = [top]
    for step in location:
        if isinstance(step, int):
            continue
        field = here[0].model_fields.get(step) if len(here) == 1 else None
        here = _tagged(here, step) if field is None else _sections_in(field.annotation)
    return [name for section in here for name in section.model_fields]


def sentences(error: ValidationError, top: type[BaseModel]) -> str:
    """Describe every mistake of a configuration, one line each."""
    lines: list[str] = []
    for problem in error.errors():
        location = tuple(problem["loc"])
        if problem["type"] == "extra_forbidden":
            where = ".".join(str(step) for step in location[:-1])
            section = f"section [{where}]" if where else "the configuration"
            own = (
                "; an algorithm's own settings, such as beta, go into algorithm.settings"
                if where == "algorithm"
                else ""
            )
            lines.append(unknown(str(location[-1]), _legal(top, location[:-1]), section) + own)
            continue
        name = ".".join(str(step) for step in location) or "the configuration"
        if problem["type"] == "union_tag_invalid":  # of the tables [[rewards.functions]]
            tags = re.findall("'([^']*)'", problem["ctx"]["expected_tags"])
            lines.append(unknown(str(problem["ctx"]["tag"]), tags, f"{name}.name"))
            continue
        suffix = "" if problem["type"] in {"missing", "value_error"} else f", found {problem['input']!r}"
        lines.append(f"{name}: {problem['msg'].removeprefix('Value error, ')}{suffix}")
    return "\n".join(lines)
