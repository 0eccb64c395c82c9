"""Completions that come with the data as tokens."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


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
