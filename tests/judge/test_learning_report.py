"""Learning curves: read, drawn the same way every time, and what is recorded says that every algorithm learns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gates.cli import app
from gates.model import ConfigurationError
from gates.report.learning import WANTED_GAIN, is_learning_file, read_curves, render_curves

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "results" / "learning" / "curves.jsonl"


def line(**changes: Any) -> dict[str, Any]:
    facts = {"algorithm": "grpo", "seed": 0, "step": [0, 10], "reward": [0.3, 0.7], "start": 0.3, "end": 0.7}
    return facts | changes


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Two algorithms, one with two seeds."""
    path = tmp_path / "curves.jsonl"
    lines = [line(), line(seed=1), line(algorithm="rloo")]
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return path


class TestPicture:
    """The SVG."""

    def test_same_bytes_every_time(self, file: Path, tmp_path: Path) -> None:
        """Through the command line too."""
        once, again = (render_curves(read_curves(file)) for _ in range(2))
        assert once == again
        done = CliRunner().invoke(app, ["report", str(file), "--out", str(tmp_path / "curves.svg")])
        assert done.exit_code == 0
        assert (tmp_path / "curves.svg").read_text() == once

    def test_every_algorithm_has_a_panel(self, file: Path) -> None:
        """Its name is text in the picture."""
        text = render_curves(read_curves(file))
        assert ">grpo<" in text
        assert ">rloo<" in text

    @pytest.mark.parametrize("text", ["{", "[]\n", '{"algorithm": "grpo"}\n'], ids=["torn", "list", "lacking"])
    def test_another_file_is_refused_with_its_line(self, tmp_path: Path, text: str) -> None:
        """It is not taken for one, and not read as one."""
        path = tmp_path / "other.jsonl"
        path.write_text(text)
        assert not is_learning_file(path)
        with pytest.raises(ConfigurationError, match=r"other\.jsonl:1 is no "):
            read_curves(path)


class TestRecorded:
    """What `.ci/learning.py` found."""

    def test_picture_is_rendered_from_what_was_recorded(self) -> None:
        """Byte for byte."""
        assert render_curves(read_curves(RECORD)) == RECORD.with_suffix(".svg").read_text()

    def test_every_algorithm_gains_over_three_seeds_within_five_minutes(self) -> None:
        """At least 0.3 of the mean reward."""
        curves = [one for one in read_curves(RECORD) if "shuffled" not in one["algorithm"]]
        assert len({one["algorithm"] for one in curves}) >= 9
        for one in curves:
            assert one["end"] - one["start"] >= WANTED_GAIN, one
            assert one["seconds"] <= 300, one
        for name in {one["algorithm"] for one in curves}:
            assert sorted(one["seed"] for one in curves if one["algorithm"] == name) == [0, 1, 2]

    def test_shuffled_rewards_teach_nothing(self) -> None:
        """The control stays below half of what the algorithms gain."""
        control = [one for one in read_curves(RECORD) if "shuffled" in one["algorithm"]]
        assert len(control) == 3
        for one in control:
            assert one["end"] - one["start"] < WANTED_GAIN / 2, one
