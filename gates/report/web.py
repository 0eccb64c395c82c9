"""What every HTML page has in common: frame, stylesheet, symbols, and a policy under which nothing is loaded."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from gates.report import statuses
from gates.results.escape import visible

FOLDER = Path(__file__).parent / "page"
SYMBOLS = {**statuses.SYMBOLS, "not judged": "·", "refused": "⊘"}  # colour is never the only sign


def environment() -> Environment:
    """Return the templates, which escape all text that is not marked as markup."""
    templates = Environment(loader=FileSystemLoader(FOLDER), autoescape=True, undefined=StrictUndefined)
    templates.trim_blocks = templates.lstrip_blocks = True
    return templates


def rendered(templates: Environment, name: str, *, script: str = "", more_style: str = "", **values: Any) -> str:
    """Return a page as one file.

    Args:
        templates: the environment, with the filters that the page uses.
        name: of the template.
        script: file of the only script that may run; without one none may.
        more_style: after the shared stylesheet.
        values: of the template.
    """
    style = (FOLDER / "style.css").read_text(encoding="utf-8") + more_style
    code = (FOLDER / script).read_text(encoding="utf-8") if script else ""
    text = templates.get_template(name).render(
        **values,
        symbols=SYMBOLS,
        style=Markup(style),  # noqa: S704  our own file
        style_hash=_hash(style),
        script=Markup(code),  # noqa: S704  our own file
        script_hash=_hash(code),
    )
    return visible(text)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
