"""The MLX trainer's way from texts to tokens and back, beside transformers' own."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gates_reference.trainer import model as models
from gates_reference.trainer.data import prompts

Array = np.ndarray[Any, Any]


def encode_prompts(*, model: Mapping[str, Any], texts: Sequence[str], chat: bool, by: str) -> dict[str, Any]:
    """The ids of every text, one after the other, and how many each has."""
    loaded = models.load(model)
    if by == "trainer":
        found = [prompts.encode(loaded.tokenizer, one, chat=chat).tolist() for one in texts]
    else:
        found = [_transformers(loaded.path, one, chat=chat) for one in texts]
    lengths = np.array([len(ids) for ids in found], np.int64)
    return {"ids": np.array([token for ids in found for token in ids], np.int64), "lengths": lengths}


def _transformers(path: str, one: str, *, chat: bool) -> list[int]:
    from transformers import AutoTokenizer  # noqa: PLC0415  seconds to import, for this op only

    tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False, local_files_only=True)
    if not chat:
        return list(tokenizer(one)["input_ids"])
    message = [{"role": "user", "content": one}]
    text = tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=False)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def decode_tokens(*, model: Mapping[str, Any], ids: Array, lengths: Array) -> dict[str, Any]:
    """The text of each row of ids."""
    tokenizer = models.load(model).tokenizer
    parts = np.split(ids, np.cumsum(lengths)[:-1])
    return {"texts": [prompts.decode(tokenizer, part.tolist()) for part in parts]}


OPS: dict[str, Callable[..., dict[str, Any]]] = {"encode_prompts": encode_prompts, "decode_tokens": decode_tokens}
