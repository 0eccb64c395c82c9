"""Mistakes in data: the order of prompts, their tokens, and the tokens of given completions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gates.families.patching import Fn, mutation
from gates_reference.trainer.data import order


@mutation
def epoch_order_repeated(original: Fn, *arguments: Any, **keywords: Any) -> Any:
    """Shuffle every epoch by the words of the first one."""
    seed, epoch, count = arguments
    return original(seed, epoch if epoch == order.SPLIT else 0, count, **keywords)


@mutation
def index_after_drop(original: Fn, *arguments: Any, **keywords: Any) -> Any:
    """Number the prompts that are left instead of the rows of the source."""
    made = original(*arguments, **keywords)
    return [replace(prompt, index=number) for number, prompt in enumerate(made)]


@mutation
def bos_missing(original: Fn, *arguments: Any, **keywords: Any) -> Any:
    """Encode a plain prompt without the tokens that the tokenizer adds."""
    tokenizer, text = arguments
    if keywords["chat"]:
        return original(*arguments, **keywords)
    return np.asarray(tokenizer.encode(text, add_special_tokens=False), np.int32)


@mutation
def pair_ends_with_first_eos(original: Fn, *arguments: Any, **keywords: Any) -> Any:
    """End a given completion with the first of the tokens that stop sampling."""
    _, eos_ids = arguments
    del original, keywords
    return eos_ids[0]
