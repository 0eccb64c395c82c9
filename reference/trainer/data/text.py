"""From tokens to the text that rewards read."""

from collections.abc import Sequence
from typing import Any


def decode(tokenizer: Any, ids: Sequence[int]) -> str:
    """The text of tokens, special tokens included and no space tidied away: what was sampled is what is judged."""
    return str(tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))
