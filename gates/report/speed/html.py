"""Render recorded speeds as one self-contained HTML page with inline pictures and without a script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from gates.report.speed.document import TITLE, document
from gates.report.speed.inline import Figure, Items, Paragraph, Table, in_html, width_of
from gates.report.speed.pictures import STYLE as PICTURE_STYLE
from gates.results.escape import visible
from gates.results.speed_file import SpeedResults

FOLDER = Path(__file__).parent / "page"


def render_page(runs: Iterable[SpeedResults]) -> str:
    """Return the page. Text from peers is escaped, and the content security policy allows no script."""
    recorded, sections = document(runs, whole=True)
    environment = Environment(loader=FileSystemLoader(FOLDER), autoescape=True, undefined=StrictUndefined)
    environment.trim_blocks = environment.lstrip_blocks = True
    environment.tests |= {
        "table": lambda part: isinstance(part, Table),
        "items": lambda part: isinstance(part, Items),
        "paragraph": lambda part: isinstance(part, Paragraph),
        "figure": lambda part: isinstance(part, Figure),
    }
    environment.filters |= {"inline": in_html, "width": width_of, "svg": Markup}
    style = (FOLDER / "style.css").read_text(encoding="utf-8") + PICTURE_STYLE.replace("text{", "svg text{") + "\n"
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    text = environment.get_template("speed.html.j2").render(
        title=TITLE,
        sections=sections,
        runs=recorded.runs,
        style=Markup(style),  # noqa: S704  our own file
        style_hash=f"sha256-{digest}",
    )
    return visible(text)
