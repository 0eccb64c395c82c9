"""Updates whose gradient is not that of a loss of their tokens: no verdict is made of the coefficients."""

from __future__ import annotations

from gates.xray.reading import explained, optimizer, shift
from gates.xray.reading.context import Context
from gates.xray.reading.reading import Reading
from gates.xray.reading.words import share
from gates.xray.verdict.verdict import Verdict

MUCH = (
    1e-2  # share of the gradient: an entropy bonus or a router's loss without columns is smaller, and is fitted apart
)


def unexplained(context: Context, quantity: str) -> Verdict | None:
    """Return the verdict on gradients that are not those of the rows' log-probs, or of passes that were clipped; else None."""
    if count := optimizer.clipped_parts(context):
        sentence = (
            f"the norm was clipped {count} times in this update, so its passes are scaled by factors of their own"
        )
        return Verdict(quantity, "cannot tell", sentence, remedy="clip once, before the optimizer's step")
    if not explained.much_is_left(context):
        return next((_shifted(quantity, reading) for reading in shift.readings(context)), None)
    left = context.step.fit.unexplained
    sentence = (
        f"{share(left)} of the gradient is not that of the rows' log-probs, so the coefficients are not those of a loss"
    )
    return Verdict(quantity, "cannot tell", sentence, remedy="see what is not explained below")


def _shifted(quantity: str, reading: Reading) -> Verdict:
    sentence = "the coefficients are those of other scores than a loss of log-probs has"
    return Verdict(quantity, "wrong", sentence, reading.sentence, reading.because, reading.remedy, reading.numbers)
