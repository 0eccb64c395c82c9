"""The forward formula of a sampler's filters, composed of choices.

Penalties change the logits, then each stage of an order removes tokens or divides by the temperature; the rest is
normalised. There is no gradient. Removed tokens have −inf, which is no overflow. Source: docs/definitions.md, "Sampling".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from gates.arithmetic.bounded import where
from gates.arithmetic.forms import merged
from gates.arithmetic.functions import Value, exp, log, plain
from gates.arithmetic.narrow import narrowed
from gates.arithmetic.number import FACTOR, UNIT, Floats, Number, constant, widest
from gates.families.limits import Rounded
from gates.families.program import Choices, Data, Inputs, Program
from gates.families.sampling import edits
from gates.families.sampling import inputs as generators
from gates.families.sampling.penalties import FORMS, processed
from gates.families.sampling.stages import Rows, rows_after, running_error
from gates.model import Array

STAGES = {
    "hf": ("temperature", "top-k", "top-p", "min-p", "XTC"),
    "mlx-lm": ("top-p", "min-p", "XTC", "top-k", "temperature"),
}
TIES = {  # the tied tokens that each library keeps
    "hf": {"top-k": "all", "top-p": "higher-id", "min-p": "lower-id"},
    "mlx-lm": {"top-k": "lower-id", "top-p": "all", "min-p": "higher-id"},
}


def asked(inputs: Inputs) -> Choices:
    """Return the choices that a call of `filtered_logprobs` asks for."""
    order, ties = inputs["order"], inputs.get("ties") or "library"
    presence, frequency = inputs.get("presence_penalty") or 0.0, inputs.get("frequency_penalty") or 0.0
    acts = {
        "temperature": inputs["temperature"] != 1.0,
        "top-k": inputs["top_k"] > 0,
        "top-p": inputs["top_p"] < 1.0,
        "min-p": inputs["min_p"] > 0.0,
        "XTC": inputs["xtc_probability"] > 0.0,
    }
    return {
        "order": tuple(stage for stage in STAGES[order] if acts[stage]),
        "temperature": inputs["temperature"],
        "top_k": inputs["top_k"],
        "top_p": inputs["top_p"],
        "min_p": inputs["min_p"],
        "top-k rule": "likeliest",
        "top-p rule": "reaches",
        "min-p rule": "of the largest",
        "XTC rule": "all but the least likely",
        "coin": "below",
        "special": inputs.get("xtc_special_tokens") is not None,
        "masses": "survivors",
        "least": inputs.get("min_tokens_to_keep") or 1,
        "least of": frozenset(("top-k", "top-p", "min-p")) if order == "hf" else frozenset(("min-p",)),
        "ties": TIES[order] if ties == "library" else dict.fromkeys(TIES[order], ties),
        "bias": "none" if inputs.get("logit_bias") is None else "first",
        "repetition": inputs["repetition_penalty"],
        "repetition rule": "by sign",
        "repetition of": "history",
        "counts of": "generated",
        "given": frozenset(name for name in ("history", "generated") if inputs.get(name) is not None),
        "presence": presence,
        "frequency": frequency,
        "counts": "both",
        "counted": FORMS[0],
        "padding": "none",
        "result": "log-probs",
    }


def compute(data: Data, chosen: Choices, _: Value) -> Mapping[str, Value]:
    """Return the log-probs."""
    x, possible = processed(data, chosen)
    rows = rows_after(data, Rows.of(x, possible), chosen)
    logits = x if rows.temperature == 1.0 else x / data.scalar(rows.temperature, np.asarray(data["logits"]).dtype.name)
    rows = replace(rows, **{name: rows.by_id(getattr(rows, name)) for name in ("possible", "alive", "before")})
    return {"logprobs": _removed(RESULTS[chosen["result"]](x, logits, rows), rows, chosen)}


def _removed(values: Value, rows: Rows, chosen: Choices) -> Value:
    """Set removed tokens to −inf; rows in which rounding decides are void."""
    kept = rows.possible if chosen["result"] == "unfiltered" else rows.alive
    instead = 0.0 if chosen["result"] == "probabilities" else -np.inf
    if not isinstance(values, Number):
        return np.where(kept, values, instead)
    result = Number(np.where(kept, values.value, instead), values.dtype, np.where(kept, values.error, 0.0))
    result.void = (values.void & kept) | rows.undecided[:, None]
    return result


def log_softmax(x: Value, among: Array) -> Value:
    """Return the log-softmax over some tokens, merged over its usual forms; other tokens are meaningless."""
    m = np.max(np.where(among, plain(x), -np.inf), axis=-1, keepdims=True)
    shifted = x - m
    weights = exp(shifted) * among
    rest = log(weights.sum(axis=-1, keepdims=True))
    if not isinstance(x, Number):
        return shifted - rest
    return merged(shifted - rest, x - (rest + m)).plus_relative(4.0)  # for the logarithm of a softmax


RESULTS: Mapping[str, Callable[[Value, Value, Rows], Value]] = {
    "log-probs": lambda x, logits, rows: log_softmax(logits, rows.alive),  # noqa: ARG005
    "not renormalised": lambda x, logits, rows: log_softmax(logits, rows.possible),  # noqa: ARG005
    "before the last": lambda x, logits, rows: log_softmax(logits, rows.before),  # noqa: ARG005
    "unfiltered": lambda x, logits, rows: log_softmax(logits, rows.possible),  # noqa: ARG005
    "untempered": lambda x, logits, rows: log_softmax(x, rows.alive),  # noqa: ARG005
    "of the model": lambda x, logits, rows: log_softmax(x, rows.possible),  # noqa: ARG005
    "logits": lambda x, logits, rows: logits,  # noqa: ARG005
    "probabilities": lambda x, logits, rows: exp(log_softmax(logits, rows.alive)),  # noqa: ARG005
}

PROGRAM = Program(
    op="filtered_logprobs",
    asked=asked,
    compute=compute,
    edits=edits.edits,
    inputs=generators.designed,
    outputs=("logprobs",),
    places=generators.places,
    presets=edits.presets,
    examples=generators.examples,
)
PROGRAMS = (PROGRAM,)


# --- textbook limits


def filtered_logprobs(**inputs: Any) -> dict[str, Floats]:
    """Return the textbook limits of `logprobs` (B, V), for every possible token as if it stayed."""
    return {"logprobs": np.max([limits for limits, _ in _forms(inputs)], axis=0)}


def sample_tokens(**inputs: Any) -> dict[str, Floats]:
    """Return the limits of `logprobs` as above, and of `sums` (B, V), C_k / C_V in the order of the ids."""
    limits, sums = (np.max(each, axis=0) for each in zip(*_forms(inputs), strict=True))
    return {"logprobs": limits, "sums": np.where(np.isinf(limits).any(axis=-1, keepdims=True), np.inf, sums)}


def _forms(inputs: Inputs) -> Iterator[tuple[Floats, Floats]]:
    """Yield the limits of log-probs and running sums for each form of penalties and filters."""
    data, chosen = Rounded(inputs), asked(inputs)
    last = inputs["order"] == "mlx-lm" and "temperature" in chosen["order"]  # `_final` applies it, in several forms
    chosen = {**chosen, "order": tuple(x for x in chosen["order"] if not (last and x == "temperature"))}
    for counted in FORMS if chosen["presence"] or chosen["frequency"] else FORMS[:1]:
        x, possible = processed(data, {**chosen, "counted": counted})
        for renormalises in (False, True):
            rows = rows_after(data, Rows.of(x, possible), chosen, renormalises=renormalises)
            limits = rows.by_id(widest(_final(rows, chosen["temperature"] if last else 1.0, every=not renormalises)))
            # float32 may decide a token of float64 logits; the kept tokens are compared exactly, and then all are known
            open_ = rows.undecided[:, None] & (not narrowed())
            yield np.where(open_, np.inf, limits), _running_sums(rows)


def _final(rows: Rows, temperature: float, *, every: bool) -> Iterator[Number]:
    """Yield the log-softmax over the remaining tokens, at a last temperature; `every` adds its other forms."""
    tempered = [rows.scores]
    if temperature != 1.0:
        inverse = constant(1.0, rows.scores.dtype) / temperature
        tempered = [rows.scores / temperature, rows.scores * inverse]
    for scores in tempered:
        p, log_sum, m = replace(rows, scores=scores).probabilities()
        yield (scores - m) - log_sum
        if not every:
            continue
        yield scores - (log_sum + m)
        logarithm = log(where(p.value > 0.0, p, constant(1.0, p.dtype)))
        logarithm.void = logarithm.void | (p.value <= 0.0)
        yield logarithm


def _running_sums(rows: Rows) -> Floats:
    """Return the bounds of C_k / C_V in the order of the ids, with the rounding of a uniform to the dtype."""
    p = rows.by_id(rows.probabilities()[0])
    error = running_error(p)
    return FACTOR * (error + error[:, -1:] + 2.0 * UNIT[p.dtype])
