"""Seeded calls of the KL's ops."""

from __future__ import annotations

from typing import Any

import numpy as np

from gates.families import arrays
from gates.model import Array
from reference.oracle import logprobs

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
        policy = -rng.gamma(1.5, 0.8, shape) - 1e-3
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


def counts(inputs: dict[str, Any]) -> Array:
    """Return which slots hold a token."""
    shape = inputs["policy"].shape
    if inputs["mask"] is not None:
        return np.asarray(inputs["mask"], bool)
    if inputs["lengths"] is None or len(shape) == 1:
        return np.ones(shape, bool)
    lengths: Array = inputs["lengths"]
    return np.arange(shape[1]) < lengths[:, None]


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
