"""Completions in the data: their tokens, and which rows are too long."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gates_reference.trainer.data.prompts import Prompt
from gates_reference.trainer.data.rows import DataError


def end_id(tokenizer: Any, eos_ids: Sequence[int]) -> int:
    """Return the token that ends a completion in the data: the tokenizer's own, else the first of `eos_ids`.

    A model may stop at several tokens (Qwen3 at <|im_end|> and <|endoftext|>), but those only end sampling; the tokenizer's own end
    token is the one with which its chat template ends a message.
    """
    own = tokenizer.eos_token_id
    return eos_ids[0] if own is None else int(own)


def encode(tokenizer: Any, text: str, end: int) -> NDArray[np.int32]:
    """Return the tokens of a completion with the end token."""
    return np.array([*tokenizer.encode(text, add_special_tokens=False), end], np.int32)


def fitting(
    every: Sequence[Prompt],
    tokenizer: Any,
    columns: Sequence[str],
    end: int,
    *,
    max_tokens: int,
    too_long: Literal["error", "drop"],
) -> list[Prompt]:
    """Return the prompts whose completions in these columns have at most `max_tokens` tokens, including the end token.

    Completions are never truncated: the difference between two answers may be at their ends.

    Raises:
        DataError: a completion is longer and `too_long` is "error", or no row would be left.
    """
    kept: list[Prompt] = []
    for prompt in every:
        lengths = {column: len(encode(tokenizer, prompt.row[column], end)) for column in columns}
        longest = max(columns, key=lengths.__getitem__)
        if lengths[longest] <= max_tokens:
            kept.append(prompt)
        elif too_long == "error":
            raise DataError(
                f"row {prompt.index}: {longest!r} has {lengths[longest]} tokens with its end token, more than "
                f"rollout.max_tokens = {max_tokens}; raise that, or set data.too_long = 'drop'"
            )
    if not kept:
        raise DataError(
            f"every row has a completion with more than rollout.max_tokens = {max_tokens} tokens; raise that"
        )
    return kept
