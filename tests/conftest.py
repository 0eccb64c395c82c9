"""What every test runs without: the surroundings of the CI that runs it."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _outside_github(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep runs inside tests from writing annotations and step summaries of their own."""
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
