"""How libraries fare on cases that all of them were asked: results/conformance/common.json, of tools/peer_common.py."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field, ValidationError

from gates.model import ConfigurationError
from gates.results.record_types import StrictRecord

FILE = "common.json"


class CommonCases(StrictRecord):
    """One op that two libraries or more have."""

    cases: int = Field(description="that all of them were asked")
    libraries: dict[str, dict[str, int]] = Field(
        description="of each the number of cases by status, without correct ones"
    )


Common = Mapping[str, CommonCases]  # by op


def read_common(folder: Path) -> Common:
    """Return the ops; nothing where the folder has no such file.

    Raises:
        ConfigurationError: the file is no such record.
    """
    path = folder / FILE
    if not path.is_file():
        return {}
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))["ops"]
        return {op: CommonCases.model_validate(entry) for op, entry in entries.items()}
    except (ValidationError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigurationError(f"{path} is no record of common cases: {error!r}") from None
