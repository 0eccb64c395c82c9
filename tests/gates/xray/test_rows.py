"""What is read of rows: who trains, weights within and between rows, the kind of training."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from recordings import PAD, Line, Made, Model, events, generated, lines, spread, write
from safetensors.numpy import load_file, save_file
from scenarios import (
    LENGTHS,
    advantages,
    by_token,
    constant,
    grpo,
    picture,
    row_mean,
    token_mean,
)

from gates.model import Array
from gates.xray.picture import Picture, read

Change = Callable[[int, Line, Array], None]


def said(shown: Picture, name: str) -> tuple[str, str]:
    """Return kind and sentence of a reading."""
    reading = shown.of(name)
    assert reading is not None, [each.name for each in shown.readings]
    return reading.kind, reading.sentence


def changed(made: Made, change: Change) -> Made:
    """Return an update with a mistake in each row's coefficients."""
    for index, (line, coefficients) in enumerate(zip(made.rows, made.coefficients, strict=True)):
        change(index, line, coefficients)
    return made


class TestCoefficients:
    """The fit."""

    def test_coefficients_are_those_of_the_loss(self, tmp_path: Path) -> None:
        """A token's coefficient is the derivative of the loss in its log-prob: −A/(N·length) for GRPO."""
        made = grpo()
        shown = picture(tmp_path, made)
        for index, wanted in enumerate(made.coefficients):
            places = shown.step.own(index)
            assert shown.step.of(index, places)[0] == pytest.approx(wanted[places], rel=1e-9)

    def test_sums_of_rows_include_tokens_that_rows_share(self, tmp_path: Path) -> None:
        """Rows that begin alike share columns; each gets its own weight of them, and sums to −A/N."""
        made = grpo()
        made.rows[1].completion[0] = made.rows[0].completion[0]
        shown = picture(tmp_path, made)
        sums = [np.nansum(shown.step.share(index)) for index in range(8)]
        assert sums == pytest.approx((-advantages() / 8).tolist(), rel=1e-6)

    def test_a_gradient_of_something_else_is_unexplained(self, tmp_path: Path) -> None:
        made = grpo()
        made.extra = 0.1 * np.linalg.norm(made.gradient()) * np.eye(1, made.model.flat.size).ravel()
        reading = picture(tmp_path, made).of("explained")
        assert reading is not None
        assert reading.kind == "attention"
        assert reading.numbers["unexplained"] == pytest.approx(0.1, rel=0.15)  # a sketch of 1,024 bins has norms to 5%

    @pytest.mark.parametrize(("coefficient", "kind"), [(-2e-3, "read"), (2e-3, "attention")], ids=["bonus", "penalty"])
    def test_an_entropy_bonus_is_read(self, coefficient: float, kind: str, tmp_path: Path) -> None:
        """A negative coefficient pushes the entropy up; a positive one is seldom meant."""
        made = grpo()
        made.entropy = coefficient
        shown = picture(tmp_path, made)
        reading = shown.of("the entropy")
        assert reading is not None
        assert reading.kind == kind
        assert reading.numbers["sum"] == pytest.approx(50 * coefficient, rel=1e-6)
        assert said(shown, "explained")[0] == "read"
        assert said(shown, "between rows")[0] == "read"

    def test_a_certain_token_has_no_number(self, tmp_path: Path) -> None:
        """Where the model is certain, the gradient of a log-prob is all rounding."""
        folder = write(tmp_path / "p", grpo())
        arrays = load_file(folder / "update-1.safetensors")
        arrays["sketch"][20] *= 1e-6
        save_file(arrays, folder / "update-1.safetensors")
        events(folder, generated())
        shown = read(tmp_path).updates[0]
        assert shown.step.fit.flat == (20,)
        assert said(shown, "flat")[1].startswith("1 token has no number, since the model is certain of it: row ")

    def test_equal_columns_have_no_number(self, tmp_path: Path) -> None:
        """Two columns that are the same vector under other keys cannot be told apart, and are named."""
        made = grpo()
        folder = write(tmp_path / "p", made)
        arrays = load_file(folder / "update-1.safetensors")
        last = arrays["sketch"].shape[0] - 1
        arrays["sketch"][last] = arrays["sketch"][last - 1]
        save_file(arrays, folder / "update-1.safetensors")
        events(folder, generated())
        shown = read(tmp_path).updates[0]
        assert shown.step.fit.inseparable == ((last - 1, last),)
        assert np.isnan(shown.step.fit.coefficients[[last - 1, last]]).all()
        assert (
            said(shown, "inseparable")[1]
            == "2 columns cannot be told apart and have no number: row 8 token 9 and row 8 token 10"
        )


class TestWhoTrains:
    """Prompt, completion, closing token, padding, truncated rows."""

    def test_grpo_trains_completions_only(self, tmp_path: Path) -> None:
        shown = picture(tmp_path, grpo())
        assert said(shown, "prompt") == ("read", "prompts do not train (7 tokens)")
        assert said(shown, "completion") == ("read", "every token of a completion trains")
        assert said(shown, "closing token") == ("read", "the closing token trains (8 rows)")
        assert said(shown, "padding") == ("read", "padding does not train")

    def test_a_trained_prompt_shows(self, tmp_path: Path) -> None:
        made = grpo()
        weights = row_mean(made.rows, advantages())

        def prompt(index: int, line: Line, coefficients: Array) -> None:
            coefficients[1 : len(line.prompt)] = weights[index]

        assert said(picture(tmp_path, changed(made, prompt)), "prompt") == ("attention", "prompts train: 7 of 7 tokens")

    def test_a_prompt_whose_rows_cancel_does_not_show(self, tmp_path: Path) -> None:
        """With a token mean Σ A = 0 within a group, so a trained prompt has coefficient 0 as well."""
        assert said(picture(tmp_path, grpo(token_mean)), "prompt")[0] == "cannot tell"

    def test_an_untrained_closing_token_shows(self, tmp_path: Path) -> None:
        def without(_: int, line: Line, coefficients: Array) -> None:
            coefficients[len(line.prompt) + line.length - 1] = 0.0

        shown = picture(tmp_path, changed(grpo(), without))
        assert said(shown, "closing token") == (
            "attention",
            "the closing token trains in no row, so the model does not learn to end",
        )
        assert said(shown, "between rows")[0] == "read"

    def test_a_hidden_closing_token_shows(self, tmp_path: Path) -> None:
        """The attention mask of ids ≠ pad hides the closing token where both have one id."""
        made = grpo()
        made.rows = [dataclasses.replace(line, hide=True) for line in made.rows]

        def without(_: int, line: Line, coefficients: Array) -> None:
            coefficients[len(line.prompt) + line.length - 1] = 0.0

        kind, sentence = said(picture(tmp_path, changed(made, without)), "closing token")
        assert (kind, "attention mask hides it" in sentence) == ("attention", True)

    def test_a_shifted_mask_shows(self, tmp_path: Path) -> None:
        def early(_: int, line: Line, coefficients: Array) -> None:
            coefficients[:-1] = coefficients[1:].copy()
            coefficients[-1] = 0.0

        assert said(picture(tmp_path, changed(grpo(), early)), "mask")[1].startswith("the mask is one token early")

    def test_a_token_that_does_not_train_is_counted(self, tmp_path: Path) -> None:
        def hole(index: int, line: Line, coefficients: Array) -> None:
            coefficients[len(line.prompt) + 2] *= index != 2

        kind, sentence = said(picture(tmp_path, changed(grpo(), hole)), "completion")
        assert (kind, sentence) == ("attention", "33 of 34 tokens inside of completions train; 1 does not, in row 3")

    def test_one_token_of_padding_without_a_mask_is_padding(self, tmp_path: Path) -> None:
        """A row ends by an id that nobody names, and is padded by one token that the attention mask shows."""
        rows = lines(LENGTHS)
        rows[1].completion[-2:] = [7, PAD]

        def short(index: int, line: Line, coefficients: Array) -> None:
            coefficients[len(line.prompt) + line.length - 1] *= index != 1

        made = changed(Made(Model.drawn(), rows, spread(rows, row_mean(rows, advantages()))), short)
        assert said(picture(tmp_path, made), "completion")[0] == "read"

    def test_a_hidden_row_that_begins_like_another_is_no_padding(self, tmp_path: Path) -> None:
        """A truncated row whose mask hides all of its completion has the column of the other's first token."""
        made = grpo()
        first, masked = made.rows[:2]
        first.completion[0] = masked.completion[0]
        tail = [*masked.completion, *[PAD] * masked.padding]
        hidden = dataclasses.replace(masked, completion=[], padding=0, tail=tail)
        made.coefficients[1][:] = 0.0
        shown = picture(tmp_path, dataclasses.replace(made, rows=[first, hidden, *made.rows[2:]]))
        assert said(shown, "padding") == ("read", "padding does not train")

    def test_trained_padding_shows(self, tmp_path: Path) -> None:
        def padding(_: int, line: Line, coefficients: Array) -> None:
            coefficients[len(line.prompt) + line.length :][:1] = 0.05

        assert said(picture(tmp_path, changed(grpo(), padding)), "padding")[0] == "attention"

    @pytest.mark.parametrize(("masked", "kind"), [(False, "read"), (True, "cannot tell")])
    def test_truncated_rows_are_named(self, masked: bool, kind: str, tmp_path: Path) -> None:
        """A row without closing token that is as long as the sampler was asked for."""
        rows = lines((12, 5, 9, 6, 4, 8, 6, 5))
        rows[0].completion[-1] = 7
        weights = row_mean(rows, advantages()) * np.array([not masked, *[True] * 7])
        got, sentence = said(picture(tmp_path, Made(Model.drawn(), rows, spread(rows, weights))), "truncated")
        assert (got, sentence[:41]) == (kind, "row 1 was cut off by the limit of tokens "[:41])

    def test_a_row_at_the_mean_of_its_group_is_untouched(self, tmp_path: Path) -> None:
        rows = lines(LENGTHS)
        weights = row_mean(rows, np.array([1.0, 0.0, -0.5, -0.5, 1.0, 1.0, -1.0, -1.0]))
        shown = picture(tmp_path, Made(Model.drawn(), rows, spread(rows, weights)))
        assert said(shown, "objective")[1] == "3 rows pushed up, 4 down, 1 untouched (row 2)"

    def test_equal_rewards_train_nothing(self, tmp_path: Path) -> None:
        rows = lines(LENGTHS)
        shown = picture(tmp_path, Made(Model.drawn(), rows, spread(rows, [0.0] * 8)))
        assert said(shown, "explained") == ("attention", "the gradient is 0: this update trains nothing")


class TestWeights:
    """Within and between rows."""

    @pytest.mark.parametrize(
        ("weigh", "way"),
        [(row_mean, "row mean"), (token_mean, "token mean"), (constant, "token mean")],
        ids=["row mean", "token mean", "constant"],
    )
    def test_aggregations_are_told_apart(self, weigh: Callable[..., Array], way: str, tmp_path: Path) -> None:
        """Σ A = 0 in a group holds for the sums of rows or for the weights of tokens, not for both."""
        shown = picture(tmp_path, grpo(weigh))
        reading = shown.of("between rows")
        assert reading is not None
        assert (reading.kind, reading.numbers["way"]) == ("read", way)
        assert said(shown, "within rows")[1].startswith("the trained tokens of a row weigh the same")

    def test_rows_of_equal_length_cannot_tell(self, tmp_path: Path) -> None:
        rows = lines([6] * 8)
        reading = picture(tmp_path, Made(Model.drawn(), rows, spread(rows, row_mean(rows, advantages())))).of(
            "between rows"
        )
        assert reading is not None
        assert (reading.kind, reading.remedy) == ("cannot tell", "record rows of different lengths")

    def test_noted_advantages_decide_without_a_mean_of_the_group(self, tmp_path: Path) -> None:
        rows = lines(LENGTHS)
        plain = np.array([1.0, 0.5, 2.0, 1.0, 0.2, 0.3, 1.5, 1.0])
        write(tmp_path / "p", Made(Model.drawn(), rows, spread(rows, row_mean(rows, plain))))
        note = {"event": "note", "update": 0, "advantages": plain.tolist()}
        events(tmp_path / "p", generated(), note)
        reading = read(tmp_path).updates[0].of("between rows")
        assert reading is not None
        assert reading.numbers["way"] == "row mean"

    @pytest.mark.parametrize(
        ("weigh", "divided_by", "kind"),
        [
            (row_mean, "rows", "read"),
            (lambda rows, a: 2 * row_mean(rows, a), None, "attention"),
            (token_mean, "tokens of the step", "read"),
            (constant, None, "read"),
        ],
        ids=["row mean", "not divided", "token mean", "constant"],
    )
    def test_noted_advantages_show_the_divisor(
        self, weigh: Callable[..., Array], divided_by: str | None, kind: str, tmp_path: Path
    ) -> None:
        """An accumulation that is not divided by its number of micro-batches is a common factor; only notes show it."""
        write(tmp_path / "p", grpo(weigh))
        events(tmp_path / "p", generated(), {"event": "note", "update": 0, "advantages": advantages().tolist()})
        reading = read(tmp_path).updates[0].of("between rows")
        assert reading is not None
        assert (reading.kind, reading.numbers["divided_by"]) == (kind, divided_by)

    def test_a_discount_shows(self, tmp_path: Path) -> None:
        rows = lines(LENGTHS)
        weights = row_mean(rows, advantages())
        made = Made(Model.drawn(), rows, by_token(rows, lambda i, t: weights[i] * 0.9**t))
        reading = picture(tmp_path, made).of("within rows")
        assert reading is not None
        assert reading.numbers["factor"] == pytest.approx(0.9, rel=1e-6)

    def test_weights_a_token_show_as_unlike(self, tmp_path: Path) -> None:
        rows = lines(LENGTHS)
        weights = row_mean(rows, advantages())
        made = Made(Model.drawn(), rows, by_token(rows, lambda i, t: weights[i] * (1.0 + (3 * i + 7 * t) % 5)))
        kind, sentence = said(picture(tmp_path, made), "within rows")
        assert (kind, sentence.startswith("the tokens of a row weigh unlike")) == ("attention", True)


class TestObjective:
    """Supervised training, preference pairs, policy gradients."""

    def supervised(self, weights: Callable[[list[Line]], Array]) -> Made:
        rows = lines(LENGTHS, group=1)
        for line in rows:
            line.seen = False
            line.labels = [-100] * len(line.prompt) + line.completion + [-100] * line.padding
        return Made(Model.drawn(), rows, spread(rows, weights(rows)))

    def test_supervised_training_pushes_every_row_up(self, tmp_path: Path) -> None:
        made = self.supervised(lambda rows: np.full(8, -1.0 / sum(line.length for line in rows)))
        shown = picture(tmp_path, made, sampled=False)
        assert said(shown, "objective") == ("read", "supervised: every row is pushed up (8 rows)")
        assert said(shown, "prompt") == ("read", "prompts do not train (28 tokens)")
        reading = shown.of("between rows")
        assert reading is not None
        assert reading.numbers["way"] == "token mean"

    def test_a_mean_of_each_micro_batch_shows(self, tmp_path: Path) -> None:
        """Accumulation without a common divisor: a token weighs more in a micro-batch with few."""
        made = self.supervised(
            lambda rows: np.array([-1.0 / sum(line.length for line in rows[i // 2 * 2 :][:2]) / 4 for i in range(8)])
        )
        reading = picture(tmp_path, made, sampled=False).of("between rows")
        assert reading is not None
        assert reading.numbers["way"] == "micro-batch mean"

    @pytest.mark.parametrize("unit", ["token", "row"])
    def test_preference_pairs_are_pushed_apart_by_as_much(self, unit: str, tmp_path: Path) -> None:
        """DPO: β·σ(−margin)·(−1, +1) for each token; SimPO divides by the length of the row."""
        rows = lines(LENGTHS, group=2, prompts=(5, 4, 6, 3))
        rows = [rows[i] for i in (0, 2, 4, 6, 1, 3, 5, 7)]
        for line in rows:
            line.seen = False
        weights = np.array([-0.1, -0.2, -0.05, -0.11, 0.1, 0.2, 0.05, 0.11])
        if unit == "row":
            weights = weights / np.array([line.length for line in rows])
        shown = picture(tmp_path, Made(Model.drawn(), rows, spread(rows, weights)), sampled=False)
        reading = shown.of("objective")
        assert reading is not None
        assert (reading.numbers["kind"], reading.numbers["unit"]) == ("preference", unit)
        assert reading.numbers["pairs"] == [[0, 4], [1, 5], [2, 6], [3, 7]]

    def test_rows_of_other_prompts_are_no_pairs(self, tmp_path: Path) -> None:
        """KTO pushes desirable and undesirable rows by as much at its start."""
        rows = lines(LENGTHS, group=1, prompts=(5, 4, 6, 3))
        for line in rows:
            line.seen = False
        made = Made(Model.drawn(), rows, spread(rows, [-0.1] * 4 + [0.1] * 4))
        reading = picture(tmp_path, made, sampled=False).of("objective")
        assert reading is not None
        assert reading.numbers["kind"] == "unpaired"

    def test_groups_of_two_that_were_sampled_are_no_preference_pairs(self, tmp_path: Path) -> None:
        rows = lines(LENGTHS, group=2, prompts=(5, 4, 6, 3))
        weights = row_mean(rows, np.array([1.0, -1.0] * 4))
        reading = picture(tmp_path, Made(Model.drawn(), rows, spread(rows, weights))).of("objective")
        assert reading is not None
        assert reading.numbers["kind"] == "policy gradient"


class TestDuplicates:
    """Equal completions of one prompt."""

    def test_equal_completions_are_counted_and_share_their_sum(self, tmp_path: Path) -> None:
        made = grpo()
        made.rows[1] = dataclasses.replace(made.rows[0])
        weights = row_mean(made.rows, advantages())
        made.coefficients = spread(made.rows, weights)
        shown = picture(tmp_path, made)
        assert said(shown, "duplicates") == ("read", "2 of 8 completions equal another one of their prompt")
        assert shown.step.weights[:2] == pytest.approx([weights[:2].mean()] * 2)

    def test_a_sampler_that_repeats_itself_needs_attention(self, tmp_path: Path) -> None:
        """A few short completions are equal by chance, most are not."""
        made = grpo()
        for index in (1, 2, 3, 5):
            made.rows[index] = dataclasses.replace(made.rows[index - index % 4])
        made.coefficients = spread(made.rows, row_mean(made.rows, advantages()))
        kind, sentence = said(picture(tmp_path, made), "duplicates")
        assert (kind, sentence) == ("attention", "6 of 8 completions equal another one of their prompt")
