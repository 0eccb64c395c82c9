"""The forward definition of the filters of a sampler, and what people write instead.

Penalties change the logits, then each stage of an order removes tokens or divides by the temperature; what is left is
normalised. There is no gradient. A removed token has −inf, which is data. Source: docs/definitions.md, "Sampling".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from gates.diagnosis.arithmetic import Value, exp, log, plain
from gates.diagnosis.program import Choices, Data, Inputs, Program
from gates.diagnosis.programs import sampling_edits, sampling_inputs
from gates.diagnosis.programs.sampling_penalties import processed
from gates.diagnosis.programs.sampling_stages import Rows, rows_after
from gates.model import Array
from reference.textbook.forms import merged
from reference.textbook.number import Number

STAGES = {
    "hf": ("temperature", "top-k", "top-p", "min-p", "XTC"),
    "mlx-lm": ("top-p", "min-p", "XTC", "top-k", "temperature"),
}


def asked(inputs: Inputs) -> Choices:
    """Return the choices that the keywords of `filtered_logprobs` ask for."""
    order = inputs["order"]
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
        "top-p rule": "reaches",
        "min-p rule": "of the largest",
        "XTC rule": "all but the least likely",
        "coin": "below",
        "special": inputs.get("xtc_special_tokens") is not None,
        "masses": "survivors",
        "least": inputs.get("min_tokens_to_keep") or 1,
        "least of": frozenset(("top-k", "top-p", "min-p")) if order == "hf" else frozenset(("min-p",)),
        "bias": "none" if inputs.get("logit_bias") is None else "first",
        "repetition": inputs["repetition_penalty"],
        "repetition rule": "by sign",
        "presence": presence,
        "frequency": frequency,
        "counts": "both",
        "padding": "none",
        "result": "log-probs",
    }


def compute(data: Data, chosen: Choices, _: Value) -> Mapping[str, Value]:
    """Return the log-probs."""
    x, possible = processed(data, chosen)
    rows = rows_after(plain(x), possible, data.inputs, chosen)
    logits = x if rows.temperature == 1.0 else x / data.scalar(rows.temperature, np.asarray(data["logits"]).dtype.name)
    return {"logprobs": _removed(RESULTS[chosen["result"]](x, logits, rows), rows, chosen)}


def _removed(found: Value, rows: Rows, chosen: Choices) -> Value:
    """Put −inf where a token was removed; rows in which a rounding decides are void."""
    kept = rows.possible if chosen["result"] == "unfiltered" else rows.alive
    instead = 0.0 if chosen["result"] == "probabilities" else -np.inf
    if not isinstance(found, Number):
        return np.where(kept, found, instead)
    made = Number(np.where(kept, found.value, instead), found.dtype, np.where(kept, found.error, 0.0))
    made.void = (found.void & kept) | rows.undecided[:, None]
    return made


def log_softmax(x: Value, among: Array) -> Value:
    """Return the log-softmax over some tokens, in each usual form; what stands at the others says nothing."""
    m = np.max(np.where(among, plain(x), -np.inf), axis=-1, keepdims=True)
    shifted = x - m
    weights = exp(shifted) * among
    rest = log(weights.sum(axis=-1, keepdims=True))
    if not isinstance(x, Number):
        return shifted - rest
    return merged(shifted - rest, x - (rest + m)).plus_relative(4.0)  # or the logarithm of a softmax


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
    edits=sampling_edits.edits,
    inputs=sampling_inputs.designed,
    outputs=("logprobs",),
    places=sampling_inputs.places,
    presets=sampling_edits.presets,
    examples=sampling_inputs.examples,
)
PROGRAMS = (PROGRAM,)
