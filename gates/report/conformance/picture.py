"""The matrix as a small picture: a square for each row and library, with the sign of its grade."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from gates.report.conformance.cells import Cell
from gates.report.conformance.rows import ROWS
from gates.report.statuses import SYMBOLS
from gates.results.conformance_records import ConformanceResults

LEFT, TOP = 184, 92  # pixels for the names of rows and, slanted, of libraries
WIDE, HIGH = 46, 17  # of a square
BELOW, RIGHT = 60, 70
STYLE = (
    "svg{color:#1b1f27;background:#fff}text{font:12px system-ui,sans-serif;fill:currentColor}.s{text-anchor:middle;font-size:11px}"
    ".correct{fill:#cdebd5}.wrong{fill:#f7b9bb}.differs{fill:#c5daf7}.departs,.raises{fill:#fbdcae}.blank{fill:#e9ebef}"
    "@media(prefers-color-scheme:dark){svg{color:#e6e9ee;background:#14171c}.correct{fill:#1f4a2c}.wrong{fill:#6d2a30}"
    ".differs{fill:#23406b}.departs,.raises{fill:#5c3c14}.blank{fill:#2a2f38}}"
)
LEGEND = (
    "✓ correct · as: another composition than the paper's, which the page names · ✗ wrong · ≠ another known choice",
    "≢ another formula, documented · a dot: worse with an option or in direct calls",
    "grey: not judged or refused · empty: absent",
)


def render(libraries: Sequence[ConformanceResults], cells: Mapping[tuple[str, str], Cell]) -> str:
    """Return the picture as SVG, for light and dark pages."""
    width, height = LEFT + WIDE * len(libraries) + RIGHT, TOP + HIGH * len(ROWS) + BELOW
    title = "What each library computes of each algorithm, by its defaults"
    return "".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
            f"<title>{title}</title><style>{STYLE}</style>",
            *_names(libraries),
            *_squares(libraries, cells),
            *(
                f'<text x="8" y="{height - BELOW + 18 + 16 * n}" style="font-size:10.5px">{escape(words)}</text>'
                for n, words in enumerate(LEGEND)
            ),
            "</svg>\n",
        ]
    )


def _names(libraries: Sequence[ConformanceResults]) -> Iterator[str]:
    for number, library in enumerate(libraries):
        x, y = LEFT + WIDE * number + WIDE // 2, TOP - 8
        yield f'<text x="{x}" y="{y}" transform="rotate(-40 {x} {y})">{escape(library.header.peer)}</text>'
    for number, row in enumerate(ROWS):
        yield f'<text x="{LEFT - 8}" y="{TOP + HIGH * number + 12}" text-anchor="end">{escape(row.title)}</text>'


def _squares(libraries: Sequence[ConformanceResults], cells: Mapping[tuple[str, str], Cell]) -> Iterator[str]:
    for down, row in enumerate(ROWS):
        for across, library in enumerate(libraries):
            cell = cells[row.title, library.header.peer]
            if cell.kind == "absent":
                continue
            x, y = LEFT + WIDE * across, TOP + HIGH * down
            look = cell.grade if cell.kind == "judged" else "blank"
            words = f"{library.header.peer}, {row.title}: {cell.grade or cell.kind}"
            yield f'<g><title>{escape(words)}</title><rect class="{look}" x="{x + 1}" y="{y + 1}" width="{WIDE - 2}" height="{HIGH - 2}" rx="2"/>'
            if cell.kind == "judged":
                yield f'<text class="s" x="{x + WIDE // 2}" y="{y + 13}">{_sign(cell)}</text>'
            yield "</g>"


def _sign(cell: Cell) -> str:
    """Return the symbol of a cell's grade, whether it is of another composition, and whether something is worse."""
    named = cell.default is not None and cell.default.choices and not cell.row.title.startswith("other")
    another = cell.grade == "correct" and named
    return SYMBOLS[cell.grade] + (" as" if another else "") + (" ·" if cell.otherwise else "")
