"""The keywords of one call of a policy loss: a batch of rows in a layout, with the constants of its algorithm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gates.families import arrays, row_inputs
from gates.model import Array
from gates_reference.algorithms import ALGORITHMS, AXES, Algorithm, composed

BASE: dict[str, Any] = {
    "epsilon_low": None,
    "epsilon_high": None,
    "delta": None,
    "beta": 0.0,
    "kl_ratio": "none",
    "max_length": None,
    "micro_batches": None,
    "dapo_denominator": None,
}
WHOLE: dict[str, Any] = {
    **BASE,
    "kl_estimator": "k3",
    "group_size": None,
    "tokens_in_step": None,
    "cispo_bound": None,
    "sapo_temperature_positive": None,
    "sapo_temperature_negative": None,
}
SCALARS = ("epsilon_low", "epsilon_high", "delta", "beta", "sapo_temperature_positive", "sapo_temperature_negative")
EXCLUDED = slice(1, None, 3)  # rows that a row mask excludes
FAR = (slice(None), slice(None, None, 4))  # tokens whose KL is clamped
FAR_BY = 4.0  # nats, so that k3 is 50
DRIFT = (2.6, 8.0)  # nats of some tokens from the reference, as after many steps: k3 of 10 to 3000
FARTHER_BY = 12.0  # nats, so that k1 is -12


def batch_for(algorithm: str) -> dict[str, Any]:
    """Return the keywords of a batch that an algorithm needs.

    A clip of mean ratios stops whole rows, so the batch has more. GSPO-token with one advantage per row would be GSPO, so
    its advantages are per token.
    """
    return batch_of(ALGORITHMS[algorithm])


def batch_of(row: Algorithm) -> dict[str, Any]:
    """Return what the batch of a row of the table needs beyond the usual; see `batch_for`."""
    if row.mean_ratio:
        return {"rows": 24} if row.by_row else {"rows": 24, "by_token": True}
    if row.ratio_level == "seq_sum" and row.bound != "none":
        return {"spread": 0.15}
    return {"spread": 0.8} if "delta" in row.constants else {}  # few ratios of an ordinary batch exceed a δ of 3


def tight_delta(algorithm: str, usual: float = 1.5) -> float:
    """Return a δ that some ratios of a batch exceed."""
    return 1.06 if ALGORITHMS[algorithm].mean_ratio else usual


def row_for(algorithm: str, changes: Mapping[str, Any]) -> Algorithm:
    """Return the row of an algorithm with those of the changes that are choices on axes."""
    return composed(algorithm, **{axis: changes[axis] for axis in AXES if changes.get(axis) is not None})


def make(
    rng: np.random.Generator,
    algorithm: str,
    data: Mapping[str, Any],
    changes: Mapping[str, Any],
    rows: str = "mask",
    weights: str = "none",
    beyond: int = 0,
) -> dict[str, Any]:
    """Return the keywords of one call of policy_loss.

    `rows` says how completions are marked off from padding ("all": there is none; "row-mask": some rows do not train),
    `weights` whether off-policy weights are given and for what, `beyond` how many columns lie behind the longest row. `found` of the
    data is what the search for inputs asked for: advantages that are ±1, rows of one token, an estimate that a clamp
    holds on its negative side, or ratios of e^-300 and less.
    """
    found = data.get("found", "")
    inputs = arrays.loss_inputs(rng, **{name: value for name, value in data.items() if name != "found"})
    _change(rng, inputs, found)
    unset = ("old", *(name for name in ("kl_clamp", "count_eps") if not changes.get(name)))
    choice = {**WHOLE, **row_for(algorithm, changes).constants, **changes}
    choice = {name: value for name, value in choice.items() if name not in unset}
    if not choice["beta"]:
        inputs["reference"], choice["kl_ratio"], choice["kl_estimator"] = None, None, None
    if choice.get("kl_clamp"):
        for name in ("policy", "old"):
            inputs[name][FAR] -= FARTHER_BY if found == "negative" else FAR_BY
    if changes.get("old", "given") is None:
        inputs["old"] = None
    if choice["micro_batches"]:
        choice["micro_batches"] = _scaled(choice["micro_batches"], len(inputs["mask"]))
    inputs["weights"] = None
    if weights != "none":
        shape = inputs["mask"].shape if weights == "token" else inputs["mask"].shape[:1]
        drawn = rng.uniform(0.2, 2.0, shape)
        drawn[rng.random(shape) < 0.25] = 0.0  # dropped by masked importance sampling
        inputs["weights"] = drawn.astype(inputs["policy"].dtype)
    call = {**inputs, "algorithm": algorithm, "lengths": None, **choice}
    if rows in {"mask", "row-mask"} and beyond:
        call |= {name: _wider(values, beyond) for name, values in _by_token(call).items()}
        call["mask"][:, -beyond:] = False
    if rows == "row-mask":
        call["row_mask"] = np.ones(len(call["mask"]), bool)
        call["row_mask"][EXCLUDED] = False
        return call
    return call if rows == "mask" else _without_mask(call, rows, beyond)


def _scaled(sizes: Sequence[int], rows: int) -> list[int]:
    """Return the sizes of two micro-batches, in the same proportion if they have another number of rows in all."""
    if sum(sizes) == rows:
        return list(sizes)
    first = rows * sizes[0] // sum(sizes)
    return [first, rows - first]


def _by_token(given: Mapping[str, Any]) -> dict[str, Array]:
    return {k: v for k, v in given.items() if isinstance(v, np.ndarray) and v.shape == given["mask"].shape}


def _wider(values: Array, columns: int) -> Array:
    """Return an array with more columns that hold what its last one holds."""
    return np.pad(values, ((0, 0), (0, columns)), mode="edge")


def _change(rng: np.random.Generator, inputs: dict[str, Any], found: str) -> None:
    """Turn a batch into the special input `found`."""
    if found == "ones":
        inputs["advantages"] = np.resize([1.0, -1.0], len(inputs["advantages"])).astype(inputs["policy"].dtype)
    if found == "far-below":
        inputs["policy"][:, ::2] -= rng.uniform(300.0, 600.0, inputs["policy"][:, ::2].shape)
    if found == "far-reference":
        shape = inputs["reference"][FAR].shape
        drift = rng.uniform(*DRIFT, shape) * np.where(rng.random(shape) < 0.5, -1.0, 1.0)
        inputs["reference"][FAR] = (inputs["policy"][FAR] + drift).astype(inputs["policy"].dtype)
    if found == "short":
        inputs["mask"][::2] = np.arange(inputs["mask"].shape[1]) < 1


def _without_mask(given: dict[str, Any], rows: str, beyond: int) -> dict[str, Any]:
    mask = given["mask"]
    if rows == "all" and not mask.all():
        raise ValueError("slots that do not count need a mask")
    if not np.array_equal(mask, np.arange(mask.shape[1]) < mask.sum(axis=1)[:, None]):
        raise ValueError("a mask with holes has no lengths")
    if rows != "lengths":
        return row_inputs.passed(given, mask, "whole" if rows == "all" else rows)
    wide = {name: _wider(values, beyond) for name, values in _by_token(given).items()}
    return {**given, **wide, "mask": None, "lengths": mask.sum(axis=1)}


def valid(inputs: Mapping[str, Any]) -> Array:
    """Return which elements of the policy's log-probs are tokens."""
    return row_inputs.tokens(inputs, "policy")


def rows_of(inputs: Mapping[str, Any]) -> Array:
    """Return the row index of each element of the policy's log-probs."""
    if inputs["policy"].ndim == 1:
        return np.repeat(np.arange(len(inputs["lengths"])), inputs["lengths"])
    return np.broadcast_to(np.arange(len(inputs["policy"]))[:, None], inputs["policy"].shape)


def of_elements(inputs: Mapping[str, Any], value: Array) -> Array:
    """Broadcast values of rows to elements; values of elements are returned unchanged."""
    by_row = inputs["policy"].ndim == 1 and value.shape == np.shape(inputs["lengths"])
    return value[rows_of(inputs)] if by_row or value.shape != inputs["policy"].shape else value


def rounded(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs with scalars rounded to the data's dtype, as kernels round them."""
    return arrays.rounded(inputs, SCALARS)
