"""Prompts as tokens. A prompt's index is the place of its row in the source; the sampler's draws are keyed by it."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gates_reference.trainer.config import sections
from gates_reference.trainer.data.rows import DataError, Row


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt: its index in the source, its text and tokens, the expected answer if any, and the whole row."""

    index: int
    text: str
    ids: NDArray[np.int32]
    answer: Any
    row: Row


def _messages(text: str, system: str) -> list[dict[str, str]]:
    before = [{"role": "system", "content": system}] if system else []
    return [*before, {"role": "user", "content": text}]


def encode(
    tokenizer: Any, text: str, *, chat: bool, system: str = "", options: Mapping[str, Any] | None = None
) -> NDArray[np.int32]:
    """Return the tokens of a prompt; with `chat` as a user message in the tokenizer's template with these options.

    Raises:
        DataError: `chat` is true and the tokenizer has no template, or its template does not mention one of the options.
    """
    if not chat:
        return np.asarray(tokenizer.encode(text), np.int32)
    if getattr(tokenizer, "chat_template", None) is None:
        raise DataError("data.chat = true, but this tokenizer has no chat template; set data.chat = false")
    for name in options or ():
        if name not in str(tokenizer.chat_template):
            raise DataError(f"data.chat_options: the chat template of this tokenizer knows no {name!r}; remove it")
    ids = tokenizer.apply_chat_template(
        _messages(text, system), add_generation_prompt=True, return_dict=False, **(options or {})
    )
    return np.asarray(ids, np.int32)


def decode(tokenizer: Any, ids: Sequence[int]) -> str:
    """Return the text of a completion's tokens for rewards: special tokens and all spaces are kept, as sampled."""
    return str(tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))


def absent(row: Mapping[str, Any], column: str, index: int, key: str) -> str:
    """Return the message for a row that lacks the column which the configuration names under `key`."""
    names = sorted(map(str, row))
    near = difflib.get_close_matches(column, names, n=1)
    hint = f"did you mean {near[0]!r}? Set {key}" if near else f"name one in {key}"
    return f"row {index} has no column {column!r}; it has {', '.join(names) or 'none'}; {hint}"


def text_of(row: Mapping[str, Any], column: str, index: int, key: str) -> str:
    """Return the text in a column of a row.

    Raises:
        DataError: the row has no such column, or it holds no text, or text that no tokenizer accepts.
    """
    if column not in row:
        raise DataError(absent(row, column, index, key))
    text = row[column]
    if not isinstance(text, str):
        raise DataError(
            f"row {index}: {column!r} must be text, found {type(text).__name__}; with data.chat it becomes the user's message"
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"row {index}: {column!r} has half of a surrogate pair, U+{ord(text[error.start]):04X}, as character "
            f"{error.start}: no tokenizer takes it; write the whole character, or remove it"
        ) from None
    return text


def make(rows: Sequence[Row], tokenizer: Any, data: sections.Data) -> list[Prompt]:
    """Make a prompt of every row. Without an answer column the answer is None; dropped rows do not change the other indices.

    Raises:
        DataError: a prompt is missing, empty or no text, or it is longer than `max_prompt_tokens` and `too_long` is "error".
    """
    prompts: list[Prompt] = []
    for index, row in enumerate(rows):
        text = text_of(row, data.prompt_column, index, "data.prompt_column")
        ids = encode(tokenizer, text, chat=data.chat, system=data.system_prompt, options=data.chat_options)
        if not len(ids):
            raise DataError(f"row {index}: {data.prompt_column!r} has no tokens")
        if len(ids) > data.max_prompt_tokens:
            if data.too_long == "drop":
                continue
            raise DataError(
                f"row {index}: the prompt has {len(ids)} tokens, more than data.max_prompt_tokens = "
                f"{data.max_prompt_tokens}; raise that, or set data.too_long = 'drop'"
            )
        prompts.append(Prompt(index, text, ids, row.get(data.answer_column), row))
    if not prompts:
        raise DataError(f"every prompt has more than data.max_prompt_tokens = {data.max_prompt_tokens} tokens")
    return prompts
