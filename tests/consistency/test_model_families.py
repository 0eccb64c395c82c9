"""The recorded run of model families."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import model_families  # noqa: E402 - after the path

pytestmark = pytest.mark.fast


def test_the_table_names_every_family() -> None:
    """Each recorded family stands in the table that docs/training.md shows."""
    families = model_families.recorded()
    shown = model_families.table(families).replace("\\_", "_")
    assert [line["family"] for line in families[1:] if line["family"] not in shown] == []


def test_most_families_train() -> None:
    head, *lines = model_families.recorded()
    assert head["versions"].keys() >= {"mlx", "mlx-lm"}
    assert sum(not line["problem"] for line in lines) >= 0.9 * len(lines)
