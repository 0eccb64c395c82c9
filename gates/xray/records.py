"""The JSON document of an X-ray: what `gates xray --out X.json` writes and `--baseline` reads."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class XrayRecord(BaseModel):
    """What a recording shows."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = 1
    framework: str
