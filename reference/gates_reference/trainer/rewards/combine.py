"""Apply all reward functions to all samples, and check the results; errors name the function and the sample."""

import contextlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gates_reference.trainer.algorithms import protocol
from gates_reference.trainer.config.errors import TrainerError
from gates_reference.trainer.rewards import builtin, user
from gates_reference.trainer.rewards.samples import Reward, Sample


class RewardError(TrainerError):
    """A reward function failed; the message names it and the sample."""


@dataclass(frozen=True, slots=True)
class Function:
    """A reward function with its name and weight; `unscored` permits NaN, `kind` is its name in the configuration."""

    name: str
    weight: float
    score: Reward
    unscored: bool = False
    kind: str = "user"


MAKERS: dict[str, Callable[[Any], Reward]] = {
    "accuracy": lambda _: builtin.accuracy(),
    "format": lambda f: builtin.format_(f.tags),
    "length": lambda f: builtin.length(f.max_tokens, f.margin_tokens),
    "diversity": lambda f: builtin.diversity(f.words),
    "regex": lambda f: builtin.regex(f.pattern, f.limit_seconds),
    "user": lambda f: user.reward(f.function),
}


def functions(settings: Sequence[Any]) -> list[Function]:
    """Create the functions of the section [rewards]; functions of the same name are numbered.

    Raises:
        ValueError: a pattern, a length or a user's function is wrong.
    """
    created: list[Function] = []
    for setting in settings:
        name = setting.function.rpartition(":")[2] if setting.name == "user" else setting.name
        same = sum(function.name.partition("#")[0] == name for function in created)
        label = f"{name}#{same + 1}" if same else name
        created.append(
            Function(
                label, setting.weight, MAKERS[setting.name](setting), getattr(setting, "unscored", False), setting.name
            )
        )
    return created


def _describe(sample: Sample) -> str:
    return f"prompt {sample.prompt[-80:]!r}, completion {sample.completion[:80]!r}"


def _culprit(function: Function, samples: Sequence[Sample]) -> Sample | None:
    """Return the first sample on which the function fails alone; None if it fails only on all samples together."""
    for sample in samples:
        try:
            function.score([sample])
        except Exception:  # noqa: BLE001  whatever it raises, this is the sample
            return sample
    return None


def column(function: Function, samples: Sequence[Sample]) -> NDArray[np.float64]:
    """Return one function's rewards of the samples, (R,), NaN for "not scored".

    Raises:
        RewardError: it raised, or returned another number of values, no numbers, an infinity, or NaN without `unscored`.
    """
    try:
        returned = function.score(samples)
        values = (
            list(returned)
            if isinstance(returned, Iterable) and not isinstance(returned, str | bytes | Mapping)
            else None
        )
    except Exception as error:  # a user's function may raise anything
        culprit = _culprit(function, samples)
        where = "the whole batch" if culprit is None else _describe(culprit)
        raise RewardError(f"reward {function.name!r} raised {type(error).__name__}: {error} ({where})") from error
    if values is None:
        raise RewardError(
            f"reward {function.name!r} gave {returned!r} of type {type(returned).__name__}, must be a list with one number a completion"
        )
    if len(values) != len(samples):
        raise RewardError(
            f"reward {function.name!r} gave {len(values)} values, must be {len(samples)}, one a completion"
        )
    return np.array([_number(function, v, s) for v, s in zip(values, samples, strict=True)], np.float64)


def _number(function: Function, value: Any, sample: Sample) -> float:
    number: float | None = None
    with contextlib.suppress(TypeError, ValueError):
        number = math.nan if value is None else float(value)
    if number is None or isinstance(value, str | bytes):  # float("1") is a number, but may be a part of an answer
        kind = type(value).__name__
        raise RewardError(
            f"reward {function.name!r} gave {value!r} of type {kind}, must be a number ({_describe(sample)})"
        )
    if math.isinf(number) or (math.isnan(number) and not function.unscored):
        remedy = "; set unscored = true if NaN means 'not scored'" if math.isnan(number) else ""
        raise RewardError(f"reward {function.name!r} gave {number}, must be finite ({_describe(sample)}){remedy}")
    return number


def score(functions: Sequence[Function], samples: Sequence[Sample], group_size: int) -> protocol.Rewards:
    """Return every function's column, the weights, and which column is the accuracy."""
    values = np.stack([column(function, samples) for function in functions], axis=1)
    accuracy = [n for n, function in enumerate(functions) if function.kind == "accuracy"]
    return protocol.Rewards(
        values=values,
        weights=np.array([function.weight for function in functions], np.float64),
        group_size=group_size,
        lengths=np.array([sample.tokens for sample in samples], np.int64),
        accuracy=accuracy[0] if accuracy else None,
    )
