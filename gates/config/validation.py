"""Read and validate TOML; messages name the key, the value found, the legal values and the nearest name."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from gates.errors import ConfigurationError, unreadable
from gates.nearest import hint

Model = TypeVar("Model", bound=BaseModel)


def nearest(name: str, legal: Iterable[str]) -> str:
    """Return `, did you mean 'x'`, or nothing if no legal name is near."""
    return hint(name, sorted(legal), form=", did you mean {}")


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file, or raise a ConfigurationError in one sentence."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise unreadable(path, error) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is no TOML: {error}") from None


def validated(model: type[Model], values: object, where: str) -> Model:
    """Return the values as a model, or raise with one line for each mistake."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        lines = [_sentence(detail, model, where) for detail in error.errors()]
        raise ConfigurationError("\n".join(lines)) from None


def _sentence(detail: Any, model: type[BaseModel], where: str) -> str:
    last = detail["loc"][-1] if detail["loc"] else ""
    if detail["type"] == "extra_forbidden":
        legal = sorted(model.model_fields)
        return f"{where} has no {last!r}{nearest(str(last), legal)}; legal are {', '.join(legal)}"
    if detail["type"] == "missing":
        return f"{where} must have {last!r}"
    path = ".".join(str(step) for step in detail["loc"])
    return f"{where}: {path or 'it'}: {detail['msg']}, found {detail['input']!r}"
