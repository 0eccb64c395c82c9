"""A ratio that is upside down: exp(old − new) in place of exp(new − old)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gates.xray.reading import mistaken, shapes
from gates.xray.reading.shapes import Shape
from gates.xray.reading.tokens import Tokens
from gates.xray.step import Step

FORMS = ("k3", "k2")


def fitting(step: Step, tokens: Tokens, earlier: Sequence[Step]) -> list[Shape]:
    """Return shapes whose tokens weigh by the inverse of a ratio: without a KL, else with one."""
    sources = [source for source in shapes.olds(step, earlier) if shapes.differs(step, tokens, source)]
    plain = [shape for source in sources if (shape := _plain(step, tokens, source)) is not None]
    if plain := [shape for shape in plain if mistaken.agrees(tokens, shape)]:
        return plain
    with_kl = (shape for source in sources for shape in _with_kl(step, tokens, source))
    return [shape for shape in with_kl if mistaken.agrees(tokens, shape)]


def _plain(step: Step, tokens: Tokens, source: shapes.Source) -> Shape | None:
    flipped = shapes.to(step, tokens, shapes.Source(source.name, 2 * step.update.log_probs - source.values))
    return flipped and shapes.named(flipped, inverse=True)


def _with_kl(step: Step, tokens: Tokens, source: shapes.Source) -> Iterator[Shape]:
    ratio = np.exp(step.update.log_probs - source.values)[tokens.column]
    if not np.isfinite(ratio).all():
        return
    for reference in shapes.references(step):
        apart = (step.update.log_probs - reference.values)[tokens.column]
        for form in FORMS if np.isfinite(apart).all() else ():
            for by_length, divisor in ((True, shapes.lengths_of(step, tokens)), (False, 1.0)):
                shape = shapes.clipping(tokens, 1.0 / ratio, shapes.FORMS[form](apart) / divisor, sides=ratio)
                names = {"old": source.name, "form": form, "reference": reference.name}
                yield shapes.named(shape, **names, by_length=by_length, inverse=True)
