"""Completions that come with the data: which token ends them, and what happens to those that are too long."""

import numpy as np
import pytest

from gates_reference.trainer.data import pairs
from gates_reference.trainer.data.prompts import Prompt
from gates_reference.trainer.data.rows import DataError


class Letters:
    """A tokenizer whose tokens are the letters' numbers, and one token for the start of a text."""

    def __init__(self, own: int | None) -> None:
        self.eos_token_id = own

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return [1] * add_special_tokens + [ord(letter) for letter in text]


@pytest.mark.parametrize(
    ("own", "end"), [(151645, 151645), (151643, 151643), (None, 151643)], ids=["chat-model", "base-model", "no-own"]
)
def test_the_tokenizers_own_end_token_ends_a_completion(own: int | None, end: int) -> None:
    """Qwen3's model stops at both ids, its chat tokenizer ends a message with the larger; a tokenizer may have none."""
    tokenizer = Letters(own)
    found = pairs.end_id(tokenizer, (151643, 151645))
    assert found == end
    assert pairs.encode(tokenizer, "ab", found).tolist() == [97, 98, end]


ROWS = [{"yes": "ab", "no": "a"}, {"yes": "", "no": "abcd"}, {"yes": "abc", "no": "abd"}]
"""The longest completions have 3, 5 and 4 tokens with their ends."""


def _fitting(max_tokens: int, *, drop: bool) -> list[int]:
    every = [Prompt(3 + n, "", np.ones(9, np.int32), None, row) for n, row in enumerate(ROWS)]
    kept = pairs.fitting(
        every, Letters(0), ("yes", "no"), 0, max_tokens=max_tokens, too_long="drop" if drop else "error"
    )
    return [prompt.index for prompt in kept]


class TestLength:
    """Completions are whole, or their row is told or dropped."""

    @pytest.mark.parametrize(("most", "kept"), [(5, [3, 4, 5]), (4, [3, 5]), (3, [3])])
    def test_rows_are_dropped_where_that_is_asked_for(self, most: int, kept: list[int]) -> None:
        """The end token counts, the prompt does not; the other rows keep their numbers."""
        assert _fitting(most, drop=True) == kept

    def test_the_row_is_named_with_its_length(self) -> None:
        assert _fitting(5, drop=False) == [3, 4, 5]
        with pytest.raises(
            DataError,
            match=r"^row 4: 'no' has 5 tokens with its end token, more than rollout\.max_tokens = 4; raise that, or set "
            r"data\.too_long = 'drop'$",
        ):
            _fitting(4, drop=False)

    def test_something_must_be_left(self) -> None:
        """Nothing to train on is an error, dropped or not."""
        with pytest.raises(
            DataError, match=r"every row has a completion with more than rollout\.max_tokens = 2 tokens"
        ):
            _fitting(2, drop=True)
