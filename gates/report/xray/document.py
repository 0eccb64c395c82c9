"""An X-ray as JSON."""

from __future__ import annotations

from typing import Any

from gates.xray import Xray
from gates.xray.records import XrayRecord


def record(xray: Xray) -> dict[str, Any]:
    """Return the document: everything that the screen and the page show, and each coefficient with its error."""
    return XrayRecord(framework=xray.recording.framework).model_dump(mode="json")


def schema() -> dict[str, Any]:
    """Return the JSON Schema of the document."""
    return XrayRecord.model_json_schema()
