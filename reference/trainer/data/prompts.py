"""Prompts as tokens, each under its stable index: the place of its row in the source, which the sampler's draws are keyed by."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from reference.trainer.data.rows import DataError, Row


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt: its index in the source, its text and tokens, the expected answer if any, and the whole row."""

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
    """The tokens of a prompt; with `chat` by the tokenizer's own template with these options, up to where the answer starts.

    Raises:
        DataError: `chat` is asked for and the tokenizer has no template, or it does nothing with one of the options.
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


def absent(row: Mapping[str, Any], column: str, index: int, key: str) -> str:
    """What is said of a row without a column that the configuration names under this key."""
    names = sorted(map(str, row))
    near = difflib.get_close_matches(column, names, n=1)
    hint = f"did you mean {near[0]!r}? Set {key}" if near else f"name one in {key}"
    return f"row {index} has no column {column!r}; it has {', '.join(names) or 'none'}; {hint}"


def text_of(row: Mapping[str, Any], column: str, index: int, key: str) -> str:
    """The text in a column of a row.

    Raises:
        DataError: the row has no such column, no text in it, or one that no tokenizer takes.
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


def make(  # noqa: PLR0913  one for each key of [data] that makes a prompt
    rows: Sequence[Row],
    tokenizer: Any,
    *,
    prompt_column: str,
    answer_column: str,
    chat: bool,
    system: str,
    max_tokens: int,
    too_long: Literal["error", "drop"],
    options: Mapping[str, Any] | None = None,
) -> list[Prompt]:
    """Every row as a prompt. A row without an answer column has the answer None; a dropped row leaves the others' indices alone.

    Raises:
        DataError: a prompt is missing, no text, empty, or longer than `max_tokens` and not to be dropped.
    """
    prompts: list[Prompt] = []
    for index, row in enumerate(rows):
        text = text_of(row, prompt_column, index, "data.prompt_column")
        ids = encode(tokenizer, text, chat=chat, system=system, options=options)
        if not len(ids):
            raise DataError(f"row {index}: {prompt_column!r} has no tokens")
        if len(ids) > max_tokens:
            if too_long == "drop":
                continue
            raise DataError(
                f"row {index}: the prompt has {len(ids)} tokens, more than data.max_prompt_tokens = {max_tokens}; "
                "raise that, or set data.too_long = 'drop'"
            )
        prompts.append(Prompt(index, text, ids, row.get(answer_column), row))
    if not prompts:
        raise DataError(f"every prompt has more than data.max_prompt_tokens = {max_tokens} tokens")
    return prompts
