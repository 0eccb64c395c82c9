"""A tokenizer of texts whose words are ids, for trainers that take texts: nothing is lost between ids and texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

EOS = 2  # of the tiny models


def text(ids: Sequence[int]) -> str:
    """Return the text of ids; texts can be joined."""
    return "".join(f"{token} " for token in ids)


class Words:
    """A tokenizer of such texts; a chat is its messages, one after the other."""

    eos_token_ids = (EOS,)

    def __init__(self, pad: int | None = None) -> None:
        self.pad_token_id = pad

    def encode(self, words: str, **_: Any) -> list[int]:
        """Return the ids of a text."""
        return [int(word) for word in words.split()]

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        """Return the text of ids."""
        return text(ids)

    def apply_chat_template(self, messages: Sequence[Mapping[str, str]], **_: Any) -> list[int]:
        """Return the ids of a chat."""
        return [token for message in messages for token in self.encode(message["content"])]
