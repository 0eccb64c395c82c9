"""The amounts that a gate requests of a model, and their cuts."""

from typing import Any

import numpy as np
import pytest

from gates.shrink import rollout_cut

Inputs = dict[str, Any]


def rollout(**changes: Any) -> Inputs:
    prompts = [[token, 5] for token in range(12)]
    return {"prompts": prompts, "samples": 4, "max_tokens": 8, "rows": None, "temperature": 0.7, **changes}


class TestCutting:
    """A cut is an upper bound on each call."""

    def test_a_call_is_limited_by_the_cut(self) -> None:
        """Prompts, samples and tokens are limited; the given inputs are not modified."""
        inputs = rollout()
        limited = rollout_cut.less(inputs, {"prompts": 2, "samples": 1, "max_tokens": 3})
        assert limited == {**inputs, "prompts": [[0, 5], [1, 5]], "samples": 1, "max_tokens": 3}
        assert inputs == rollout()

    def test_a_smaller_call_is_unchanged(self) -> None:
        """A cut never increases an amount."""
        for more in ({}, {"style": "plain"}):  # files of older versions name a style
            cut = {"prompts": 99, "samples": 99, "max_tokens": 99, **more}
            assert rollout_cut.less(rollout(), cut) == rollout()

    @pytest.mark.parametrize("inputs", [{"policy": np.zeros(3)}, {"prompts": [1, 2], "max_tokens": 8}], ids=str)
    def test_another_op_is_unchanged(self, inputs: Inputs) -> None:
        """Other ops may have inputs of the same names."""
        assert rollout_cut.less(inputs, {"prompts": 1, "max_tokens": 1}) == inputs

    def test_a_search_starts_at_the_largest_call(self) -> None:
        calls = [rollout(samples=1), rollout(max_tokens=96), {"policy": np.zeros(3)}]
        assert rollout_cut.largest(calls) == {"prompts": 12, "samples": 4, "max_tokens": 96}

    @pytest.mark.parametrize(
        ("cut", "text"),
        [
            ({}, ""),
            ({"prompts": 1, "samples": 2, "max_tokens": 3}, "each rollout cut to 1 prompt, 2 samples of each, 3 tokens"),
        ],
        ids=["none", "all"],
    )  # fmt: skip
    def test_a_cut_as_text(self, cut: dict[str, Any], text: str) -> None:
        assert rollout_cut.words(cut) == text


@pytest.mark.parametrize(
    ("inputs", "wanted"),
    [
        (rollout(), 12 * 4 * 8),
        (rollout(rows=np.zeros((3, 2), np.int64)), 3 * 8),
        ({"tokens": np.zeros((2, 5), np.int32), "lengths": np.array([5, 1])}, 10),
        ({"tables": {"loop": {"steps": 6, "prompts_per_step": 3},
                     "rollout": {"samples_per_prompt": 4, "max_tokens": 8}}}, 6 * 3 * 4 * 8),
        ({"policy": np.zeros(3)}, 0),
    ],
    ids=["rollout", "some rows", "scoring", "run", "no model"],
)  # fmt: skip
def test_tokens_are_rows_times_length(inputs: Inputs, wanted: int) -> None:
    """Over all calls: prompts × samples × tokens, times the steps of a run."""
    assert rollout_cut.tokens([inputs, inputs]) == 2 * wanted


class TestFewer:
    """The move tries small amounts first, because these are judged quickly."""

    def test_the_first_candidate_is_the_smallest(self) -> None:
        """One of each; ten draws, since a quick run takes a tenth of them."""
        first = next(rollout_cut.fewer({"prompts.count": 12, "cut.max_tokens": 8, "draws": 1000, "seed": 7}))
        assert first == {"prompts.count": 1, "cut.max_tokens": 1, "draws": 10, "seed": 7}

    def test_inputs_without_amounts_have_no_candidates(self) -> None:
        assert not list(rollout_cut.fewer({"beta": 0.5, "samples": 1, "draws": True}))
