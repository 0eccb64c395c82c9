"""Completions that come with the data: which token ends them, and what happens to those that are too long."""

import pytest

from reference.trainer.data import pairs


class Letters:
    """A tokenizer whose tokens are the letters' numbers, and one token for the start of a text."""

    def __init__(self, own: int | None) -> None:
        self.eos_token_id = own

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return [1] * add_special_tokens + [ord(letter) for letter in text]


@pytest.mark.parametrize(
    ("own", "end"),
    [(151645, 151645), (151643, 151643), (None, 151643)],
    ids=["chat-model", "base-model", "no-own"],
)
def test_the_tokenizers_own_end_token_ends_a_completion(own: int | None, end: int) -> None:
    """Qwen3's model stops at both ids, its chat tokenizer ends a message with the larger; a tokenizer may have none."""
    tokenizer = Letters(own)
    found = pairs.end_id(tokenizer, (151643, 151645))
    assert found == end
    assert pairs.encode(tokenizer, "ab", found).tolist() == [97, 98, end]
