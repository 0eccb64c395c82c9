"""What every test runs without: the surroundings of the CI that runs it, and waits for the disk. Where its marks are."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

APART = ("fast", "alone")  # `make test` runs these by themselves, from the files in which it finds the mark


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the slow tests, so that no processor waits for one at the end, and refuse a mark that make would not find.

    Raises:
        pytest.UsageError: a test has the mark, and its file does not say so.
    """
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    for item in items:
        for name in APART:
            if item.get_closest_marker(name) and f"mark.{name}" not in _text(item.path):
                raise pytest.UsageError(
                    f"{item.nodeid}: write `pytest.mark.{name}` in this file; make test looks there"
                )


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def _outside_github(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep runs inside tests from writing annotations and step summaries of their own."""
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _no_waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out fsync, which only a loss of power would show; a fifth of a small training run."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
