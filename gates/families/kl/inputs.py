"""Seeded calls of the KL's ops: of cases, the designed ones of a diagnosis, and valid ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gates.families import arrays, row_inputs
from gates.families.logprobs.inputs import KINDS, LEADING, logits
from gates.families.program import Inputs
from gates.families.valid import DTYPES, Generator
from gates.model import Array
from gates_reference.oracle import logprobs

MASKS = ("right", "left", "holes")  # where padding stands: after a row, before it, or inside it
LENGTHS = np.array([7, 40, 93, 1, 59], np.int64)  # of the sequences of a flat array
LAYOUTS = "other layouts"  # a mark of a case whose arrays are passed in other memory layouts too; no input of an op
WIDTH = 65
SPREAD = 0.7  # nats, of d in a batch that training produces


def batch(
    rng: np.random.Generator,
    *,
    rows: str,
    dtype: str,
    spread: float = SPREAD,
    sizes: tuple[float, float] | None = None,
    **choices: Any,
) -> dict[str, Any]:
    """Return a call of `token_kl`, d of the size of `spread`, or |d| log-uniform between two `sizes`.

    Padding holds log-probs like those of tokens, so that a mask which is not applied shows.
    """
    shape = {"all": (9, 33), "flat": (int(LENGTHS.sum()),)}.get(rows, (9, WIDTH))
    if sizes is None:
        policy = arrays.logprobs(rng, shape) - 1e-3
        reference = np.minimum(policy + rng.normal(0.0, spread, shape), -1e-3)
    else:
        policy, reference = arrays.logprob_pairs(rng, shape, "float64", *sizes)
    mask = _mask(rng, rows, shape) if rows in MASKS else None
    lengths = {"flat": LENGTHS, "lengths": rng.integers(1, WIDTH + 1, shape[0])}.get(rows)
    return {
        "policy": policy.astype(dtype),
        "reference": reference.astype(dtype),
        "mask": mask,
        "lengths": lengths,
        "old": None,
        "kl_ratio": "none",
        **choices,
    }


def _mask(rng: np.random.Generator, rows: str, shape: tuple[int, ...]) -> Array:
    mask = arrays.ragged_mask(rng, *shape)
    if rows == "left":
        return np.ascontiguousarray(mask[:, ::-1])
    if rows == "holes":  # turns of a tool or a user
        mask &= (rng.random(shape) < 0.7) | (np.arange(shape[1]) == 0)
    return mask


def off_policy(rng: np.random.Generator, **choices: Any) -> dict[str, Any]:
    """Return a batch whose tokens an older policy sampled."""
    inputs = batch(rng, **choices)
    change = rng.normal(0.0, SPREAD, inputs["policy"].shape)
    return {**inputs, "old": (inputs["policy"] - change).astype(inputs["policy"].dtype)}


def unreadable(rng: np.random.Generator, **choices: Any) -> dict[str, Any]:
    """Return a batch whose padding holds NaN and infinities; off-policy where a ratio is asked for."""
    inputs = (off_policy if "kl_ratio" in choices else batch)(rng, **choices)
    for shift, name in enumerate(("policy", "reference", "old")):
        if (array := inputs[name]) is None:
            continue
        garbage = np.roll(np.resize(np.array([np.nan, -np.inf, np.inf, 0.0], array.dtype), array.shape), shift)
        inputs[name] = np.where(inputs["mask"], array, garbage)
    return inputs


def empty(rng: np.random.Generator, **choices: Any) -> dict[str, Any]:
    """Return a batch with a row, or a sequence of a flat array, without a token."""
    inputs = batch(rng, **choices)
    if inputs["mask"] is None:
        return {**inputs, "lengths": np.insert(inputs["lengths"], 2, 0)}
    inputs["mask"][4] = False
    return inputs


def laid_out(rng: np.random.Generator, **choices: Any) -> dict[str, Any]:
    """Return a batch with the mark `LAYOUTS`."""
    return {**batch(rng, **choices), LAYOUTS: True}


def vocabulary(rng: np.random.Generator, kind: str, dtype: str, size: int) -> dict[str, Any]:
    """Return a call of `full_kl`: log-probs of a policy and of a reference over a vocabulary."""
    logits = rng.normal(0.0, 3.0, (6 if size < 10_000 else 2, size))
    apart = 1e-3 if kind == "near" else 2.0 if size < 10_000 else 1.0
    others = logits + rng.normal(0.0, apart, logits.shape)
    if kind == "impossible":
        logits[:, ::3] = -np.inf  # top-k of the policy: these add nothing
        others[0, ::6] = -np.inf  # where the policy cannot draw the reference may be 0 too
        others[1, 1] = -np.inf  # here it may not: +inf
    if kind == "batch":  # (B, T, V), as it comes out of a model
        logits, others = logits.reshape(2, 3, size), others.reshape(2, 3, size)
    left, right = (logprobs.log_softmax(x, temperature=1.0).astype(dtype) for x in (logits, others))
    mark = {LAYOUTS: True} if kind == "layouts" else {}
    return {"policy_logprobs": left, "reference_logprobs": right, **mark}


# --- designed calls: batches that tell the edits of a program from each other

SHAPES = ((2, 3, 7), (3, 2, 11), (4, 2, 5), (2, 4, 17), (1, 3, 9), (3, 3, 13), (2, 2, 29), (5, 1, 8))
"""Rows, tokens and vocabulary: no two vocabularies are alike, so that no mean is a scale."""


def designed_tokens(example: Inputs, rng: np.random.Generator) -> Iterator[Inputs]:
    """Yield eight batches with the settings of a call: d of both signs, and two of each batch beyond a clamp of 10."""
    for mask in row_inputs.masks(example, "policy", rng):
        policy = arrays.logprobs(rng, mask.shape) - 1e-3
        d = np.asarray(rng.normal(0.1, 0.7, mask.shape))
        d[0, np.argmax(mask[0])], d[-1, np.argmax(mask[-1])] = 3.4, -3.4
        values = {"policy": policy, "reference": policy + d, "old": policy - rng.normal(0.1, 0.5, mask.shape)}
        yield row_inputs.laid_out(example, "policy", values, mask)


def examples(inputs: Inputs) -> Iterator[Inputs]:
    """Yield a call with an older policy, by which a ratio shows, then the call as it is."""
    if inputs.get("old") is None:
        yield {**inputs, "old": inputs["policy"], "kl_ratio": "none"}
    yield inputs


def places_of_tokens(inputs: Inputs, output: str) -> Iterator[tuple[str, Array]]:  # noqa: ARG001  there is one
    """Yield sets of tokens or of rows by name."""
    if inputs["reduction"] != "none":
        yield from row_inputs.row_places(inputs, "policy")
        return
    yield from row_inputs.places(inputs, "policy")
    policy, reference = (np.asarray(inputs[name], np.float64) for name in ("policy", "reference"))
    counts = row_inputs.tokens(inputs, "policy")
    named = {
        "where the reference is above the policy": reference > policy,
        "where the reference is below the policy": reference < policy,
        "where |d| > 1": np.abs(reference - policy) > 1.0,
        "where |d| > 3": np.abs(reference - policy) > 3.0,
    }
    yield from ((name, place & counts) for name, place in named.items())


def designed_vocabulary(example: Inputs, rng: np.random.Generator) -> Iterator[Inputs]:
    """Yield eight batches in the example's dtype and number of dimensions, of near and far distributions."""
    given = np.asarray(example["policy_logprobs"])
    for index, shape in enumerate(SHAPES):
        logits = rng.normal(0.0, 2.0, shape)
        others = logits + rng.normal(0.0, (0.5, 1.0, 2.0)[index % 3], shape)
        rows = shape if given.ndim == 3 else (-1, shape[-1]) if given.ndim == 2 else shape[-1:]
        both = [logprobs.log_softmax(x, temperature=1.0).reshape(-1, shape[-1]) for x in (logits, others)]
        both = [(x[0] if given.ndim == 1 else x.reshape(rows)).astype(given.dtype) for x in both]
        yield {**example, "policy_logprobs": both[0], "reference_logprobs": both[1]}


def places_of_positions(inputs: Inputs, output: str) -> Iterator[tuple[str, Array]]:  # noqa: ARG001  there is one
    """Yield sets of positions by name."""
    policy = np.asarray(inputs["policy_logprobs"])
    indices = np.arange(policy[..., 0].size).reshape(policy.shape[:-1])
    yield "after the first position", indices > 0
    yield "at the first position", indices == 0
    yield "where the policy's likeliest id has more than half", policy.max(axis=-1) > np.log(0.5)
    yield "where the policy's likeliest id has less than half", policy.max(axis=-1) < np.log(0.5)


# --- valid calls


def valid_tokens(rng: np.random.Generator, *, off_policy: bool, **choices: Any) -> dict[str, Any]:
    """Return a call of `token_kl`."""
    made = row_inputs.moved(rng, ("policy", "reference", "old"), **choices)
    return made if off_policy else {**made, "old": None}


def valid_vocabulary(
    rng: np.random.Generator, leading: tuple[int, ...], size: int, kind: str, reference: str, dtype: str
) -> dict[str, Any]:
    """Return a call of `full_kl`."""
    policy = logprobs.log_softmax(logits(rng, (*leading, size), kind), temperature=1.0)
    if reference == "same":
        return dict.fromkeys(("policy_logprobs", "reference_logprobs"), policy.astype(dtype))
    moved = logprobs.log_softmax(logits(rng, (*leading, size), reference), temperature=1.0)
    return {"policy_logprobs": policy.astype(dtype), "reference_logprobs": moved.astype(dtype)}


GENERATORS = (
    Generator(
        "token_kl",
        {
            **row_inputs.MOVED,
            "estimator": ("k3", "k1", "k2"),
            "reduction": ("none", "sum", "mean"),
            "kl_ratio": ("none", "token", "sequence"),
            "kl_clamp": (None, 10.0, 0.25, 1e-6),
            "off_policy": (True, False),
        },
        valid_tokens,
    ),
    Generator(
        "full_kl",
        {
            "leading": LEADING,
            "size": (9, 1, 2),
            "kind": KINDS,
            "reference": ("typical", "same", "cut", "peaked"),
            "dtype": DTYPES,
        },
        valid_vocabulary,
    ),
)
