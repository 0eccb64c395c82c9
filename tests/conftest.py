"""What every test runs without: the surroundings of the CI that runs it, and waits for the disk."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _outside_github(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep runs inside tests from writing annotations and step summaries of their own."""
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _no_waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out fsync, which only a loss of power would show; a fifth of a small training run."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
