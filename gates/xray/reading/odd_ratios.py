"""What is said of a ratio that no definition has: to rounded log-probs, to a power, or upside down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gates.xray.reading import rounded
from gates.xray.reading.reading import Reading
from gates.xray.reading.shapes import Shape
from gates.xray.reading.words import number

FIT = "equal weights and ratios do not fit, these {} do"
FINE = "score old log-probs as the loss does, with the same types"
SOFT = "divide the logits by the temperature, before the log-softmax"


def reading(shape: Shape, names: Sequence[str], ratio: Reading, *, again: bool) -> Reading | None:
    """Return what is odd about the ratio of a shape; None where it is the old log-probs alone.

    Args:
        shape: of the tokens.
        names: whose log-probs it divides by.
        ratio: the reading without it.
        again: whether an earlier update trained these rows, so that the policy has moved as well.
    """
    if shape.inverse:
        return _inverse(names, ratio)
    if shape.power != 1.0:
        return _power(shape.power, names, ratio)
    return _rounded(names[0], ratio, again=again) if names[0].startswith(rounded.BY) else None


def _rounded(old: str, ratio: Reading, *, again: bool) -> Reading:
    """Return that the old log-probs are those of half precision."""
    type_of = old.removeprefix(rounded.BY)
    moves = (
        "rounding moves ratios, beside what the policy has moved"
        if again
        else "rounding alone moves ratios away from 1"
    )
    sentence = f"the ratio is to {old}, beside finer ones of the policy: {moves} (tokens weigh by ratios of {_span(ratio.numbers)})"
    because = f"the old log-probs by which a row's coefficients differ are numbers of {type_of}, all but for a constant"
    return Reading("ratio", "attention", sentence, because, FINE, {**ratio.numbers, "rounded": type_of})


def _power(power: float, names: Sequence[str], ratio: Reading) -> Reading:
    """Return that the ratio has an exponent."""
    sentence = (
        f"tokens weigh by their ratio to {' or '.join(names)} to the power {number(power)}: {_span(ratio.numbers)}"
    )
    if power > 0:
        sentence += (
            f", as where log-probs are divided by a temperature of {number(1.0 / power)} after the softmax "
            "(no distribution has such log-probs)"
        )
    numbers = {**ratio.numbers, "power": power}
    return Reading("ratio", "attention", sentence, FIT.format("powers of ratios"), SOFT if power > 0 else "", numbers)


def _inverse(names: Sequence[str], ratio: Reading) -> Reading:
    """Return that tokens weigh by the inverse of the ratio."""
    least, largest = (1.0 / ratio.numbers[name] for name in ("largest", "least"))
    numbers = {**ratio.numbers, "least": least, "largest": largest, "inverse": True}
    sentence = (
        f"the ratio is upside down, exp(old − new): tokens weigh by the inverse of their ratio to {' or '.join(names)}: "
        f"{_span(numbers)}; where gradients flow through it, rows are pushed against their advantages"
    )
    remedy = "the ratio is exp(new − old)"
    return Reading("ratio", "attention", sentence, FIT.format("inverse ratios"), remedy, numbers)


def _span(numbers: Mapping[str, Any]) -> str:
    return f"{number(numbers['least'])} to {number(numbers['largest'])}"
