"""What is read of a KL that weighs all tokens of a row alike, and of ratios of whole rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from recordings import Line, Made, Model, lines, spread
from scenarios import GROUP, LENGTHS, advantages, picture, row_mean, second

from gates.model import Array
from gates.xray.reading.reading import Reading

ANOTHER = {"by": "another model", "model": "M", "update": 0}
RNG = 9


def moved(model: Model, by: float = 0.06) -> Model:
    """Return other weights."""
    return model.moved(np.random.default_rng(RNG).normal(0.0, by, model.flat.size))


def apart(rows: Sequence[Line], policy: Model, reference: Model) -> list[Array]:
    """Return policy − reference at the tokens of each completion."""
    return [
        (policy.log_probs(line.ids) - reference.log_probs(line.ids))[len(line.prompt) :][: line.length] for line in rows
    ]


def made(weights: Array, rows: Sequence[Line], reference: Model | None, *, model: Model | None = None) -> Made:
    """Return an update whose rows have these weights at every token, and a reference that was scored."""
    scored = [] if reference is None else [(ANOTHER, reference)]
    return Made(model or Model.drawn(), list(rows), spread(rows, weights), scored=scored)


def of(folder: Path, name: str, *updates: Made) -> Reading:
    """Return a reading of the last update, which must be there."""
    shown = picture(folder, *updates)
    reading = shown.of(name)
    assert reading is not None, [each.name for each in shown.readings]
    return reading


class TestConstant:
    """k1: its gradient is the same on every token, whatever the reference."""

    @pytest.mark.parametrize("bounds", [(0.0, 99.0), (0.8, 1.2)], ids=["unclipped", "clipped"])
    def test_beside_a_ratio_of_tokens(self, bounds: tuple[float, float], tmp_path: Path) -> None:
        updates = second(lines(LENGTHS), advantages(), beta=0.3, step=0.15, form=np.ones_like, bounds=bounds)
        updates[1].scored = [(ANOTHER, updates[0].model)]
        reading = of(tmp_path, "KL", *updates)
        assert (reading.kind, reading.numbers["forms"]) == ("attention", ["k1"])
        assert (reading.numbers["beta"], reading.numbers["averaged"]) == (pytest.approx(0.3, rel=1e-5), ["within rows"])
        assert reading.sentence.startswith("KL to another model by k1, β = 0.3, averaged within rows: a constant")

    def test_without_a_pass_of_a_reference_it_is_a_constant(self, tmp_path: Path) -> None:
        updates = second(lines(LENGTHS), advantages(), beta=0.3, step=0.15, form=np.ones_like)
        reading = of(tmp_path, "KL", *updates)
        assert (reading.kind, reading.sentence[:44]) == ("read", "a constant on every token, as a KL by k1 has")

    def test_beside_equal_tokens_it_is_what_the_sums_of_prompts_have_in_common(self, tmp_path: Path) -> None:
        """The mean over rows of log-ratios, at a first update: 0.05 / 8 on each token."""
        rows, model = lines(LENGTHS), Model.drawn()
        update = made((0.05 - advantages()) / 8, rows, model, model=model)
        reading = of(tmp_path, "KL", update)
        assert (reading.kind, reading.numbers["forms"]) == ("attention", ["k1"])
        assert reading.numbers["constant"] == pytest.approx(0.05 / 8, rel=1e-4)
        assert "β = 0.05 if rows are summed" in reading.sentence

    def test_it_leaves_the_advantages_of_a_row_mean(self, tmp_path: Path) -> None:
        rows, model = lines(LENGTHS), Model.drawn()
        update = made(row_mean(rows, advantages() - 0.05), rows, model, model=model)
        shown = picture(tmp_path, update)
        between, kl = shown.of("between rows"), shown.of("KL")
        assert between is not None
        assert between.numbers["way"] == "row mean"
        assert kl is not None
        assert kl.numbers["beta"] == pytest.approx(0.05, rel=1e-4)

    def test_rows_that_are_all_pushed_down_alike(self, tmp_path: Path) -> None:
        """All rewards are equal, so nothing is left but the KL."""
        rows, model = lines(LENGTHS), Model.drawn()
        reading = of(tmp_path, "KL", made(np.full(8, 0.001 / 8), rows, model, model=model))
        assert (reading.kind, "nothing else trains" in reading.sentence) == ("attention", True)

    def test_prompts_that_agree_roughly_do_not_tell(self, tmp_path: Path) -> None:
        """So small a constant that its precision is a percent."""
        rows, model = lines(LENGTHS), Model.drawn()
        reading = of(tmp_path, "KL", made((5e-4 - advantages()) / 8, rows, model, model=model))
        assert (reading.kind, reading.numbers["forms"]) == ("cannot tell", ["k1"])
        assert "a constant of 6.25e-5 on every token" in reading.sentence

    @pytest.mark.parametrize("shift", [-0.4, 0.4])
    def test_rewards_without_a_baseline_are_no_kl(self, shift: float, tmp_path: Path) -> None:
        """One constant for all prompts that is as large as the advantages, or pushes up."""
        rows, model = lines(LENGTHS), Model.drawn()
        update = made((np.sign(shift) * 0.3 - advantages()) / 8, rows, model, model=model)
        reading = picture(tmp_path, update).of("KL")
        assert reading is None or reading.kind == "cannot tell"

    def test_prompts_that_sum_to_other_numbers_are_no_kl(self, tmp_path: Path) -> None:
        rows, model = lines(LENGTHS), Model.drawn()
        offsets = np.repeat([0.05, 0.06], GROUP)
        reading = of(tmp_path, "KL", made((offsets - advantages()) / 8, rows, model, model=model))
        assert reading.kind == "cannot tell"


class TestSums:
    """A KL of the sum of a row's log-probs, beside a ratio of the row that a bound switches off."""

    @pytest.mark.parametrize(("form", "gradient"), [("k3", lambda x: 1.0 - np.exp(-x)), ("k2", lambda x: x)])
    def test_it_is_what_is_left_of_clipped_rows(self, form: str, gradient: type, tmp_path: Path) -> None:
        rows, policy = lines(LENGTHS), Model.drawn()
        reference = moved(policy)
        sums = np.array([values.sum() for values in apart(rows, policy, reference)])
        clipped = np.where(advantages() > 0, np.exp(sums) > 1.1, np.exp(sums) < 0.9)
        assert clipped.sum() >= 3
        weights = (np.where(clipped, 0.0, -advantages() * np.exp(sums)) + 0.04 * gradient(sums)) / 8
        reading = of(tmp_path, "KL", made(weights, rows, reference, model=policy))
        assert (reading.kind, reading.numbers["forms"], reading.numbers["averaged"]) == (
            "read",
            [form],
            ["over tokens"],
        )
        assert reading.numbers["beta"] == pytest.approx(0.04, rel=1e-3)
        assert set(np.flatnonzero(clipped)) <= set(reading.numbers["rows"])
        assert reading.sentence.startswith(f"KL to another model by {form} of the sums of rows, β = 0.04")

    def test_rows_of_advantages_alone_have_none(self, tmp_path: Path) -> None:
        """That the rows of each prompt sum to 0 excludes what weighs rows, so more is excluded than k2 and k3 of tokens."""
        rows, policy = lines(LENGTHS), Model.drawn()
        reading = of(tmp_path, "KL", made(-advantages() / 8, rows, moved(policy), model=policy))
        assert reading.sentence == "no KL to another model by k1, k2 or k3 shows, of tokens or of the sums of rows"

    def test_what_was_not_excluded_is_said(self, tmp_path: Path) -> None:
        rows, policy = lines(LENGTHS), Model.drawn()
        weights = np.random.default_rng(4).normal(size=8)
        reading = of(tmp_path, "KL", made(weights, rows, moved(policy), model=policy))
        assert reading.sentence.endswith("by k2 or k3 shows; one by k1, or of the sums of rows, may be there")


class TestRatio:
    """A ratio of whole rows."""

    @pytest.mark.parametrize("level", ["row product", "row mean"])
    def test_to_another_model(self, level: str, tmp_path: Path) -> None:
        """A first update whose rows another model, such as a quantised copy, has sampled and scored."""
        rows, policy = lines(LENGTHS), Model.drawn()
        sampler = moved(policy)
        logs = np.array([v.sum() if level == "row product" else v.mean() for v in apart(rows, policy, sampler)])
        reading = of(tmp_path, "ratio", made(-advantages() * np.exp(logs) / 8, rows, sampler, model=policy))
        assert (reading.kind, reading.numbers["level"], reading.numbers["old"]) == ("read", level, "another model")
        assert reading.numbers["largest"] == pytest.approx(np.exp(logs.max()), rel=1e-4)

    def test_a_bound_that_switches_all_rows_off_is_one_of_rows(self, tmp_path: Path) -> None:
        """A KL is all that is left; some tokens have moved against the bound that cut their rows."""
        first, later = second(lines(LENGTHS), advantages(), beta=0.5, bounds=(99.0, -1.0), step=0.1)
        sums = [values.sum() for values in apart(first.rows, later.model, first.model)]
        first.coefficients = spread(first.rows, -np.sign(sums) / 8)
        reading = of(tmp_path, "second update", first, later)
        assert (reading.kind, reading.numbers["level"]) == ("read", "row")
        assert reading.numbers["against"] > 0

    @pytest.mark.parametrize("level", ["row product", "row mean"])
    def test_one_row_that_no_bound_switches_off_shows_its_level(self, level: str, tmp_path: Path) -> None:
        rows, before = lines(LENGTHS), Model.drawn()
        policy = moved(before)
        logs = np.array([v.sum() if level == "row product" else v.mean() for v in apart(rows, policy, before)])
        weights = -np.abs(advantages()) * np.sign(logs) / 8  # each row has moved the way that it was pushed
        kept = np.arange(8) == np.abs(logs).argmin()
        first = Made(before, rows, spread(rows, weights))
        later = Made(policy, rows, spread(rows, np.where(kept, weights * np.exp(logs), 0.0)), number=2, start=before)
        reading = of(tmp_path, "second update", first, later)
        assert (reading.kind, reading.numbers["level"]) == ("read", level)
