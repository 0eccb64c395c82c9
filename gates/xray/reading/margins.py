"""Which reference the weights of preference pairs show: DPO pushes a pair by β·σ(−β·x), x the policy's margin less the reference's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from gates.model import Array
from gates.xray.fit import quantile
from gates.xray.reading import objective, shapes
from gates.xray.reading.context import Context
from gates.xray.reading.pairs import weight
from gates.xray.reading.reading import Reading
from gates.xray.reading.words import number, plural
from gates.xray.step import EQUAL

LEAST = 3  # pairs that decide: β is one unknown, and a further one is none's by chance
FINE = 1e-4  # rounding above which log-probs are too coarse for margins
BETAS = (1e-3, 1e2)  # between which β is looked for
POINTS, ROUNDS = 400, 6  # of that search, each around the best point of the one before
REMEDY = "it is meant in losses without a reference only (CPO, reference_free)"


@dataclass(frozen=True)
class Apart:
    """How far the pairs are pushed apart.

    Attributes:
        pairs: the row that is pushed up and the one that is pushed down.
        values, errors: how strongly, a token.
        policy: log-prob of the one completion less that of the other.
        noise: of a margin, in nats.
        scale: what each pair is divided by, as a factor: the mean over pairs, after the clip of the norm.
    """

    pairs: tuple[tuple[int, int], ...]
    values: Array
    errors: Array
    policy: Array
    noise: Array
    scale: float

    @property
    def alike(self) -> bool:
        """Whether all pairs weigh the same."""
        mean = np.average(self.values, weights=1.0 / self.errors**2)
        return self._within(np.full(len(self.values), mean), self.errors)

    def beta(self, margins: Array) -> float | None:
        """Return the β of DPO to a reference with these margins, None if none gives the weights."""
        apart = self.policy - margins
        return self._searched(lambda betas: self.scale * _pushes(betas, apart))

    def explained(self, margins: Array) -> bool:
        """Return whether a loss of the margins to this reference gives the weights, whatever it is divided by: DPO, IPO, or hinge."""
        apart = self.policy - margins
        columns = np.stack([np.ones(len(apart)), apart]) / self.errors
        linear = np.linalg.lstsq(columns.T, self.values / self.errors, rcond=None)[0]
        still = np.abs(self.values) <= quantile(len(self.values)) * self.errors
        flat = np.where(still, 0.0, np.median(self.values[~still]) if (~still).any() else 0.0)
        return (
            self._within(linear[0] + linear[1] * apart, self.errors)
            or self._within(flat, self.errors)
            or self._searched(lambda betas: self._scaled(_pushes(betas, apart))) is not None
        )

    def _scaled(self, pushes: Array) -> Array:
        """Return pushes times the numbers that bring each line of them closest to the weights."""
        trust = self.errors**-2
        return np.asarray(pushes * ((pushes * self.values) @ trust / (pushes**2 @ trust))[:, None])

    def _searched(self, pushes: Callable[[Array], Array]) -> float | None:
        low, high = np.log(BETAS)
        for _ in range(ROUNDS):
            betas = np.exp(np.linspace(low, high, POINTS))
            wanted = pushes(betas)
            room = np.hypot(self.errors, np.abs(wanted) * betas[:, None] * self.noise)
            left = (np.abs(wanted - self.values) / room).max(axis=1)
            best, step = float(np.log(betas[left.argmin()])), (high - low) / POINTS
            low, high = best - 2 * step, best + 2 * step
        return float(np.exp(best)) if left.min() <= quantile(len(self.values)) else None

    def _within(self, wanted: Array, room: Array) -> bool:
        return bool((np.abs(wanted - self.values) <= quantile(len(self.values)) * room).all())


def of(context: Context) -> Apart | None:
    """Return how far the pairs of an update are pushed apart; None where it has none, or where a reference would not show."""
    kind = objective.readings(context)
    if not kind or kind[0].numbers["kind"] != "preference" or kind[0].numbers["unit"] != "token":
        return None
    return _apart(context, [(a, b) for a, b in kind[0].numbers["pairs"]])


def readings(context: Context) -> list[Reading]:
    """Return which reference the pairs' weights show, and whether it is a mistaken one."""
    apart = of(context)
    if apart is None or apart.alike:
        return []
    recorded = [(source.name, of_log_probs(context, apart.pairs, source.values)) for source in _sources(context)]
    recorded = [(name, margins) for name, margins in recorded if np.isfinite(margins).all()]
    because = (
        "the weight of each pair, β·σ(−β·x) over the number of pairs, with x the policy's margin less the reference's"
    )
    for name, margins in recorded:
        if (beta := apart.beta(margins)) is not None:
            sentence = f"pairs weigh as DPO with β = {number(beta)} does, with {name} as the reference"
            return [Reading("reference", "read", sentence, because, numbers={"beta": beta, "reference": name})]
    if any(apart.explained(margins) for _, margins in recorded):
        return []
    named = [(text, remedy, beta) for text, remedy, beta in _mistaken(apart, recorded) if beta is not None]
    if len({text for text, _, _ in named}) != 1:
        return []
    text, remedy, beta = named[0]
    sentence = f"{text}: pairs weigh as DPO with β = {number(beta)} does then"
    return [Reading("reference", "attention", sentence, because, remedy, {"beta": beta})]


def _sources(context: Context) -> list[shapes.Source]:
    """Return who may be the reference: models that were scored, the trained one included, and the weights at the start."""
    step = context.step
    return [*shapes.references(step), *shapes.olds(step, [before.step for before in context.earlier])]


def _mistaken(apart: Apart, recorded: list[tuple[str, Array]]) -> Iterator[tuple[str, str, float | None]]:
    """Yield what may be wrong with the reference, the remedy, and the β that fits then."""
    yield "no reference is subtracted from the policy's margins", REMEDY, apart.beta(np.zeros(len(apart.values)))
    for _, margins in recorded:
        yield "the reference's log-probs of chosen and rejected are exchanged", "", apart.beta(-margins)
        for shift in range(1, len(margins)):
            text = f"the reference's log-probs are those of another pair, {plural(shift, 'pair')} on"
            yield text, "", apart.beta(np.roll(margins, -shift))


def _apart(context: Context, pairs: list[tuple[int, int]]) -> Apart | None:
    """Return how far pairs are pushed apart; None where that would not show a reference."""
    step = context.step
    if len(pairs) < LEAST or step.fit.rounding > FINE:
        return None
    weights, errors = (
        np.array(part).reshape(-1, 2)
        for part in zip(*(weight(context, row) for pair in pairs for row in pair), strict=True)
    )
    values = (weights[:, 1] - weights[:, 0]) / 2.0
    policy = of_log_probs(context, pairs, step.update.log_probs)
    sizes = of_log_probs(context, pairs, np.abs(step.update.log_probs), together=True)
    if not (np.isfinite(values) & np.isfinite(policy)).all():
        return None
    factor = step.update.document.clip.factor if step.update.document.clip else 1.0
    error = np.maximum(np.hypot(*errors.T) / 2.0, step.fit.rounding * np.abs(values))
    return Apart(tuple(pairs), values, error, policy, EQUAL + 2.0**-22 * sizes, factor / len(pairs))


def of_log_probs(
    context: Context,
    pairs: list[tuple[int, int]] | tuple[tuple[int, int], ...],
    values: Array,
    *,
    together: bool = False,
) -> Array:
    """Return the sum of each first row's own log-probs less the second's; tokens of a common beginning cancel."""
    sums = []
    for pair in pairs:
        columns = [row.columns[row.attended & (row.columns >= 0)] for row in (context.step.rows[k].row for k in pair)]
        first, second = (values[np.setdiff1d(columns[k], columns[1 - k])].sum() for k in (0, 1))
        sums.append(first + second if together else first - second)
    return np.array(sums)


def _pushes(betas: Array, apart: Array) -> Array:
    """Return β·σ(−β·x) for each β and each pair."""
    return np.asarray(betas[:, None] / (1.0 + np.exp(np.clip(betas[:, None] * apart, -700.0, 700.0))))
