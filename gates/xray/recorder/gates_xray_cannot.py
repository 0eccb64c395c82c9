"""Why an update cannot be recorded, as scripts' authors are told.

It runs in the interpreter of the script: standard library only.
"""

from __future__ import annotations

import traceback
from pathlib import Path


class CannotError(Exception):
    """An update that cannot be recorded, in a sentence of its own with the remedy."""


def unfitted(patterns):
    """Return the error that no parameter fits patterns."""
    return CannotError(f"no parameter with a gradient fits the patterns {patterns}: give --parameters other names")


def sentence(error):
    """Return what is said of an update that could not be recorded."""
    if isinstance(error, CannotError):
        return str(error)
    where = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(where.filename).name}:{where.lineno}"
    return f"an update could not be recorded: {type(error).__name__}: {str(error)[:300]} ({place})"
