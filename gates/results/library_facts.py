"""What is known of libraries without judging them: results/conformance/facts.json, which tools/peer_facts.py writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from gates.model import ConfigurationError
from gates.results.record_types import StrictRecord

FILE = "facts.json"


class LibraryFacts(StrictRecord):
    """Facts of one library at one version."""

    version: str
    trainers: dict[str, dict[str, Any]] = Field(
        description="of each trainer the settings in force where nothing is asked"
    )
    named: dict[str, str] = Field(description="of a row of the matrix the first file and line that has its name")


Facts = Mapping[str, LibraryFacts]  # by library


def read_facts(folder: Path) -> Facts:
    """Return the facts by library; nothing where the folder has no such file.

    Raises:
        ConfigurationError: the file is no such record.
    """
    path = folder / FILE
    if not path.is_file():
        return {}
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return {peer: LibraryFacts.model_validate(entry) for peer, entry in entries.items()}
    except (ValidationError, ValueError, AttributeError) as error:
        raise ConfigurationError(f"{path} is no record of facts of libraries: {error}") from None
