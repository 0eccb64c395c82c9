"""Render recorded speeds as one self-contained HTML page with inline pictures and without a script."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup

from gates.report import web
from gates.report.speed.document import TITLE, document
from gates.report.speed.inline import Figure, Items, Paragraph, Table, in_html, width_of
from gates.report.speed.pictures import STYLE as PICTURE_STYLE
from gates.results.speed_file import SpeedResults


def render_page(runs: Iterable[SpeedResults]) -> str:
    """Return the page. Text from peers is escaped, and the content security policy allows no script."""
    recorded, sections = document(runs, whole=True)
    templates = web.environment()
    templates.tests |= {
        "table": lambda part: isinstance(part, Table),
        "items": lambda part: isinstance(part, Items),
        "paragraph": lambda part: isinstance(part, Paragraph),
        "figure": lambda part: isinstance(part, Figure),
    }
    templates.filters |= {"inline": in_html, "width": width_of, "svg": Markup}
    style = PICTURE_STYLE.replace("text{", "svg text{") + "\n"
    return web.rendered(
        templates, "speed.html.j2", more_style=style, title=TITLE, sections=sections, runs=recorded.runs
    )
