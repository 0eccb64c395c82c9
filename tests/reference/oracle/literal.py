"""The policy losses as the papers write them, one token after the other, for complex or arbitrary-precision numbers."""

import cmath
import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

NAN = math.nan
LENGTHS = np.array([4, 2, 3, 0, 1, 4])  # of three prompts with two completions each; one is empty
MASK = np.arange(4) < LENGTHS[:, None]
MASK[0, 1] = False  # masks need not be prefixes
LOW, HIGH, DELTA, BETA = 0.05, 0.08, 1.2, 0.3

VARIANTS: dict[str, dict[str, Any]] = {
    "grpo": {"algorithm": "grpo"},
    "dapo-global": {"algorithm": "dapo", "dapo_denominator": "global"},
    "dapo-group": {"algorithm": "dapo", "dapo_denominator": "group", "group_size": 2},
    "dapo-trl": {"algorithm": "dapo", "dapo_denominator": "trl", "tokens_in_step": 16.5},
    "bnpo-trl": {"algorithm": "bnpo-trl", "micro_batches": [1, 3, 2]},
    "dr_grpo": {"algorithm": "dr_grpo", "max_length": 7},
    "gspo": {"algorithm": "gspo"},
    "gspo-token": {"algorithm": "gspo-token"},
    "rloo": {"algorithm": "rloo"},
    "cispo-relative": {"algorithm": "cispo", "cispo_bound": "relative", "dapo_denominator": "global"},
    "cispo-absolute": {
        "algorithm": "cispo", "cispo_bound": "absolute", "dapo_denominator": "group", "group_size": 2
    },
    "sapo": {"algorithm": "sapo", "sapo_temperature_positive": 1.0, "sapo_temperature_negative": 1.3},
    "gmpo": {"algorithm": "gmpo"},
    "luspo": {"algorithm": "luspo"},
    "reinforce": {"algorithm": "reinforce"},
    "reinforce++": {"algorithm": "reinforce++", "dapo_denominator": "global"},
    "ppo": {"algorithm": "ppo", "dapo_denominator": "global"},
    "vespo": {
        "algorithm": "vespo", "dapo_denominator": "global", "vespo_k_positive": 2.0, "vespo_lambda_positive": 3.0,
        "vespo_k_negative": 3.0, "vespo_lambda_negative": 2.0,
    },
    "cispo-lower": {"algorithm": "cispo", "cispo_bound": "relative", "dapo_denominator": "global"},
}  # fmt: skip
FREE = (
    "rloo",
    "cispo-relative",
    "cispo-absolute",
    "cispo-lower",
    "sapo",
    "gmpo",
    "reinforce",
    "vespo",
)  # without the two-sided bound delta
BY_ROW = ("gspo", "rloo", "gmpo", "luspo", "vespo")
IN_REWARD = ("rloo", "reinforce++")  # whose KL is not in the loss
KLS: dict[str, dict[str, Any]] = {
    "no KL": {"beta": 0.0, "kl_ratio": None, "reference": None},
    "KL": {"beta": BETA, "kl_ratio": "none", "kl_estimator": "k3"},
    "KL by token ratio": {"beta": BETA, "kl_ratio": "token", "kl_estimator": "k3"},
    "KL by sequence ratio": {"beta": BETA, "kl_ratio": "sequence", "kl_estimator": "k3"},
    "k1": {"beta": BETA, "kl_ratio": "none", "kl_estimator": "k1"},
    "k1 by token ratio": {"beta": BETA, "kl_ratio": "token", "kl_estimator": "k1"},
    "k2 by token ratio": {"beta": BETA, "kl_ratio": "token", "kl_estimator": "k2"},
    "k2 by sequence ratio": {"beta": BETA, "kl_ratio": "sequence", "kl_estimator": "k2"},
}


def batch() -> dict[str, Any]:
    """Log-probs whose ratios, per token and per row, are on all sides of all bounds; NaN in masked slots."""
    rng = np.random.default_rng(4)
    policy = rng.uniform(-3, -0.5, MASK.shape)
    old = policy - rng.normal(0, 0.15, MASK.shape) - np.array([0.25, -0.3, 0.1, 0, 0.1, 0.02])[:, None]
    reference = policy + rng.normal(0, 0.5, MASK.shape)
    arrays = {"policy": policy, "old": old, "reference": reference}
    poisoned = {name: np.where(MASK, array, NAN) for name, array in arrays.items()}
    return poisoned | {"advantages": np.array([-1.5, -0.7, -0.4, 3.0, 0.9, 1.3]), "mask": MASK}


def options(variant: str, kl: str, delta: float | None) -> dict[str, Any]:
    """All keywords of one combination, None for a bound that the algorithm does not have."""
    clip = {"epsilon_low": LOW, "epsilon_high": HIGH, "delta": delta}
    if variant in FREE:
        clip["delta"] = None
    if variant in ("rloo", "sapo", "reinforce", "vespo"):
        clip = dict.fromkeys(clip)
    if variant.startswith("cispo") and variant != "cispo-lower":
        clip["epsilon_low"] = None
    return batch() | clip | VARIANTS[variant] | KLS[kl]


def combinations() -> list[Any]:
    """Every algorithm with every clip and every KL that it has."""
    every = [(v, k, d) for v in VARIANTS for k in KLS for d in (None, DELTA)]
    found = [(v, k, d) for v, k, d in every if (v not in IN_REWARD or k == "no KL") and (v not in FREE or d is None)]
    return [pytest.param(*each, id=f"{each[0]}, {each[1]}, delta {each[2]}") for each in found]


def real(z: Any) -> float:
    return complex(z).real


def literal(policy: np.ndarray, given: dict[str, Any], exp: Callable[[Any], Any] = cmath.exp) -> Any:
    """The loss as the papers write it, one token after the other, of complex log-probs.

    What a paper holds constant is computed from the real parts: a step along the imaginary axis does not reach it.
    """
    old, reference, mask = given["old"], given["reference"], given["mask"]
    advantages = np.broadcast_to(given["advantages"].reshape(len(mask), -1), mask.shape)
    weights = np.broadcast_to(np.asarray(given.get("weights", np.ones(len(mask)))).reshape(len(mask), -1), mask.shape)
    rows: list[list[complex]] = []
    for i in range(len(mask)):
        tokens = np.flatnonzero(mask[i])
        differences = [policy[i, t] - old[i, t] for t in tokens]
        mean = exp(sum(differences, start=0j) / max(len(tokens), 1))
        row = []
        for t, difference in zip(tokens, differences, strict=True):
            term = weights[i, t] * surrogate(given, policy[i, t], difference, differences, advantages[i, t], exp)
            if given["beta"]:
                d = reference[i, t] - policy[i, t]
                rho = {"none": 1.0, "token": exp(difference), "sequence": mean}[given["kl_ratio"]]
                estimate = {"k1": -d, "k2": d * d / 2, "k3": exp(d) - d - 1}[given["kl_estimator"]]
                term += given["beta"] * rho * estimate
            row.append(term)
        rows.append(row)
    return aggregate(rows, given)


def surrogate(  # noqa: PLR0911  one for each paper
    given: dict[str, Any], lp: Any, difference: Any, row: list[Any], advantage: Any, exp: Callable[[Any], Any]
) -> Any:
    """The term of one token, whose row has these differences."""
    algorithm, low, high, delta = (given[k] for k in ("algorithm", "epsilon_low", "epsilon_high", "delta"))
    own, mean = exp(difference), exp(sum(row, start=0j) / len(row))
    if algorithm == "rloo":
        return -exp(sum(row, start=0j)) * advantage
    if algorithm == "cispo":
        floor = 0.0 if low is None else 1 - low
        return -min(max(own.real, floor), 1 + high if given["cispo_bound"] == "relative" else high) * advantage * lp
    if algorithm == "reinforce":
        return -advantage * lp
    if algorithm == "vespo":
        k, rate = (given[f"vespo_{name}_{'positive' if advantage >= 0 else 'negative'}"] for name in ("k", "lambda"))
        w = exp(sum(row, start=0j)).real
        return -exp(rate).real * w**k * exp(-rate * w).real * advantage * lp
    if algorithm == "ppo":
        term = max(-own * advantage, -min(max(own, 1 - low, key=real), 1 + high, key=real) * advantage, key=real)
        return term if delta is None or advantage >= 0 else min(term, -delta * advantage, key=real)
    if algorithm == "sapo":
        tau = given["sapo_temperature_positive" if advantage > 0 else "sapo_temperature_negative"]
        return -4 / tau / (1 + exp(-tau * (own - 1))) * advantage
    if algorithm == "gmpo":
        held = [min(d, high, key=real) if advantage > 0 else max(d, -low, key=real) for d in row]
        return -exp(sum(held, start=0j) / len(row)) * advantage
    r = own
    if algorithm in ("gspo", "luspo"):
        r = mean
    if algorithm == "gspo-token":
        r = mean.real * exp(lp - lp.real)
    bounded = r if delta is None else min(r, delta, key=real)
    clipped = min(max(r, 1 - low, key=real), 1 + high, key=real)
    return -min(bounded * advantage, clipped * advantage, key=real)


def aggregate(rows: list[list[Any]], given: dict[str, Any]) -> Any:  # noqa: PLR0911  one for each denominator
    """Aggregate as docs/definitions.md, "Policy losses by name", says."""

    def token_mean(part: list[list[complex]]) -> complex:
        return sum(map(sum, part), start=0j) / max(sum(map(len, part)), 1)

    if given["algorithm"] in ("dapo", "cispo", "reinforce++", "ppo", "vespo"):
        if given["dapo_denominator"] == "trl":
            return sum(map(sum, rows), start=0j) / given["tokens_in_step"]
        if given["dapo_denominator"] == "group":
            return sum((token_mean(rows[i : i + 2]) for i in (0, 2, 4)), start=0j) / 3
        return token_mean(rows)
    if given["algorithm"] == "bnpo-trl":
        ends = [0, *np.cumsum(given["micro_batches"])]
        return sum((token_mean(rows[a:b]) for a, b in pairwise(ends)), start=0j) / len(given["micro_batches"])
    if given["algorithm"] == "dr_grpo":
        return sum(map(sum, rows), start=0j) / (len(rows) * given["max_length"])
    if given["algorithm"] == "luspo":  # n_i l_i, and the KL summed: the terms of a row as they are
        return sum(map(sum, rows), start=0j) / len(rows)
    return sum((token_mean([row]) for row in rows), start=0j) / len(rows)


def complex_step(given: dict[str, Any]) -> np.ndarray:
    """The derivative of `literal` by each log-prob, without subtraction."""
    gradient = np.zeros(MASK.shape)
    for slot in np.argwhere(MASK):
        moved = given["policy"].astype(complex)
        moved[tuple(slot)] += 1e-30j
        gradient[tuple(slot)] = literal(moved, given).imag / 1e-30
    return gradient
