"""docs/training.md: the table of model families is that of the recorded run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import model_families  # noqa: E402 - after the path

pytestmark = pytest.mark.fast


def test_the_document_shows_the_recorded_families() -> None:
    """Exactly the recorded families, with their results."""
    text = model_families.DOCUMENT.read_text(encoding="utf-8")
    shown = text.partition(model_families.START)[2].partition(model_families.END)[0]
    lines = model_families.recorded()
    assert shown.strip() == model_families.table(lines), "run tools/model_families.py, or render its table again"
    assert all(f"{line['family']}`" in shown or _escaped(line["family"]) in shown for line in lines[1:])


def _escaped(name: str) -> str:
    return name.replace("_", r"\_")


def test_most_families_train() -> None:
    """Most families of mlx-lm train."""
    head, *lines = model_families.recorded()
    assert head["versions"].keys() >= {"mlx", "mlx-lm"}
    assert sum(not line["problem"] for line in lines) >= 0.9 * len(lines)
