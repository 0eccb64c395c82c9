"""Forward passes of one update that weigh n : n−1 : … : 1, as where backward is called on a sum of losses that grows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from gates.model import Array
from gates.xray.reading import between, objective, repeated
from gates.xray.reading.context import Context
from gates.xray.reading.reading import Reading
from gates.xray.reading.words import plural
from gates.xray.step import Step

ALIKE = 1e-3  # of the norms of scaled advantages: an ε beside the standard deviation makes them differ by less
LEAST = 3  # passes whose norms have such a ratio, if that is not by chance
REMEDY = "call backward on each pass's own loss, not on the sum so far"


def readings(context: Context) -> list[Reading]:
    """Return that passes weigh unlike, as a KL shows, or the advantages of the prompts."""
    if len(context.factors):
        return [
            _named(context.factors, context.step, "the KL of all rows has one β only if it is divided by these factors")
        ]
    plain = context.fitting and not context.earlier and context.shape.form is None and context.shape.old is None
    if not plain or objective.kind(context) != "policy gradient" or not objective.sampled(context):
        return []
    fits = (
        _named(factors, context.step, because)
        for factors, by_length in product(repeated.factors(context.step), (False, True))
        if (because := _prompts(context, factors, by_length=by_length))
    )
    return [first] if (first := next(fits, None)) is not None else []


def _prompts(context: Context, factors: Array, *, by_length: bool) -> str:
    """Return why the factors are there: only with them, rows of prompts sum to 0, or prompts have advantages of one norm."""
    lengths = between.trained(context) if by_length else np.ones(context.rows)
    groups = [members for members in between.groups_of(context) if len(members) > 1]
    weights, errors = (each * lengths for each in between.weights_of(context))
    if len(groups) < 2 or not np.isfinite(weights).all():  # one sum may be 0 by chance
        return ""
    spread = any(len(set(factors[members].tolist())) > 1 for members in groups)
    if spread:
        told = any(between.sums_to_zero(context, way) for way in between.ways_of(context))
        summed = between.Rows("", weights / factors, errors / factors)
        return (
            ""
            if told or not between.sums_to_zero(context, summed)
            else "divided by these factors, the rows of each prompt sum to 0"
        )
    several = len({float(factors[members[0]]) for members in groups}) >= LEAST
    plain, even = (_norms(groups, weights / by) for by in (1.0, factors))
    alike = several and not _alike(plain) and _alike(even) and not _alike(_norms(groups, weights * _tokens(context)))
    return (
        "divided by these factors, the advantages of all prompts have one norm, as those that are scaled have"
        if alike
        else ""
    )


def _tokens(context: Context) -> Array:
    """Return for each row the tokens of its pass, by which a mean over passes may divide."""
    calls, lengths = [(row.row.rank, row.row.call) for row in context.step.rows], between.trained(context)
    return np.array([sum(n for n, other in zip(lengths, calls, strict=True) if other == call) for call in calls])


def _norms(groups: Sequence[Sequence[int]], weights: Array) -> Array:
    norms = np.array([float(np.linalg.norm(weights[list(members)])) for members in groups])
    return norms[norms > 0]  # a prompt whose rewards are equal has none


def _alike(norms: Array) -> bool:
    return bool(len(norms) >= LEAST and np.ptp(norms) <= ALIKE * norms.max())


def _named(factors: Array, step: Step, because: str) -> Reading:
    """Return that the passes weigh unlike."""
    calls = {(row.row.rank, row.row.call): int(factor) for row, factor in zip(step.rows, factors, strict=True)}
    counts = list(dict.fromkeys(calls[call] for call in sorted(calls)))
    most = plural(max(counts), "time")
    sentence = f"micro-batches weigh {' : '.join(map(str, counts))}: the {'first' if counts[0] > counts[-1] else 'last'} pass counts {most}"
    if counts[0] > counts[-1]:
        sentence += ", as where backward is called again on a running sum of the losses, and gradients add up"
    return Reading("micro-batches", "attention", sentence, because, REMEDY, {"factors": counts})
