"""How rollouts were sampled: what `generate` was asked, whether its tokens and its temperature train, and equal completions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from gates.xray.documents import Event
from gates.xray.reading import fresh, replaced, resampled
from gates.xray.reading.context import Context
from gates.xray.reading.explained import room
from gates.xray.reading.reading import Reading
from gates.xray.reading.words import number, plural, share, some
from gates.xray.step import shared


def readings(context: Context) -> list[Reading]:
    """Return how the rows of an update were sampled."""
    return [
        *_request(context),
        *fresh.sampler(context),
        *resampled.readings(context),
        *_temperature(context),
        *_duplicates(context),
    ]


def calls(context: Context) -> list[Event]:
    """Return the calls of `generate` for this update, or the last ones before it."""
    events = [
        event for event in context.recording.of("generate") if event.get("update", 0) < context.step.update.number
    ]
    latest = max((event.get("update", 0) for event in events), default=0)
    return [event for event in events if event.get("update", 0) == latest]


def limit(events: list[Event]) -> int | None:
    """Return the most tokens that the sampler was asked for."""
    limits = [event.get("request", {}).get("max_new_tokens") for event in events]
    known = [int(value) for value in limits if isinstance(value, int)]
    return max(known) if known and len(known) == len(limits) else None


def _asked(request: Mapping[str, Any]) -> tuple[float, list[str]]:
    """Return the temperature and what restricts the tokens: greedy decoding is temperature 0."""
    greedy = request.get("do_sample") is False
    temperature = request.get("temperature")
    restrictions = []
    for name, text, neutral in (
        ("top_p", "top-p", 1.0),
        ("top_k", "top-k", 0),
        ("min_p", "min-p", 0.0),
        ("typical_p", "typical-p", 1.0),
        ("repetition_penalty", "a repetition penalty of", 1.0),
    ):
        value = request.get(name)
        if isinstance(value, (int, float)) and value != neutral and not (greedy and name != "repetition_penalty"):
            default = " (the default of transformers)" if name in request.get("defaults", ()) else ""
            restrictions.append(f"{text} {number(float(value))}{default}")
    return (0.0 if greedy else 1.0 if temperature is None else float(temperature)), restrictions


def _request(context: Context) -> Iterator[Reading]:
    events = calls(context)
    if not events:
        if any(row.begins == "sampler" for row in context.step.rows):
            sentence = "nobody saw how tokens were sampled: whether the loss's policy is the sampler's is not known"
            yield Reading("sampling", "cannot tell", sentence, "", "sample with `generate` in this script")
        return
    asked = list(dict.fromkeys(repr(_asked(event.get("request", {}))) for event in events))
    temperature, restrictions = _asked(events[-1].get("request", {}))
    numbers = {"request": dict(events[-1].get("request", {})), "calls": len(events)}
    words = "greedily" if temperature == 0.0 else f"at temperature {number(temperature)}"
    many = " (calls differ; this is the last)" if len(asked) > 1 else ""
    if restrictions:
        sentence = (
            f"sampled {words} with {some(restrictions)}{many}: the loss takes log-probs over the whole vocabulary"
        )
        because = "as resolved with the defaults of the model's folder"
        yield Reading("sampling", "attention", sentence, because, "set what is not meant to its neutral value", numbers)
        return
    yield Reading("sampling", "read", f"sampled {words}, from the whole vocabulary{many}", numbers=numbers)


def _temperature(context: Context) -> Iterator[Reading]:
    """Compare the temperature of the loss, which explains the gradient best, with the sampler's."""
    events, document = calls(context), context.step.update.document
    if not events:
        return
    sampled, _ = _asked(events[-1].get("request", {}))
    shares = {float(name): value for name, value in document.temperatures.items()}
    used = document.temperature
    if sampled in {0.0, used} or context.step.fit.unexplained > room(context):
        return
    tried = f"; at {number(sampled)} {share(shares[sampled])} would be left" if sampled in shares else ""
    sentence = f"the loss divides logits by {number(used)}, the sampler by {number(sampled)}: it trains another policy than it samples"
    because = f"log-probs at temperature {number(used)} explain the gradient{tried}"
    yield Reading("temperature", "attention", sentence, because, numbers={"loss": used, "sampler": sampled})


def _duplicates(context: Context) -> Iterator[Reading]:
    """Count completions of one prompt that are equal: their coefficients are one number, divided among them."""
    if (drawn := replaced.reading(context)) is not None:
        yield drawn
        return
    step = context.step
    equal, total = 0, 0
    for members in shared(step.prompts).values():
        if len(members) < 2:
            continue
        total += len(members)
        counts = Counter(tuple(np.array(step.rows[i].row.ids)[step.rows[i].row.attended].tolist()) for i in members)
        equal += sum(count for count in counts.values() if count > 1)
    if equal:
        many = 2 * equal > total  # a few short completions are equal by chance
        sentence = f"{equal} of {plural(total, 'completion')} equal another one of their prompt"
        because = "their tokens share columns: the sum is measured, and divided among them"
        yield Reading(
            "duplicates",
            "attention" if many else "read",
            sentence,
            because,
            "sample at a higher temperature" if many else "",
            {"equal": equal, "of": total},
        )
