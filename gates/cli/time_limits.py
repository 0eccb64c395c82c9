"""Validate the seconds of `--time-limit`."""

from __future__ import annotations

import typer


def positive(seconds: float | None) -> float | None:
    """Return the seconds of a time limit, or None where there is none.

    Raises:
        BadParameter: they are not above 0, or not finite.
    """
    if seconds is not None and not 0.0 < seconds < float("inf"):
        raise typer.BadParameter(f"a time limit of {seconds:g} s: must be above 0 and finite, such as 60")
    return seconds
