"""The section [rewards]: the reward functions and the keys of each."""

from typing import Annotated, Literal

from pydantic import Field

from gates_reference.trainer.config.sections import Number, Positive, Section


class Function(Section):
    """The keys of every reward function."""

    weight: float = 1.0


class Accuracy(Function):
    """1 if the final number of the completion equals the answer, else 0; an answer that is not one number is an error."""

    name: Literal["accuracy"]


class Format(Function):
    """1 if the completion has these tags in this order, each once, else 0."""

    name: Literal["format"]
    tags: list[str] = Field(min_length=1, default_factory=lambda: ["think", "answer"])


class Length(Function):
    """DAPO's over-long penalty: 0 up to `max_tokens` - `margin_tokens`, falling to -1 at `max_tokens` and beyond."""

    name: Literal["length"]
    max_tokens: Number
    margin_tokens: Number


class Diversity(Function):
    """1 - the mean overlap (Jaccard) of a completion's word n-grams with those of the others in its group."""

    name: Literal["diversity"]
    words: Number = 2


class Regex(Function):
    """1 if the pattern is found in the completion, else 0; a search is stopped after `limit_seconds`."""

    name: Literal["regex"]
    pattern: str
    limit_seconds: Positive = 0.5


class User(Function):
    """The user's own function: "package.module:function" or "./file.py:function"."""

    name: Literal["user"]
    function: str
    unscored: bool = False
    """Whether the function may return NaN or None, which mean "not scored"."""


AnyFunction = Annotated[Accuracy | Format | Length | Diversity | Regex | User, Field(discriminator="name")]


def _accuracy_alone() -> list[AnyFunction]:
    return [Accuracy(name="accuracy")]


class Rewards(Section):
    """The functions whose weighted sum is the reward."""

    functions: list[AnyFunction] = Field(min_length=1, default_factory=_accuracy_alone)
