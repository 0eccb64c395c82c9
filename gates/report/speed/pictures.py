"""Draw speed against size with the roofline as SVG, without another library; equal records give equal bytes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import escape

from gates.report.speed.inline import Figure
from gates.report.speed.numbers import size
from gates.report.speed.recorded import WRONG, Kernel, Recorded, peer_order

WIDTH, HEIGHT = 360, 300  # of a panel
LEFT, RIGHT, TOP, BOTTOM = 52, 18, 26, 44
LEGEND = 16  # height of one of its lines
COLUMNS = 2
MOST_PEERS = 8  # in a panel
OURS, ROOFLINE = "rlkernels (ours)", "roofline"
#: The palette of Okabe and Ito, safe for colour-blind readers, without its yellow, which is hard to see on white.
COLOURS = ("#D55E00", "#0072B2", "#009E73", "#E69F00", "#CC79A7", "#56B4E9")
MARKERS = (
    "M-4,-4h8v8h-8z",  # square
    "M0,-5L5,4H-5z",  # triangle
    "M0,-5L5,0L0,5L-5,0z",  # diamond
    "M-4,-4L4,4M-4,4L4,-4",  # cross
    "M0,-5V5M-5,0H5",  # plus
    "M0,5L5,-4H-5z",  # triangle, point down
)
DASHES = ("7 3", "2 2", "7 2 2 2", "4 4", "1 3", "10 3")
LIGHT, DARK = "#1b1f27", "#e6e9ee"
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:currentColor}.t{font-size:11px}.g{stroke:currentColor;opacity:.15}"
    ".a{stroke:currentColor}.l{fill:none;stroke-width:1.8}.m{stroke-width:1.5}"
)
ALONE = f"""svg{{color:{LIGHT};background:#fff}}@media(prefers-color-scheme:dark){{svg{{color:{DARK};background:#14171c}}}}"""
PREFIXES = {0: "", 3: "k", 6: "M", 9: "G", 12: "T"}


@dataclass(frozen=True, slots=True)
class Look:
    """The style of a line."""

    colour: str
    dash: str
    marker: str
    filled: bool


@dataclass(slots=True)
class Lines:
    """The lines of a panel: elements per second by size for each name, and the peers that conformance grades wrong."""

    title: str
    points: dict[str, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))
    wrong: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


PICTURES: Mapping[str, tuple[str, str, str]] = {  # file, caption and unit by the op's name
    "group_advantages": ("speed-advantages.svg", "Group advantages: speed against size", "rewards"),
    "token_kl": ("speed-kl.svg", "Token KL: speed against size", "log-probabilities"),
    "selective_log_softmax": ("speed-vocabulary.svg", "Ops over the vocabulary: speed against size", "logits"),
    "sample_tokens": ("speed-vocabulary.svg", "Ops over the vocabulary: speed against size", "logits"),
    "filtered_logprobs": ("speed-vocabulary.svg", "Ops over the vocabulary: speed against size", "logits"),
}


def figures(recorded: Recorded, *names: str) -> Iterator[Figure]:
    """Yield a picture of the named ops with a panel for each variant that has at least two sizes, if there is one."""
    candidates = [
        lines
        for title, kernels in recorded.ops.items()
        if kernels[0].op in names and (lines := _lines(title, kernels)).points[OURS]
    ]
    panels = [lines for lines in candidates if len(lines.points[OURS]) > 1]
    if panels:
        file, caption, unit = PICTURES[names[0]]
        looks = _looks(recorded)
        left_out = sorted({peer for lines in panels for peer in lines.left_out}, key=peer_order)
        note = f"; only in the table: {', '.join(left_out)}" if left_out else ""
        yield Figure(file, f"{caption}, higher is faster{note}", [panel(lines, unit, looks) for lines in panels])


def _lines(title: str, kernels: Sequence[Kernel]) -> Lines:
    lines = Lines(title)
    ours: dict[int, list[float]] = defaultdict(list)
    peers = sorted({kernel.row.peer for kernel in kernels if kernel.shown and kernel.row.peer}, key=peer_order)
    lines.left_out = peers[MOST_PEERS:]
    for kernel in kernels:
        row, count = kernel.row, size(kernel.row.shape)
        if row.conformance == WRONG and row.peer not in lines.wrong:
            lines.wrong.append(row.peer)
        if not kernel.shown or row.ours is None or not count:
            continue
        ours[count].append(row.ours.median_us)
        if row.theirs and row.peer not in lines.left_out:
            # for two inputs of equal size, draw the slower one
            lines.points[row.peer][count] = min(
                lines.points[row.peer].get(count, math.inf), _rate(count, row.theirs.median_us)
            )
        if limit := kernel.bound:
            lines.points[ROOFLINE][count] = max(
                lines.points[ROOFLINE].get(count, 0.0), _rate(count, limit.microseconds)
            )
    lines.points[OURS] = {count: _rate(count, max(times)) for count, times in ours.items()}
    return lines


def _rate(count: int, microseconds: float) -> float:
    return 1e6 * count / microseconds


def _looks(recorded: Recorded) -> dict[str, Look]:
    """Return the style of each line, the same in all pictures; repeated colours get another dash and marker."""
    looks = {
        OURS: Look("currentColor", "", "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0", filled=True),
        ROOFLINE: Look("currentColor", "1 3", "", filled=False),
    }
    for number, name in enumerate(sorted({k.row.peer for k in recorded.kernels if k.row.peer}, key=peer_order)):
        cycle, k = divmod(number, len(COLOURS))
        dash, marker = DASHES[(k + 3 * cycle) % len(DASHES)], MARKERS[(k + cycle) % len(MARKERS)]
        looks[name] = Look(COLOURS[k], dash, marker, filled=not cycle)
    return looks


def panel(lines: Lines, unit: str, looks: Mapping[str, Look]) -> str:
    """Return one panel as an SVG element in the colour of the surrounding text."""
    names = [name for name in (OURS, *lines.points, ROOFLINE) if lines.points.get(name)]
    names = list(dict.fromkeys(names))
    names = [*(n for n in names if n != ROOFLINE), *(n for n in names if n == ROOFLINE)]
    legend, height = _legend(names, lines.wrong, looks)
    x = _axis([count for name in names for count in lines.points[name]], LEFT, WIDTH - RIGHT)
    y = _axis([rate for name in names for rate in lines.points[name].values()], HEIGHT - BOTTOM, TOP)
    body = [
        *_frame(lines.title, unit, x, y),
        *(piece for name in names for piece in _line(lines.points[name], looks[name], x, y)),
    ]
    alt = escape(f"{lines.title}: {unit} per second against size, with the roofline")
    total = HEIGHT + height
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {total}" width="{WIDTH}" height="{total}" role="img" '
        f'aria-label="{alt}">{"".join(body)}{legend}</svg>'
    )


@dataclass(frozen=True, slots=True)
class Axis:
    """A logarithmic axis from one power of ten to another."""

    low: int
    high: int
    start: int
    end: int

    def at(self, value: float) -> float:
        """Return the coordinate of a value."""
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return round(self.start + (self.end - self.start) * share, 1)

    @property
    def ticks(self) -> list[int]:
        """Return the exponents of the labelled powers of ten."""
        return list(range(self.low, self.high + 1))


def _axis(values: Sequence[float], start: int, end: int) -> Axis:
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return Axis(low, max(high, low + 1), start, end)


def _frame(title: str, unit: str, x: Axis, y: Axis) -> Iterator[str]:
    yield f'<text x="{LEFT}" y="15">{escape(title)}</text>'
    for power in x.ticks:
        at = x.at(10.0**power)
        yield f'<path class="g" d="M{at},{TOP}V{HEIGHT - BOTTOM}"/><text class="t" x="{at}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">{_named(power)}</text>'
    for power in y.ticks:
        at = y.at(10.0**power)
        yield f'<path class="g" d="M{LEFT},{at}H{WIDTH - RIGHT}"/><text class="t" x="{LEFT - 5}" y="{at + 4}" text-anchor="end">{_named(power)}</text>'
    yield f'<path class="a" fill="none" d="M{LEFT},{TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>'
    yield f'<text class="t" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">{escape(unit)} per call</text>'
    middle = (TOP + HEIGHT - BOTTOM) / 2
    yield f'<text class="t" transform="translate(12,{middle})rotate(-90)" text-anchor="middle">{escape(unit)} per second</text>'


def _named(power: int) -> str:
    """Format a power of ten with a prefix: 10k, 1M."""
    base = min(max(3 * (power // 3), 0), 12)
    return f"{10 ** (power - base):g}{PREFIXES[base]}"


def _line(points: Mapping[int, float], look: Look, x: Axis, y: Axis) -> Iterator[str]:
    coordinates = [(x.at(count), y.at(rate)) for count, rate in sorted(points.items())]
    dash = f' stroke-dasharray="{look.dash}"' if look.dash else ""
    yield f'<polyline class="l" stroke="{look.colour}"{dash} points="{" ".join(f"{a},{b}" for a, b in coordinates)}"/>'
    if look.marker:
        fill = look.colour if look.filled else "none"
        marks = "".join(f'<path transform="translate({a},{b})" d="{look.marker}"/>' for a, b in coordinates)
        yield f'<g class="m" fill="{fill}" stroke="{look.colour}">{marks}</g>'


def _legend(names: Sequence[str], wrong: Sequence[str], looks: Mapping[str, Look]) -> tuple[str, int]:
    """Return the legend below the panel, two names per line, and its height."""
    items = [(name, looks.get(name)) for name in names] + [(f"{name}: graded wrong, not timed", None) for name in wrong]
    pieces = []
    row = column = 0
    for name, look in items:
        if look is None and column:  # a long name has a line of its own
            row, column = row + 1, 0
        left, top = LEFT - 40 + column * (WIDTH // 2 - 10), HEIGHT + row * LEGEND + 4
        if look:
            dash = f' stroke-dasharray="{look.dash}"' if look.dash else ""
            pieces.append(f'<path class="l" stroke="{look.colour}"{dash} d="M{left},{top}h30"/>')
            if look.marker:
                fill = look.colour if look.filled else "none"
                pieces.append(
                    f'<path class="m" fill="{fill}" stroke="{look.colour}" transform="translate({left + 15},{top})" d="{look.marker}"/>'
                )
        else:
            pieces.append(f'<text x="{left + 11}" y="{top + 4}">✗</text>')
        pieces.append(f'<text class="t" x="{left + 36}" y="{top + 4}">{escape(name)}</text>')
        row, column = (row, 1) if column == 0 and look else (row + 1, 0)
    return "".join(pieces), (row + bool(column)) * LEGEND + 4


def drawn(figure: Figure) -> str:
    """Return a picture as a standalone file, readable on light and on dark backgrounds."""
    sizes = [int(text.partition('height="')[2].partition('"')[0]) for text in figure.panels]
    rows = [sizes[start : start + COLUMNS] for start in range(0, len(sizes), COLUMNS)]
    width, height = WIDTH * min(COLUMNS, len(sizes)) + 16, sum(map(max, rows)) + 16
    panels = []
    for number, text in enumerate(figure.panels):
        row, column = divmod(number, COLUMNS)
        top = 8 + sum(max(heights) for heights in rows[:row])
        panels.append(text.replace("<svg ", f'<svg x="{8 + column * WIDTH}" y="{top}" ', 1))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">'
        f"<title>{escape(figure.caption)}</title><style>{ALONE}{STYLE}</style>{''.join(panels)}</svg>\n"
    )
