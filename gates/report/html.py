"""Recorded runs as one HTML file that asks nothing of any network: a pure function of the files."""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Iterable
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from gates.baseline import Changes
from gates.report import calibration_plot, changes
from gates.report.page_data import STATUSES, Page, gather
from gates.report.sensitivity_plot import plot
from gates.report.visible import visible

FOLDER = Path(__file__).parent / "page"
MOST_REASONS = 300  # the matrix has the rest; a page of a hundred thousand reasons is read by nobody
SYMBOLS = {"pass": "✓", "fail": "✗", "departs": "≠", "error": "!", "skipped": "–", "unsupported": "·", "waived": "⚑"}


def render_html(paths: Iterable[Path], changed: Changes | None = None) -> str:
    """Return the page of one or more files, and of what changed since a baseline.

    Whatever comes from a subject is text: the template escapes it, the script sets it as text content, and the policy
    lets nothing run but our own script, known by its hash.
    """
    page = gather(paths)
    environment = Environment(loader=FileSystemLoader(FOLDER), autoescape=True, undefined=StrictUndefined)
    environment.trim_blocks = environment.lstrip_blocks = True
    style, script = ((FOLDER / name).read_text(encoding="utf-8") for name in ("style.css", "script.js"))
    text = environment.get_template("page.html.j2").render(
        page=page,
        style=Markup(style),  # noqa: S704  our own file
        style_hash=_hash(style),
        script=Markup(script),  # noqa: S704  our own file
        script_hash=_hash(script),
        data=Markup(page.as_json()),  # noqa: S704  `as_json` writes <, > and & as escapes
        counts=[(status, count) for status in STATUSES if (count := page.counted()[status])],
        symbols=SYMBOLS,
        reasons=_reasons(page),
        most=MOST_REASONS,
        changed=_changed(changed) if changed else None,
        counterexamples=[(run.name, found) for run in page.runs for found in run.counterexamples],
        quote=shlex.quote,
        calibrations=_calibrations(page),
        plot=plot(page.sensitivities),
    )
    return visible(text)


def _reasons(page: Page) -> list[tuple[str, str, str, int, str]]:
    """Return subject, gate, status, number of cases and first reason of what did not hold, failures first."""
    order = {status: place for place, status in enumerate(("error", "fail", "departs", "waived"))}
    keys = sorted(page.first, key=lambda key: (order[key[2]], key))
    return [
        (subject, gate, status, page.counts[gate, subject][status], page.first[subject, gate, status])
        for subject, gate, status in keys
    ]


def _changed(found: Changes) -> dict[str, object]:
    return {
        "since": found.since,
        "when": changes.when(found),
        "count": changes.count(found),
        "settings": found.settings,
        "lines": [line.partition(": ")[::2] for line in changes.listed(found)],
    }


def _calibrations(page: Page) -> list[tuple[str, calibration_plot.Plot]]:
    """Return the picture of each run that calibrated, with the run's file."""
    found = [(run.name, calibration_plot.plot(run.blocks, full=run.header.full)) for run in page.runs if run.blocks]
    return [(name, picture) for name, picture in found if picture]


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
