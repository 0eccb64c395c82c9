"""Show an X-ray as one screen: conclusions first, then a line a row."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

from gates.report.wrap import sentence, wrapped
from gates.report.xray import verdicts
from gates.report.xray.rows import ShownRow, ShownToken, by_topic, shown, without_runs
from gates.results.escape import one_line
from gates.xray.baseline import Change, Changes
from gates.xray.picture import Picture, Xray
from gates.xray.reading.reading import Reading
from gates.xray.reading.words import number, plural

MARGIN = "  "
WORD = 13  # columns of the word before a conclusion
MOST_ROWS = 16  # rows of a screen
MOST_CHANGES = 12
STYLES = {"attention": "yellow", "cannot tell": "blue"}
COLOURS = {"up": (0, 114, 178), "down": (213, 94, 0)}  # blue and vermilion, which colour-blind people tell apart
CELLS = (  # heading and columns of a row's line; a number is never cut: what does not fit is left out from the right
    ("row", 5),
    ("tokens", 6),
    ("from", 5),
    ("pushed", -7),
    ("sum", 9),
    ("coefficient", -24),
    ("first", 5),
    ("last", 4),
    ("end", 3),
)


def lines(xray: Xray, width: int, *, tokens: bool = False, colour: bool = False) -> list[Text]:
    """Return the screen.

    Args:
        xray: what was read.
        width: columns of the terminal.
        tokens: list every token with its coefficient.
        colour: show these tokens on coloured ground, where the terminal has colours.
    """
    screen = [Text(line, style="bold") for line in wrapped(_head(xray), width, " · ")]
    for problem in (*xray.recording.problems, *xray.recording.cannot):
        screen += _conclusion("attention", one_line(problem), width)
    said: dict[str, str] = {}
    for picture in xray.updates:
        screen += _update(picture, said, width, many=len(xray.updates) > 1)
        said |= {reading.name: reading.sentence for reading in picture.readings}
        rows = shown(picture.step)
        if picture is xray.updates[0] or tokens:
            screen += _rows(rows, width, tokens=tokens, colour=colour)
    return screen


def changes(compared: Changes, width: int) -> list[Text]:
    """Return the lines of a comparison with a baseline."""
    style = "green" if compared.none else "bold yellow"
    screen = [Text(line, style=style) for line in sentence(one_line(compared.sentence), width)]
    if compared.factor is None:
        screen += [Text(line) for change in compared.changed[:MOST_CHANGES] for line in _change(change, width)]
        if len(compared.changed) > MOST_CHANGES:
            screen.append(Text(f"{MARGIN}and {len(compared.changed) - MOST_CHANGES} more"))
    return screen


def _change(change: Change, width: int) -> list[str]:
    where = f"update {change.update} row {change.row} token {change.token} {one_line(repr(change.text))}"
    values = ["absent" if value is None else number(value, 6) for value in (change.old, change.new)]
    return [MARGIN + line for line in wrapped([where, f"{values[0]} → {values[1]}"], width - len(MARGIN), ": ")]


def _head(xray: Xray) -> list[str]:
    parts = ["X-ray"]
    if xray.recording.framework:
        parts.append(one_line(xray.recording.framework))
    if xray.updates:
        document = xray.updates[0].step.update.document
        parts += [one_line(document.model), document.dtype]
    made = xray.recording.made
    count = len(xray.updates)
    parts.append(
        f"{count} of {plural(made, 'update')}" if made is not None and made > count else plural(count, "update")
    )
    if xray.recording.world_size > 1:
        parts.append(f"{xray.recording.world_size} ranks")
    return [part for part in parts if part]


def _update(picture: Picture, said: dict[str, str], width: int, *, many: bool) -> list[Text]:
    """Return the conclusions of an update; what an earlier update said in the same words is not repeated."""
    fresh = [reading for reading in picture.readings if said.get(reading.name) != reading.sentence]
    screen = [Text(f"update {picture.number}", style="bold")] if many else []
    screen += verdicts.lines(picture.verdicts, width)
    for kind in ("attention", "cannot tell"):
        for reading in fresh:
            if reading.kind == kind:
                screen += _conclusion(kind, _with_remedy(reading), width)
    for topic, readings in by_topic(fresh):
        screen += _conclusion(topic, "; ".join(one_line(reading.sentence) for reading in readings), width)
    if many and said and len(fresh) < len(picture.readings):
        screen += _conclusion("", f"else as in update {picture.number - 1}", width)
    return screen


def _with_remedy(reading: Reading) -> str:
    text = one_line(reading.sentence)
    return f"{text} ({one_line(reading.remedy)})" if reading.remedy else text


def _conclusion(kind: str, text: str, width: int) -> list[Text]:
    word = kind.upper() if kind == "attention" else kind
    return [
        Text.assemble(MARGIN, (f"{'' if index else word:{WORD}}", STYLES.get(kind, "dim")), line)
        for index, line in enumerate(sentence(text, width - len(MARGIN) - WORD))
    ]


def _rows(rows: Sequence[ShownRow], width: int, *, tokens: bool, colour: bool) -> list[Text]:
    screen = [Text(_cells([name for name, _ in CELLS], width), style="dim")]
    for row in rows if tokens else rows[:MOST_ROWS]:
        screen.append(Text(_cells(_line(row), width)))
        if tokens:
            screen += _tokens(row, width, colour=colour)
    left = len(rows) - MOST_ROWS
    if left > 0 and not tokens:
        screen.append(Text(f"{MARGIN}and {plural(left, 'row')} more (--tokens lists all)", style="dim"))
    return screen


def _cells(texts: Sequence[str], width: int) -> str:
    """Return a row's line: numbers on the right of their column, words on the left."""
    line, end = "", -1
    for text, (_, columns) in zip(texts, CELLS, strict=True):
        end += abs(columns) + (1 if columns > 0 else 2)
        if end <= width:
            line += f" {text:>{columns}}" if columns > 0 else f"  {text:{-columns}}"
    return line[1:].rstrip()


def _line(row: ShownRow) -> list[str]:
    start = "–" if row.start is None else str(row.start)
    total = "0" if row.start is None else number(row.total)
    return [str(row.number), str(row.length), start, row.pushed, total, _range(row), *row.marks]


def _range(row: ShownRow) -> str:
    """Return the coefficient of a row's own tokens, or the range of them."""
    if row.least is None or row.largest is None:
        return "–"
    least, largest = number(row.least), number(row.largest)
    return least if least == largest else f"{least} to {largest}"


def _tokens(row: ShownRow, width: int, *, colour: bool) -> list[Text]:
    """Return the tokens of a row with their coefficients, wrapped."""
    screen, line = [], Text(MARGIN * 2)
    for token, piece in ((token, _piece(token)) for token in without_runs(row.tokens)):
        if line.cell_len + cell_len(piece) + 2 > width and line.cell_len > len(MARGIN * 2):
            screen.append(line)
            line = Text(MARGIN * 2)
        line.append(piece, style=_style(token) if colour else "")
        line.append("  ")
    return [*screen, line]


def _piece(token: ShownToken) -> str:
    text = one_line(token.text.replace("\n", "↵")).strip() or repr(token.text)
    if token.ground == "hidden":
        return f"({text})" if token.count == 1 else f"({token.count} × {text})"
    return text if token.value is None else f"{text} {number(token.value) if token.level else '0'}"


def _style(token: ShownToken) -> str:
    if token.ground not in COLOURS:
        return "dim" if token.ground == "hidden" else ""
    red, green, blue = COLOURS[token.ground]
    return f"{'white' if token.level > 3 else ''} on rgb({_tint(red, token)},{_tint(green, token)},{_tint(blue, token)})".strip()


def _tint(part: int, token: ShownToken) -> int:
    """Return a part of a colour between the terminal's black and its full strength."""
    return round(part * token.level / 6)
