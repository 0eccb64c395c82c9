"""What the optimizer did with the gradient: does the update follow its rule, and which weights did not move."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gates.model import Array
from gates.xray.ranks import Update
from gates.xray.reading import clipping, rules
from gates.xray.reading.context import Context
from gates.xray.reading.reading import Reading
from gates.xray.reading.rules import RULES, Rule, Ruled, Sample
from gates.xray.reading.words import number, plural, share

UNITS = {"float32": 2.0**-24, "bfloat16": 2.0**-8, "float16": 2.0**-11}  # rounding of a number, relative
LEAST = {"float32": 2.0**-149, "bfloat16": 2.0**-133, "float16": 2.0**-24}  # smallest number
OPERATIONS = (
    16  # roundings of a rule: its multiplications, additions, divisions and square roots, with those of its state
)
HALVES = ("bfloat16", "float16")
WRITES = (
    4  # roundings of a weight: the factor of the decay, its product, the subtraction, and the number that is stored
)
MANY = 0.01  # share of weights that stand still which is worth a word: in float32 a probe had 0.1% at most


def readings(context: Context) -> list[Reading]:
    """Return what the optimizer did."""
    return [*_clip(context), *_rule(context), *_renewed(context), *_still(context)]


def _clip(context: Context) -> Iterator[Reading]:
    document = context.step.update.document
    clip = document.clip
    if (clipped := clipping.parts(context.step.update)) is not None:
        numbers = {"clips": clipped.count, "passes": list(clipped.passes), "factors": list(clipped.factors)}
        because = "passes, and calls that clip, in their order"
        remedy = "clip once, when all passes have been added, before the optimizer's step"
        yield Reading(
            "clip of the norm", "attention", clipping.said(context.step.update, clipped), because, remedy, numbers
        )
        return
    if clip is None:
        return
    if count := clipped_parts(context):
        sentence = f"the norm was clipped {count} times in this update, after each of its passes, before the gradient was whole"
        because = "as many clips as passes: earlier passes are scaled again and again"
        yield Reading("clip of the norm", "attention", sentence, because, "clip once, before the optimizer's step")
        return
    numbers = {"norm": clip.norm, "limit": clip.limit, "factor": clip.factor, "received": document.gradient_norm}
    if clip.factor == 1.0:
        sentence = (
            f"the norm of the gradient, {number(clip.norm)}, is below the limit of {number(clip.limit)}: not clipped"
        )
        yield Reading("clip of the norm", "read", sentence, numbers=numbers)
        return
    received = document.gradient_norm
    if not document.restricted and received > 1.01 * clip.limit:
        sentence = f"the norm was to be clipped to {number(clip.limit)}, but the optimizer received {number(received)}"
        yield Reading(
            "clip of the norm", "attention", sentence, "norm of the gradient at the optimizer's step", numbers=numbers
        )
        return
    sentence = (
        f"the gradient was scaled by {number(clip.factor)} (norm {number(clip.norm)}, clipped to {number(clip.limit)})"
    )
    yield Reading("clip of the norm", "read", sentence, "coefficients are those after clipping", numbers=numbers)


def clipped_parts(context: Context) -> int:
    """Return how often the norm was clipped, where that was after each of several passes; else 0."""
    update = context.step.update
    if (clipped := clipping.parts(update)) is not None:
        return clipped.count
    if update.document.clips:
        return 0
    passes = {(row.rank, row.call) for row in update.rows}
    count = len(context.recording.of("clip", update.number))
    return count if len(passes) == count > 1 else 0


def _samples(update: Update) -> Iterator[tuple[Sample, rules.Settings]]:
    """Yield the sampled weights of each group with its settings."""
    sample, groups = update.sample, update.document.optimizer.groups
    if not {"group", "before", "after", "gradient"} <= set(sample) or not groups:
        return
    states = {name.removeprefix("state."): values for name, values in sample.items() if name.startswith("state.")}
    for index in sorted(set(sample["group"].astype(int).tolist())):
        here = sample["group"].astype(int) == index
        before, after, gradient = (
            np.asarray(sample[name], np.float64)[here] for name in ("before", "after", "gradient")
        )
        state = {name: values[here] for name, values in states.items()}
        yield Sample(before, after, gradient, state), groups[min(index, len(groups) - 1)]


def _room(ruled: Ruled, dtype: str) -> Array:
    """Return how far a weight may be from its rule: roundings of the weight, and those of the rule's operations."""
    unit = UNITS.get(dtype, UNITS["float32"])
    weight = WRITES * unit * np.abs(ruled.after)
    return np.asarray(weight + OPERATIONS * unit * ruled.terms + LEAST.get(dtype, 0.0))


def _rule(context: Context) -> Iterator[Reading]:
    update = context.step.update
    name = update.document.optimizer.name
    parts = list(_samples(update))
    if not parts:
        return
    rates = sorted({rules.rate(settings) for _, settings in parts})
    rule = RULES.get(name)
    if rule is None:
        yield Reading(
            "update", "cannot tell", f"the arithmetic of {name} is not read", "", "SGD, Adam and AdamW are read"
        )
        return
    numbers = {"optimizer": name, "rates": rates, "weights": sum(len(sample.before) for sample, _ in parts)}
    if not any(rates):
        yield Reading(
            "update",
            "attention",
            f"the learning rate of {name} is 0 in this update: no weight is moved by it",
            numbers=numbers,
        )
        return
    off, count = departures(update) or (0, 0)
    because = f"{plural(count, 'sampled weight')}, in float64 from gradient, settings and state, within the rounding of {update.document.dtype}"
    rate = ", ".join(number(value) for value in rates)
    if not off:
        sentence = f"the update follows {name} with rate {rate}{_decay(parts)}"
        yield Reading("update", "read", sentence, because, numbers=numbers)
        return
    sentence = f"the update does not follow {name} with rate {rate}: {share(off / count)} of the weights are elsewhere"
    instead = _instead(parts, rule, update.document.dtype, name)
    yield Reading(
        "update",
        "attention",
        f"{sentence}{f'; it follows {name} {instead}' if instead else ''}",
        because,
        numbers={**numbers, "off": off, "instead": instead},
    )


def _renewed(context: Context) -> Iterator[Reading]:
    """Yield that an optimizer has lost what it kept of the update before: it was made anew, or its state was emptied."""
    update = context.step.update
    before = context.earlier[-1].step.update if context.earlier else None
    name = update.document.optimizer.name
    if before is None or before.number != update.number - 1 or before.document.optimizer.name != name:
        return
    if not _same_weights(before, update) or not _keeps(update) or _kept(update) or not before.sample["gradient"].any():
        return
    what = "moments and count of steps" if name != "SGD" else "momentum"
    sentence = f"the {what} of {name} are those of a first update, although update {before.number} moved these weights: it was made anew, or its state was emptied"
    because = "the state before the update, of the sampled weights"
    yield Reading("state", "attention", sentence, because, "make the optimizer once, before the first update")


def _same_weights(before: Update, update: Update) -> bool:
    """Return whether the weights that one update left are those that the next began with."""
    left, begun = before.sample.get("after"), update.sample.get("before")
    return (
        left is not None and begun is not None and left.shape == begun.shape and bool(np.mean(left == begun) > 1 - MANY)
    )


def _keeps(update: Update) -> bool:
    """Return whether the optimizer's settings make it keep something from update to update."""
    groups = update.document.optimizer.groups
    return update.document.optimizer.name in {"Adam", "AdamW"} or any(group.get("momentum") for group in groups)


def _kept(update: Update) -> bool:
    """Return whether the optimizer has a number of an earlier update."""
    states = [values for name, values in update.sample.items() if name.startswith("state.")]
    return any(bool(np.nan_to_num(values).any()) for values in states)


def departures(update: Update) -> tuple[int, int] | None:
    """Return how many sampled weights are not where the optimizer's own rule has them, and of how many.

    None where the rule is not known, or nothing was sampled.
    """
    rule, parts = RULES.get(update.document.optimizer.name), list(_samples(update))
    if rule is None or not parts:
        return None
    off = sum(int((~_follows(sample, settings, rule, update.document.dtype)).sum()) for sample, settings in parts)
    return off, sum(len(sample.before) for sample, _ in parts)


def _decay(parts: list[tuple[Sample, rules.Settings]]) -> str:
    decays = sorted({rules.decay(settings) for _, settings in parts})
    return f" and weight decay {', '.join(number(value) for value in decays)}" if any(decays) else ""


def _follows(sample: Sample, settings: rules.Settings, rule: Rule, dtype: str) -> Array:
    ruled = rule(sample, settings)
    return np.asarray(np.abs(sample.after - ruled.after) <= _room(ruled, dtype))


def _instead(parts: list[tuple[Sample, rules.Settings]], rule: Rule, dtype: str, name: str) -> str:
    """Return what the update follows instead: another rule, or another rate."""
    for words, other in rules.OTHERS.get(name, {}).items():
        if all(_follows(sample, settings, other, dtype).all() for sample, settings in parts):
            return words
    quotients = [
        quotient for sample, settings in parts for quotient in _quotients(sample, rule(sample, settings), dtype)
    ]
    if not quotients:
        return ""
    factor = float(np.median(quotients))
    scaled = [
        _follows(sample, {**settings, "lr": rules.rate(settings) * factor}, rule, dtype).mean()
        for sample, settings in parts
    ]
    if all(value > 1.0 - MANY for value in scaled):
        return f"with rate {number(rules.rate(parts[0][1]) * factor)}, {number(factor)} times what is set"
    return ""


def _quotients(sample: Sample, ruled: Ruled, dtype: str) -> list[float]:
    """Return how far weights moved, as a multiple of what the rule moves them, where that is beyond rounding."""
    wanted = ruled.after - sample.before
    tells = np.abs(wanted) > 20 * _room(ruled, dtype)
    quotients = (sample.after - sample.before)[tells] / wanted[tells]
    return [float(value) for value in quotients]


def _still(context: Context) -> Iterator[Reading]:
    document = context.step.update.document
    moved = document.moved
    if moved is None or not moved.with_gradient:
        return
    rates = [rules.rate(settings) for _, settings in _samples(context.step.update)]
    part = moved.still / moved.with_gradient
    if rates and not any(rates):
        return
    numbers = {"still": moved.still, "with_gradient": moved.with_gradient}
    if part <= MANY:
        sentence = f"of {plural(moved.with_gradient, 'weight')} with a gradient {'all' if not moved.still else f'all but {moved.still:,}'} moved"
        yield Reading("moved", "read", sentence, numbers=numbers)
        return
    if document.dtype in HALVES:
        sentence = f"{share(part)} of the weights have a gradient and did not move: their update was rounded away in {document.dtype}"
        because = f"an update below half the spacing of a weight in {document.dtype} is lost, each time anew"
        yield Reading("moved", "attention", sentence, because, "keep weights in float32, or use a larger rate", numbers)
        return
    small = all(_small(sample, settings, document.optimizer.name) for sample, settings in _samples(context.step.update))
    if small:
        sentence = (
            f"{share(part)} of the weights stood still, since their update is below half a spacing of {document.dtype}"
        )
        yield Reading("moved", "read", sentence, "the update by the optimizer's rule, in float64", numbers=numbers)
        return
    sentence = f"{share(part)} of the weights have a gradient and did not move"
    yield Reading("moved", "attention", sentence, "sampled weights before and after the update", numbers=numbers)


def _small(sample: Sample, settings: rules.Settings, name: str) -> bool:
    """Return whether each weight that stood still has, by the rule, an update below half of its spacing."""
    if name not in RULES:
        return False
    still = (sample.after == sample.before) & (sample.gradient != 0)
    moves = np.abs(RULES[name](sample, settings).after - sample.before)
    return bool((moves <= UNITS["float32"] * np.abs(sample.before))[still].all())
