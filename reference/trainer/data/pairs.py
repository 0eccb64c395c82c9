"""Completions that come with the data as tokens, and which rows are too long."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from reference.trainer.data.prompts import Prompt
from reference.trainer.data.rows import DataError


def end_id(tokenizer: Any, eos_ids: Sequence[int]) -> int:
    """The token that ends a given completion: the tokenizer's own, the one its chat template ends a message with.

    A model may stop at several (`generation_config.json`; Qwen3's at <|im_end|> and <|endoftext|>), which say only where sampling
    ends. The first of those if the tokenizer has none of its own.
    """
    own = tokenizer.eos_token_id
    return eos_ids[0] if own is None else int(own)


def encode(tokenizer: Any, text: str, end: int) -> NDArray[np.int32]:
    """The tokens of a completion, the end token last."""
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
    """The prompts whose completions, in these columns, have at most `max_tokens` tokens each, the end token counted.

    None is cut: what makes an answer better may stand at its end, and two that begin alike would teach nothing.

    Raises:
        DataError: a completion is longer and not to be dropped, or nothing would be left.
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
