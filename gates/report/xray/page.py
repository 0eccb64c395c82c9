"""Render an X-ray as one self-contained page without a script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gates.report import web
from gates.report.xray.rows import ShownRow, ShownToken, by_topic, shown, without_runs
from gates.report.xray.verdicts import told
from gates.xray.picture import Picture, Xray
from gates.xray.reading.reading import Reading
from gates.xray.reading.words import number, plural, share
from gates.xray.verdict import Verdict

PUSHED = {"up": "pushed up", "down": "pushed down", "mixed": "pushed both ways", "still": "does not train"}
QUIET = frozenset({"foreach", "fused", "capturable", "differentiable", "maximize", "params", "initial_lr"})


@dataclass(frozen=True, slots=True)
class Shown:
    """An update as the page has it."""

    number: int
    verdicts: Sequence[Verdict]
    loud: Sequence[Reading]
    topics: Sequence[tuple[str, Sequence[Reading]]]
    rows: Sequence[ShownRow]
    facts: Sequence[tuple[str, str]]


def page(xray: Xray) -> str:
    """Return the page: what was read, then each row's tokens on the colour of their coefficient.

    Text of the script is escaped, and the content security policy allows no script.
    """
    templates = web.environment()
    templates.filters |= {
        "number": number,
        "pushed": PUSHED.__getitem__,
        "shorter": without_runs,
        "classes": _classes,
        "text": _text,
        "told": told,
    }
    document = xray.updates[0].step.update.document if xray.updates else None
    return web.rendered(
        templates,
        "xray.html.j2",
        more_style=(web.FOLDER / "xray.css").read_text(encoding="utf-8"),
        model=document.model if document else "",
        head=_head(xray),
        problems=[*xray.recording.problems, *xray.recording.cannot],
        updates=[_shown(picture) for picture in xray.updates],
    )


def _head(xray: Xray) -> list[str]:
    recording = xray.recording
    made = (
        f"{len(xray.updates)} of {plural(recording.made, 'update')}"
        if recording.made
        else plural(len(xray.updates), "update")
    )
    dtypes = sorted({picture.step.update.document.dtype for picture in xray.updates})
    ranks = [f"{recording.world_size} ranks"] if recording.world_size > 1 else []
    return [part for part in (recording.framework, *dtypes, made, *ranks) if part]


def _shown(picture: Picture) -> Shown:
    loud = [reading for kind in ("attention", "cannot tell") for reading in picture.readings if reading.kind == kind]
    return Shown(
        picture.number, picture.verdicts, loud, by_topic(picture.readings), shown(picture.step), _facts(picture)
    )


def _facts(picture: Picture) -> list[tuple[str, str]]:
    """Return optimizer and settings, and how well the columns explain the gradient."""
    fit, document = picture.step.fit, picture.step.update.document
    groups = [_settings(group) for group in document.optimizer.groups]
    facts = [
        (document.optimizer.name if len(groups) == 1 else f"{document.optimizer.name}, group {index}", settings)
        for index, settings in enumerate(groups, 1)
    ]
    facts += [
        (
            "gradient",
            f"norm {number(document.gradient_norm)}, {share(fit.unexplained)} unexplained, {share(fit.rounding)} rounded by one backward pass",
        ),
        (
            "columns",
            f"{len(fit.coefficients)} of {document.trained.numbers:,} parameters, condition {number(fit.condition)}",
        ),
        ("temperature", number(document.temperature)),
    ]
    if document.outside:
        facts.append(("outside of the model", ", ".join(document.outside)))
    return facts


def _settings(group: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {number(value) if isinstance(value, float) else value}"
        for name, value in group.items()
        if name not in QUIET and value is not None and value is not False
    )


def _classes(token: ShownToken, row: ShownRow) -> str:
    """Return the classes of a token: its ground and level, and the rule where the completion begins."""
    ground = {"hidden": "hidden-token", "up": f"up l{token.level}", "down": f"down l{token.level}"}.get(
        token.ground, token.ground
    )
    return f"{ground} begin" if row.row.begin == token.number - 1 and row.row.begins != "coefficients" else ground


def _text(token: ShownToken) -> str:
    """Return the text of a token, its newlines as a sign."""
    text = token.text.replace("\n", "↵").replace("\t", "⇥")
    return f"{text} × {token.count}" if token.count > 1 else text
