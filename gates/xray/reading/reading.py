"""The answer to one question about an update."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["read", "attention", "cannot tell"]


@dataclass(frozen=True, slots=True)
class Reading:
    """The answer to one question about an update.

    Attributes:
        name: of the question, such as "prompt" or "second update".
        kind: "read": what the numbers show; "attention": they show what is seldom meant; "cannot tell": they do not decide.
        sentence: the answer.
        because: how it was decided, with the precision that was compared with.
        remedy: the note or the step that would tell; only where the numbers do not decide.
        numbers: behind the answer, as JSON has them.
    """

    name: str
    kind: Kind
    sentence: str
    because: str = ""
    remedy: str = ""
    numbers: Mapping[str, Any] = field(default_factory=dict)
