"""The loss that an update minimises, by the settings in force: its value and its derivatives with respect to log-probs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gates.families.advantages.op import GROUP_ADVANTAGES
from gates.families.loss.op import POLICY_LOSS
from gates.families.preference.op import KTO_LOSS, PREFER, PREFERENCE_LOSS
from gates.families.trainer.step_inputs import LABELLED, PAIRS, SCORED_PAIRS, SUPERVISED
from gates.model import Array, Trial

REFERENCE_FREE = ("orpo", "simpo", "cpo")
LOSS = dict.fromkeys(
    (
        *("epsilon_low", "epsilon_high", "delta", "kl_estimator", "kl_ratio", "kl_clamp", "max_length"),
        *("micro_batches", "dapo_denominator", "cispo_bound"),
        *("sapo_temperature_positive", "sapo_temperature_negative"),
        *("ratio_level", "bound", "aggregation", "kl_aggregation", "count_eps"),
        *("vespo_k_positive", "vespo_lambda_positive", "vespo_k_negative", "vespo_lambda_negative"),
    )
)
OPTIONAL = (
    *("kl_clamp", "ratio_level", "bound", "aggregation", "kl_aggregation", "count_eps"),
    *("vespo_k_positive", "vespo_lambda_positive", "vespo_k_negative", "vespo_lambda_negative"),
)
ADVANTAGE = ("scale", "ddof", "eps", "eps_mode", "baseline")
PREFERENCE = ("beta", "label_smoothing", "lengths", "penalty", "margin", "nll")
KTO = ("desirable_weight", "undesirable_weight")


@dataclass(frozen=True)
class Rows:
    """Log-probs of an update, (R, T), with the mask of completions and that of all tokens that are scored."""

    policy: Array
    old: Array
    reference: Array
    mask: Array
    scored: Array


@dataclass(frozen=True)
class Loss:
    """A loss: its gradients on both branches of a bound, and its value with the sum of the sizes of its terms."""

    gradients: tuple[Array, Array]
    loss: tuple[float, float]


def advantages(t: Trial, settings: Mapping[str, Any]) -> Array:
    """Return the advantages of the case's rows by the settings in force; of pairs and labels 1, and −1 of rejected rows."""
    trainer, rewards = t.inputs["trainer"], t.inputs["rewards"]
    if trainer in SCORED_PAIRS:
        return np.asarray(t.want(PREFER, scores=np.asarray(rewards, np.float64)), np.float64)
    if trainer in LABELLED:
        return np.where(np.asarray(rewards) > 0, 1.0, -1.0)
    if rewards is None:
        rejected = np.arange(len(t.inputs["completions"])) % t.inputs["group_size"]
        return np.where(rejected == 0, 1.0, -1.0)
    chosen = {name: settings.get(name) for name in ADVANTAGE}
    return np.asarray(
        t.want(GROUP_ADVANTAGES, rewards=rewards, group_size=t.inputs["group_size"], **chosen), np.float64
    )


def loss(t: Trial, rows: Rows, settings: Mapping[str, Any], reference_point: float) -> Loss:
    """Return the loss that the settings name; `reference_point` is KTO's z0."""
    trainer = t.inputs["trainer"]
    if trainer in (*PAIRS, *SCORED_PAIRS):
        return _of_pairs(t, rows, settings)
    if trainer in LABELLED:
        return _of_labels(t, rows, settings, reference_point)
    return _of_rows(t, rows, settings)


def _of_pairs(t: Trial, rows: Rows, settings: Mapping[str, Any]) -> Loss:
    chosen = {name: settings.get(name) for name in PREFERENCE}
    signs = advantages(t, settings).reshape(-1, 2)
    order = (np.argsort(-signs, axis=1) + 2 * np.arange(len(signs))[:, None]).reshape(-1)
    if settings.get("nll_tokens") == "all":
        chosen["attention_mask"] = rows.scored[order]
    pairs = t.want(
        PREFERENCE_LOSS,
        policy=rows.policy[order],
        reference=None if settings["loss"] in REFERENCE_FREE else rows.reference[order],
        mask=rows.mask[order],
        loss=settings["loss"],
        **chosen,
    )
    gradient = np.empty_like(pairs.gradient)
    gradient[order] = pairs.gradient
    return Loss((gradient, gradient), (float(pairs.loss), float(pairs.loss)))


def _of_labels(t: Trial, rows: Rows, settings: Mapping[str, Any], reference_point: float) -> Loss:
    want = t.want(
        KTO_LOSS,
        policy=rows.policy,
        reference=rows.reference,
        mask=rows.mask,
        desirable=np.asarray(t.inputs["rewards"]) > 0,
        mismatched=np.array([reference_point]),
        beta=settings["beta"],
        **{name: settings[name] for name in KTO},
    )
    return Loss((want.gradient, want.gradient), (float(want.loss), float(want.loss)))


def _of_rows(t: Trial, rows: Rows, settings: Mapping[str, Any]) -> Loss:
    supervised = t.inputs["trainer"] in SUPERVISED
    if supervised:  # the mean of -log-probs: a policy loss on policy, with advantages of 1
        mean = {"dapo_denominator": "global"} if settings["aggregation"] == "token-mean" else {}
        settings = {"algorithm": "dapo" if mean else "grpo", **mean, "epsilon_low": 0.2, "epsilon_high": 0.2}
    constants = {name: settings.get(name) for name in LOSS if name not in OPTIONAL or name in settings}
    want = t.want(
        POLICY_LOSS,
        policy=rows.policy,
        old=None if supervised or settings.get("ratio") == "on-policy" else rows.old,
        reference=rows.reference,
        advantages=advantages(t, settings),
        mask=rows.mask,
        algorithm=settings["algorithm"],
        beta=settings.get("beta", 0.0),
        group_size=t.inputs["group_size"] if settings.get("dapo_denominator") == "group" else None,
        tokens_in_step=float(rows.mask.sum()) if settings.get("dapo_denominator") == "trl" else None,
        branch_dtype="float32",
        **constants,
    )
    value = float((want.gradient * rows.policy)[rows.mask].sum()) if supervised else float(want.loss)
    return Loss((want.gradient, want.gradient_other), (value, float(want.loss_scale)))
