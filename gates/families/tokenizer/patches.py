"""Functions that apply mutations; loaded in workers only. Each takes the original function and returns the mistaken one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Fn = Callable[..., Any]


def without_generation_prompt(original: Fn) -> Fn:
    """Forget the tokens that begin the assistant's turn."""

    def mistaken(tokenizer: Any, text: str, *, chat: bool, system: str = "") -> Any:
        if not chat:
            return original(tokenizer, text, chat=chat, system=system)
        message = [{"role": "user", "content": text}]
        return np.asarray(tokenizer.apply_chat_template(message, return_dict=False), np.int32)

    return mistaken


def stripped(original: Fn) -> Fn:
    """Strip the text."""
    return lambda tokenizer, text, **rest: original(tokenizer, text.strip(), **rest)


def without_special_tokens(original: Fn) -> Fn:  # noqa: ARG001  the mistake replaces the whole function
    """Decode without special tokens."""
    return lambda tokenizer, ids: tokenizer.decode(list(ids), skip_special_tokens=True)
