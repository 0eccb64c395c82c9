"""Learning curves: reading, deterministic drawing, and recorded curves in which every algorithm learns."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gates.cli.verbs import app
from gates.model import ConfigurationError
from gates.report.learning import WANTED_GAIN, is_learning_file, read_curves, render_curves
from gates_reference.algorithms import ALGORITHMS as LOSSES

ROOT = Path(__file__).resolve().parents[3]
MEASURED = {"reward": {*LOSSES, "best_of_n"}, "margin": {"dpo", "online_dpo"}}
ALGORITHMS = set().union(*MEASURED.values())
CONTROLS = {"grpo, rewards shuffled": "reward", "dpo, labels shuffled": "margin"}
RECORD = ROOT / "results" / "learning" / "curves.jsonl"


def line(**changes: Any) -> dict[str, Any]:
    facts = {"algorithm": "grpo", "seed": 0, "measure": "reward", "step": [0, 10], "reward": [0.3, 0.7]}
    return facts | {"start": 0.3, "end": 0.7} | changes


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Write two algorithms with rewards, one of them with two seeds, and one with margins."""
    path = tmp_path / "curves.jsonl"
    margin = line(algorithm="dpo", measure="margin", margin=[0.0, 0.5], start=0.0, end=0.5)
    lines = [line(), margin, line(seed=1), line(algorithm="rloo")]
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return path


class TestPicture:
    """The SVG."""

    def test_drawing_is_deterministic(self, file: Path, tmp_path: Path) -> None:
        """This holds on the command line too."""
        once, again = (render_curves(read_curves(file)) for _ in range(2))
        assert once == again
        done = CliRunner().invoke(app, ["report", str(file), "--out", str(tmp_path / "curves.svg")])
        assert done.exit_code == 0
        assert (tmp_path / "curves.svg").read_text() == once

    def test_every_algorithm_has_a_panel(self, file: Path) -> None:
        text = render_curves(read_curves(file))
        assert ">grpo<" in text
        assert ">rloo<" in text
        assert ">dpo<" in text

    def test_every_measure_has_an_axis(self, file: Path) -> None:
        """Rewards and margins have separate axes; without margins there is one axis."""
        names = [">mean reward of fresh samples<", ">margin of held-out pairs<"]
        assert [name in render_curves(read_curves(file)) for name in names] == [True, True]
        assert [name in render_curves([line()]) for name in names] == [True, False]

    @pytest.mark.parametrize(
        "text",
        [
            "{",
            "[]\n",
            '{"algorithm": "grpo"}\n',
            json.dumps(line(measure="margin")) + "\n",
            json.dumps(line(measure="seed")) + "\n",
        ],
        ids=["torn", "list", "lacking", "no-values", "no-measure"],
    )
    def test_another_file_is_refused_with_its_line(self, tmp_path: Path, text: str) -> None:
        path = tmp_path / "other.jsonl"
        path.write_text(text)
        assert not is_learning_file(path)
        with pytest.raises(ConfigurationError, match=r"other\.jsonl:1 is no "):
            read_curves(path)


class TestRecorded:
    """The curves recorded by `tools/learning.py`."""

    def test_picture_is_rendered_from_what_was_recorded(self) -> None:
        assert render_curves(read_curves(RECORD)) == RECORD.with_suffix(".svg").read_text()

    def test_every_algorithm_has_three_seeds(self) -> None:
        """Every algorithm above and two controls have three seeds, each within five minutes."""
        curves = read_curves(RECORD)
        names = {one["algorithm"] for one in curves}
        assert {name for name in names if name not in CONTROLS} == ALGORITHMS
        assert names >= set(CONTROLS)
        for name in names:
            assert sorted(one["seed"] for one in curves if one["algorithm"] == name) == [0, 1, 2]
        assert all(one["seconds"] <= 300 for one in curves)

    @pytest.mark.parametrize(("measure", "names"), MEASURED.items())
    def test_every_algorithm_gains(self, measure: str, names: set[str]) -> None:
        """The mean reward gains at least 0.3, or the preference margin of DPO and Online DPO at least 0.1."""
        curves = [one for one in read_curves(RECORD) if one["algorithm"] in names]
        assert len(curves) == 3 * len(names)
        for one in curves:
            assert one["measure"] == measure
            assert one[measure][0] == one["start"]
            assert one[measure][-1] - one["start"] >= WANTED_GAIN[measure], one

    def test_the_margin_does_not_depend_on_a_few_pairs(self) -> None:
        """At least three of four held-out pairs are ranked correctly at the end."""
        curves = [one for one in read_curves(RECORD) if one["algorithm"] in MEASURED["margin"]]
        assert all(one["preferred"][-1] >= 0.75 for one in curves), curves

    def test_shuffled_rewards_give_little_gain(self) -> None:
        """The control gains less than half as much as the algorithms."""
        control = [one for one in read_curves(RECORD) if one["algorithm"] == "grpo, rewards shuffled"]
        assert len(control) == 3
        for one in control:
            assert one["measure"] == "reward"
            assert one["end"] - one["start"] < WANTED_GAIN["reward"] / 2, one

    def test_shuffled_labels_give_almost_no_gain(self) -> None:
        """The control gains less than required, and less than a tenth of the gain with the true labels.

        The gain is not zero, because a right answer is in eight pairs and a wrong one in one. What is pushed down falls further than what is pushed
        up rises, so that the wrong answers sink a little, all of them, and the right one, pushed both ways, stays.
        """
        gains = {(one["algorithm"], one["seed"]): one["end"] - one["start"] for one in read_curves(RECORD)}
        for seed in (0, 1, 2):
            control = gains["dpo, labels shuffled", seed]
            assert control < WANTED_GAIN["margin"]
            assert control < gains["dpo", seed] / 10
