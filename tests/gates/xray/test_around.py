"""What is read of what happens around an optimizer's step: clips between passes, steps without gradient, other changes of weights."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recordings import Made, Model, lines, spread
from scenarios import GROUP, LENGTHS, advantages, grpo, picture, row_mean, second
from scripted import SCRIPTS, run_torch

from gates.model import Array
from gates.xray.picture import Picture, read

LIMIT = 0.5
FACTORS = (0.02, 0.25)  # of the first and the second pass, of four rows each


def said(shown: Picture, name: str) -> tuple[str, str]:
    """Return kind and sentence of a reading that must be there."""
    reading = shown.of(name)
    assert reading is not None, [each.name for each in shown.readings]
    return reading.kind, reading.sentence


def names(shown: Picture) -> set[str]:
    """Return the readings that need attention."""
    return {reading.name for reading in shown.readings if reading.kind == "attention"}


def clips(*norms: tuple[float, int], limit: float = LIMIT) -> list[dict[str, float]]:
    """Return clips as a document has them, from their norms and the passes before them."""
    return [{"norm": norm, "limit": limit, "passes": passes} for norm, passes in norms]


class TestClips:
    """The norm is clipped between the passes of an update."""

    def made(self, *norms: tuple[float, int], factors: Sequence[float] = FACTORS) -> tuple[Made, Made]:
        """Two updates with a KL, whose passes of four rows have factors of their own in the second."""
        first, later = second(lines(LENGTHS), advantages(), bounds=(0.8, 1.2), beta=0.5, step=0.15)
        later.call = GROUP
        later.coefficients = [factors[row // GROUP] * values for row, values in enumerate(later.coefficients)]
        later.document = {
            "gradient_norm": LIMIT,
            "clip": {"norm": norms[-1][0], "limit": LIMIT},
            "clips": clips(*norms),
        }
        return first, later

    def test_earlier_passes_are_scaled_again(self, tmp_path: Path) -> None:
        """The rows of each pass have its factor, and divided by it they are what the loss gave them."""
        shown = picture(tmp_path, *self.made((LIMIT / 0.08 - 1e-6, 1), (2.0 - 1e-6, 2), (LIMIT, 2)))
        kind, sentence = said(shown, "clip of the norm")
        assert kind == "attention"
        assert sentence.startswith("the norm was clipped 2 times before this step")
        assert sentence.endswith("again and again: rows 1, 2, 3 and 4 by 0.02, rows 5, 6, 7 and 8 by 0.25")
        assert names(shown) == {"clip of the norm"}
        penalty = shown.of("KL")
        assert penalty is not None
        assert penalty.numbers["beta"] == pytest.approx(0.5, rel=1e-3)

    def test_coefficients_are_shown_as_they_are(self, tmp_path: Path) -> None:
        made = self.made((LIMIT / 0.08 - 1e-6, 1), (2.0 - 1e-6, 2))
        shown = picture(tmp_path, *made)
        row, weights = shown.step.rows[0].row, made[1].coefficients[0]
        last = len(made[1].rows[0].prompt) + 1
        assert shown.step.fit.coefficients[row.columns[last]] == pytest.approx(weights[last], rel=1e-4)

    def test_clips_of_each_pass_by_itself(self, tmp_path: Path) -> None:
        """As of gradients that are added after they were clipped: the optimizer receives another norm than the last clip left."""
        first, later = self.made((5.0, 1), (2.0, 2))
        later.document["gradient_norm"] = 0.7
        kind, sentence = said(picture(tmp_path, first, later), "clip of the norm")
        assert (kind, sentence.endswith("the rows of each pass are scaled by a factor of their own")) == (
            "attention",
            True,
        )

    @pytest.mark.parametrize(
        "norms",
        [((2.0, 2),), ((2.0, 1), (LIMIT, 2)), ((0.1, 1), (2.0, 2)), ((2.0, 2), (LIMIT, 2))],
        ids=["once", "before a pass that adds nothing", "without effect", "twice"],
    )
    def test_one_clip_of_the_whole_gradient(self, norms: Sequence[tuple[float, int]], tmp_path: Path) -> None:
        """A pass after a clip may be another's: it is part of the gradient only where the norm has changed."""
        first, later = self.made(*norms, factors=(0.25, 0.25))
        assert said(picture(tmp_path, first, later), "clip of the norm")[0] == "read"


class TestWeights:
    """Weights are not those that the update before has left."""

    def shown(self, folder: Path, begun: Array, left: Array, **document: Any) -> Picture:
        """Read a second update that begins with some weights, after one that has left others."""
        rows = lines(LENGTHS)
        weights = row_mean(rows, advantages())
        first = Made(Model.drawn(), rows, spread(rows, weights), after=left)
        later = Made(Model(begun), list(rows), spread(rows, weights), 2, document=document, start=first.model)
        return picture(folder, first, later)

    def moved(self) -> tuple[Array, Array]:
        """Return weights that are numbers of bfloat16, and what a small step makes of them."""
        flat = rounded(Model.drawn().flat)
        return flat, flat + np.random.default_rng(4).normal(0.0, 1e-3, flat.shape)

    def test_rounding_is_named(self, tmp_path: Path) -> None:
        _, left = self.moved()
        kind, sentence = said(self.shown(tmp_path, rounded(left), left), "weights")
        assert (kind, sentence) == (
            "attention",
            "weights changed between updates 1 and 2 outside of the optimizer, as by rounding to bfloat16",
        )

    def test_rounding_to_half_precision_is_named(self, tmp_path: Path) -> None:
        _, left = self.moved()
        begun = left.astype(np.float16).astype(np.float64)
        assert said(self.shown(tmp_path, begun, left), "weights")[1].endswith("as by rounding to float16")

    @pytest.mark.parametrize("halves", [False, True], ids=["float32", "bfloat16"])
    def test_weights_from_elsewhere_are_not_called_rounded(self, halves: bool, tmp_path: Path) -> None:
        """A moving average, or a checkpoint in bfloat16: they are further away than a rounding."""
        flat, left = self.moved()
        begun = 0.5 * flat + 0.5 * left
        begun = rounded(begun + 0.1) if halves else begun
        kind, sentence = said(self.shown(tmp_path, begun, left), "weights")
        assert (kind, sentence) == ("attention", "weights changed between updates 1 and 2 outside of the optimizer")

    def test_an_update_that_is_not_kept(self, tmp_path: Path) -> None:
        flat = Model.drawn().flat
        sentence = said(self.shown(tmp_path, flat, flat + 1e-3), "weights")[1]
        assert sentence.endswith("all are those before update 1, which was not kept")

    @pytest.mark.parametrize("document", [{}, {"missed": 1}, {"identity": "others"}], ids=["same", "missed", "others"])
    def test_nothing_is_said_of_weights_that_others_moved(self, document: dict[str, Any], tmp_path: Path) -> None:
        """The same but for a rounding; steps that were not recorded; other parameters."""
        _, left = self.moved()
        begun = left + 0.1 if document else left * (1.0 + 1e-7)
        assert self.shown(tmp_path, begun, left, **document).of("weights") is None


class TestEmptySteps:
    """The optimizer has made a step without gradient."""

    @pytest.mark.parametrize(("after", "kind"), [(True, "attention"), (False, "read")])
    def test_a_step_before_the_first_update(self, after: bool, kind: str, tmp_path: Path) -> None:
        """Before the model's first pass it makes the state, or quiets a scheduler."""
        made = grpo()
        made.document = {"empty": {"steps": 1, "after_passes": after}}
        sentence = "an optimizer step without a gradient came before update 1"
        assert said(picture(tmp_path, made), "empty step") == (kind, sentence)


class TestChance:
    """The pass that trains is not the same twice."""

    @pytest.mark.parametrize(("dropout", "such"), [(0.0, "such as dropout"), (0.1, "such as dropout of 0.1")])
    def test_chance_is_named(self, dropout: float, such: str, tmp_path: Path) -> None:
        kind, sentence = said(self.shown(tmp_path, chance=0.4, dropout=dropout), "explained")
        assert kind == "attention"
        assert f"; the pass that trains has chance in it, {such}: two of them" in sentence

    @pytest.mark.parametrize("chance", [None, 1e-5])
    def test_equal_passes_have_none(self, chance: float | None, tmp_path: Path) -> None:
        assert "chance" not in said(self.shown(tmp_path, chance=chance), "explained")[1]

    def shown(self, folder: Path, **document: Any) -> Picture:
        made = grpo()
        gradient = made.gradient()
        made.extra = np.random.default_rng(0).normal(size=len(gradient)) * np.linalg.norm(gradient) / 50.0
        made.document = document
        return picture(folder, made)


@pytest.mark.slow
def test_the_recorder_sees_them(tmp_path: Path) -> None:
    """A script of PyTorch with all three."""
    run_torch(tmp_path / "xray", [str(SCRIPTS / "torch_around.py")])
    updates = read(tmp_path / "xray").updates
    assert [names(each) & {"clip of the norm", "weights", "empty step"} for each in updates] == [
        {"clip of the norm", "empty step"},
        {"clip of the norm", "weights"},
    ]
    assert said(updates[0], "clip of the norm")[1].startswith("the norm was clipped 2 times before this step")
    assert "as by rounding to bfloat16" in said(updates[1], "weights")[1]


def rounded(values: Array) -> Array:
    """Return the nearest numbers of bfloat16."""
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.rint(mantissa * 256.0), exponent - 8)
