"""Mutations of the text of prompts and completions; loaded in workers only."""

from __future__ import annotations

from typing import Any

import numpy as np

from gates.families.patching import Fn, mutation


@mutation
def without_generation_prompt(original: Fn, tokenizer: Any, text: str, *, chat: bool, system: str = "") -> Any:
    """Leave out the tokens that begin the assistant's turn."""
    if not chat:
        return original(tokenizer, text, chat=chat, system=system)
    message = [{"role": "user", "content": text}]
    return np.asarray(tokenizer.apply_chat_template(message, return_dict=False), np.int32)


@mutation
def stripped(original: Fn, tokenizer: Any, text: Any, **rest: Any) -> Any:
    """Strip the text."""
    return original(tokenizer, text.strip(), **rest)


@mutation
def without_special_tokens(_original: Fn, tokenizer: Any, ids: Any) -> Any:
    """Decode without special tokens."""
    return tokenizer.decode(list(ids), skip_special_tokens=True)
