"""The loss of an optimizer step, and its derivative with respect to each log-prob and each entropy, by the definitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gates.model import Array
from gates.replay.trace import Update
from gates_reference.algorithms import ALGORITHMS
from gates_reference.oracle.losses import policy_loss
from gates_reference.oracle.preference import preference_loss
from gates_reference.oracle.ratio import importance_weights

CONSTANTS = {
    "epsilon_low": "epsilon_low",
    "epsilon_high": "epsilon_high",
    "delta": "delta",
    "cispo_bound": "bound",
    "sapo_temperature_positive": "temperature_positive",
    "sapo_temperature_negative": "temperature_negative",
    "vespo_k_positive": "k_positive",
    "vespo_lambda_positive": "lambda_positive",
    "vespo_k_negative": "k_negative",
    "vespo_lambda_negative": "lambda_negative",
}
DENOMINATORS = ("global", "group", "trl")
PAIRS = ("dpo", "online_dpo")


@dataclass(frozen=True)
class Coefficients:
    """Of B rows with T slots.

    Attributes:
        loss: the whole loss.
        scale: the sum of the sizes of its terms.
        of_policy: (B, T) ∂loss/∂log-prob.
        of_entropy: (B, T) ∂loss/∂entropy.
    """

    loss: float
    scale: float
    of_policy: Array
    of_entropy: Array


@dataclass(frozen=True)
class Counts:
    """Counts of a step that its updates divide by.

    Attributes:
        window: the tokens of the generation times this update's share of its rows.
        group_size: rows of a prompt.
        max_length: the most tokens of a completion.
    """

    window: float
    group_size: int
    max_length: int


def of_update(name: str, settings: Mapping[str, Any], update: Update, counts: Counts) -> Coefficients:
    """Return the coefficients at the recorded log-probs; `settings` are those of the algorithm, with defaults."""
    if name in PAIRS:
        return _of_pairs(settings, update)
    if name == "best_of_n":
        return _of_winners(update, counts)
    arrays = {key: values.astype(np.float64) for key, values in update.arrays.items()}
    mask = arrays["mask"] > 0
    old = arrays.get("old")
    chosen = _chosen(settings, arrays, mask)
    row = ALGORITHMS[name]
    weights = None
    if settings["correction"] is not None:
        weights = importance_weights(
            arrays["policy"] if old is None else old,
            arrays["sampling"],
            mask,
            correction=settings["correction"],
            level=settings["correction_level"],
            c_min=settings["correction_low"],
            c_max=settings["correction_high"],
        )
    advantages = arrays["advantages"]
    if settings["entropy_share"] < 1:
        share = chosen.sum(1) / np.maximum(mask.sum(1), 1)
        advantages = advantages * share if row.by_row else advantages[:, None] * chosen
        weights = weights[:, None] * mask if weights is not None and weights.ndim < advantages.ndim else weights
    kl = settings["beta"] and not settings["kl_in_reward"]
    want = policy_loss(
        arrays["policy"],
        old=old,
        reference=arrays.get("reference") if kl else None,
        advantages=advantages,
        mask=mask,
        algorithm=name,
        **{word: settings.get(own) for word, own in CONSTANTS.items()},
        beta=settings["beta"] if kl else 0.0,
        kl_ratio=settings["kl_ratio"],
        kl_estimator=settings["kl_estimator"],
        weights=weights,
        **_mean(settings["aggregation"], update, counts),
        branch_dtype="float32",
    )
    bonus, tokens = settings["entropy_bonus"], max(int(chosen.sum()), 1)
    of_entropy = np.where(chosen, -bonus / tokens, 0.0)
    entropies = np.where(chosen, arrays["entropy"], 0.0) if bonus else np.zeros(mask.shape)
    loss = want.loss + float((of_entropy * entropies).sum())
    return Coefficients(loss, want.loss_scale + abs(loss - want.loss), want.gradient, of_entropy)


def _mean(aggregation: str, update: Update, counts: Counts) -> dict[str, Any]:
    """Return how token losses are averaged, in the oracle's words."""
    if aggregation in DENOMINATORS:
        return {
            "aggregation": "token-mean",
            "dapo_denominator": aggregation,
            "group_size": counts.group_size,
            "tokens_in_step": counts.window,
        }
    more = {
        "constant": {"max_length": counts.max_length},
        "micro-batch": {"micro_batches": update.facts["micro_batches"]},
    }
    return {"aggregation": aggregation, **more.get(aggregation, {})}


def _chosen(settings: Mapping[str, Any], arrays: Mapping[str, Array], mask: Array) -> Array:
    """Return which tokens (B, T) train the policy: all, or those of highest entropy."""
    if settings["entropy_share"] >= 1 or not mask.any():
        return mask
    least = np.quantile(arrays["entropy"][mask], 1.0 - settings["entropy_share"])
    return np.asarray(mask & (arrays["entropy"] >= least))


def _of_pairs(settings: Mapping[str, Any], update: Update) -> Coefficients:
    arrays = {key: values.astype(np.float64) for key, values in update.arrays.items()}
    signs = arrays["advantages"].reshape(-1, 2)
    rows = np.arange(len(arrays["policy"])).reshape(-1, 2)
    order: Array = np.where(signs[:, :1] < 0, rows[:, ::-1], rows).reshape(-1)  # the chosen row first
    reference = None if settings["reference_free"] else arrays["reference"][order]
    kind = settings["loss"]
    want = preference_loss(
        arrays["policy"][order],
        reference=reference,
        mask=arrays["mask"][order] > 0,
        loss="dpo" if kind == "sigmoid" else kind,
        beta=settings["beta"],
        label_smoothing=settings["label_smoothing"] if kind == "sigmoid" else None,
        lengths=settings["ipo_lengths"] if kind == "ipo" else None,
    )
    gradient = np.zeros_like(want.gradient)
    gradient[order] = want.gradient
    return Coefficients(want.loss, want.loss_scale, gradient, np.zeros_like(gradient))


def _of_winners(update: Update, counts: Counts) -> Coefficients:
    mask = update.arrays["mask"] > 0
    wins = update.arrays["advantages"] > 0
    prompts = len(mask) // counts.group_size
    slope = np.where(mask & wins[:, None], -1.0 / np.maximum(mask.sum(1, keepdims=True), 1) / prompts, 0.0)
    loss = float((slope * np.where(mask, update.arrays["policy"].astype(np.float64), 0.0)).sum())
    return Coefficients(loss, abs(loss), slope, np.zeros(mask.shape))
