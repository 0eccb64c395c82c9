# ruff: noqa: SLF001  its losses and scores are private
"""The peer mlx-lm-lora: its GRPO objective and advantages, and the losses of its preference trainers.

Its GRPO makes one update per rollout and takes no old log-probs: only on-policy cases are judged. Its preference losses
take sums of token log-probs, which its own functions mask and add up; the cross entropy in them, which reads log-probs out
of a model's logits, is a stub that returns those of the case.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

sys.path.append(str(Path(__file__).parent / "shared"))
import mlx.core as mx
import numpy as np
from mlx import nn
from mlx_lm_lora.trainer import cpo_trainer, dpo_trainer, grpo_trainer, online_dpo_trainer, orpo_trainer, xpo_trainer
from peer_mlx import FakeModel, array, evaluated, loss_and_gradient, only_float32, timed_loss
from peer_rows import absent, only
from peer_timed import Timed

if TYPE_CHECKING:
    from collections.abc import Callable

    Array = np.ndarray[Any, Any]
    Answer = dict[str, Any]

mx.set_default_device(mx.cpu)
VERSIONS = {name: version(name) for name in ("mlx-lm-lora", "mlx", "mlx-lm")}
VARIANTS = {
    # its other trainers have losses of their own
    "online-dpo": (("preference_loss",), {"trainer": "online"}),
    "xpo": (("preference_loss",), {"trainer": "xpo"}),
    # its third loss type, and its README's recipe for DAPO: the default loss type with two widths
    "bnpo": (("policy_loss",), {"choices": "bnpo"}),
    "dapo-recipe": (("policy_loss",), {"choices": "dapo-recipe"}),
}
SETTING: dict[str, str] = globals().get("SETTINGS", {})
TRAINER = SETTING.get("trainer", "dpo")
LOSS = {"dpo": dpo_trainer.dpo_loss, "online": online_dpo_trainer.online_dpo_loss, "xpo": xpo_trainer.xpo_loss}[TRAINER]
PREFERENCES = ("dpo", "hinge", "ipo", "dpop", "cpo", "orpo") if TRAINER == "dpo" else ("dpo", "hinge", "ipo", "dpop")
LOSS_TYPES = {"grpo": "grpo", "dr_grpo": "dr_grpo", "gspo": "grpo"}
CHOICES: dict[str, dict[str, tuple[Any, ...]]] = {
    "bnpo": {"algorithm": ("grpo",), "aggregation": ("token-mean",)},
    "dapo-recipe": {"algorithm": ("dapo",), "aggregation": ("row-mean",)},  # METADATA:606
}
SINGLE = {"dtype": ("float32",), "arithmetic": ("float32",)}
GROUP = {"scale": ("group",), "ddof": (0,), "baseline": ("mean",)}
KL = {"kl_estimator": ("k3",), "kl_ratio": ("none", None), "kl_clamp": (None,)}
ROWS = {"advantages": ("row",), "ratio": ("on-policy",), "rows": ("mask", "holes"), "weights": (False,)}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    # grpo_trainer.py:311: (group - mean) / (std + 1e-4), in float64, handed on in float32
    "group_advantages": {"dtype": ("float32",), **GROUP, "eps": (1e-4, float(np.float32(1e-4))), "eps_mode": ("add",)},
    "policy_loss": {**SINGLE, **KL, **ROWS, "algorithm": tuple(LOSS_TYPES), "dapo_denominator": ("global", None)},
    "preference_loss": {**SINGLE, "loss": PREFERENCES, "lengths": ("mean", None), "nll_tokens": ("completion",)},
    "selective_log_softmax": {"dtype": ("float16", "float32"), "ids_per_position": ("one",), "ignore_index": (None,)},
}
CHOSEN = SETTING.get("choices", "")
CONVENTIONS["policy_loss"] |= CHOICES.get(CHOSEN, {})


def group_advantages(rewards: Array, group_size: int, **conventions: Any) -> Answer:
    """Advantages of rewards that one reward function returns."""
    only("group_advantages", CONVENTIONS["group_advantages"], dtype=str(rewards.dtype), **conventions)
    prompts = [row // group_size for row in range(len(rewards))]
    texts = [[""] * len(rewards)] * 4
    advantages, _ = grpo_trainer.calculate_rewards_and_advantages(
        [lambda **_: rewards.tolist()], *texts, prompts, sorted(set(prompts))
    )
    return {"advantages": np.array(advantages)}


def policy_loss(*, policy: Array, reference: Array | None, advantages: Array, mask: Array, **x: Any) -> Answer:
    """Its objective of token log-probs; GSPO is its sequence level."""
    return loss_and_gradient(_objective(policy, reference, advantages, mask, x), policy)


def _objective(
    policy: Array, reference: Array | None, advantages: Array, mask: Array, x: dict[str, Any]
) -> Callable[[mx.array], mx.array]:
    """Return its objective as a function of the log-probs."""
    only_float32("policy", policy)
    absent("policy_loss", old=x["old"], delta=x.get("delta"), weights=x.get("weights"))
    wide = [array(values) for values in (mask, advantages)]
    fixed = None if reference is None else array(reference)
    constants = x["beta"], x["epsilon_low"], x["epsilon_high"], x["max_length"] or policy.shape[1]
    level = "sequence" if x["algorithm"] == "gspo" else "token"
    kind = "bnpo" if CHOSEN == "bnpo" else LOSS_TYPES.get(x["algorithm"], "grpo")

    def loss(logprobs: mx.array) -> mx.array:
        old = mx.stop_gradient(logprobs) if fixed is None else fixed  # as its grpo_loss does
        return grpo_trainer._grpo_objective(logprobs, old, *wide, *constants, level, kind)[0]

    return loss


def preference_loss(*, policy: Array, reference: Array | None, mask: Array, loss: str, **x: Any) -> Answer:
    """Losses of rows in pairs; the first column of the DPO, CPO and ORPO masks stands for a prompt."""
    only_float32("policy", policy)
    absent("preference_loss", label_smoothing=x.get("label_smoothing"), margin=x.get("margin"))
    counted = array(np.pad(mask, ((0, 0), (int(TRAINER == "dpo"), 0))).astype(np.float32))
    masks = counted[0::2], counted[1::2]
    if loss == "orpo":
        return loss_and_gradient(lambda logprobs: _orpo(logprobs, mask, masks, x["beta"]), policy)
    if loss != "cpo" and reference is None:
        raise NotImplementedError("its DPO losses take a reference")
    kind = "sigmoid" if loss in {"dpo", "cpo"} else loss
    function = cpo_trainer.cpo_loss if loss == "cpo" else LOSS

    def scores(logprobs: mx.array) -> tuple[mx.array, mx.array]:
        scored = _scores(logprobs, counted, kind)
        return scored[0::2], scored[1::2]

    references = () if loss == "cpo" else scores(array(reference))
    constants = {"beta": x["beta"], "delta": x.get("penalty") or 0.0, "loss_type": kind}
    return loss_and_gradient(lambda lp: function(*scores(lp), *references, *masks, **constants)[0], policy)


def _scores(logprobs: mx.array, counted: mx.array, kind: str) -> mx.array:
    """Return its score of each row."""
    if TRAINER == "dpo":
        tokens = mx.zeros(counted.shape, mx.int32)
        with patch.object(nn.losses, "cross_entropy", _given):
            return dpo_trainer.compute_score(
                dpo_trainer.get_token_scores(FakeModel(logprobs), tokens, counted), counted, kind
            )
    # Its online trainers select the log-probs of targets by mx.where (grpo_trainer.py:112, compiled).
    return online_dpo_trainer.compute_score(mx.where(counted > 0, logprobs, 0), counted, kind)


def _given(logprobs: mx.array, *_: Any, **__: Any) -> mx.array:
    """Stand for its cross entropy: the "logits" of the fake model are log-probs."""
    return -logprobs


def _orpo(logprobs: mx.array, mask: Array, masks: tuple[mx.array, mx.array], beta: float) -> mx.array:
    tokens = mx.zeros((len(mask) // 2, mask.shape[1] + 1), mx.int32)
    with patch.object(nn.losses, "cross_entropy", _given):
        scored = [orpo_trainer.get_logps(FakeModel(logprobs[side::2]), tokens, masks[side]) for side in (0, 1)]
    return orpo_trainer.orpo_loss(*scored[0], *scored[1], *masks, mx.ones(len(mask) // 2), beta)[0]


def selective_log_softmax(logits: Array, ids: Array, *, temperature: float, entropy: bool, **_: Any) -> Answer:
    """Its token log-probs; it has no temperature or entropy."""
    if temperature != 1.0 or entropy:
        raise NotImplementedError("mlx-lm-lora scores at temperature 1, without an entropy")
    rows = array(logits).reshape(-1, 1, logits.shape[-1])
    logprobs = grpo_trainer._select_token_logps(rows, array(ids).reshape(-1, 1), mx.ones((ids.size, 1), mx.bool_))
    return {"logprobs": np.array(logprobs).reshape(ids.shape)}


OPS: dict[str, Callable[..., Answer]] = {
    function.__name__: function for function in (group_advantages, policy_loss, preference_loss, selective_log_softmax)
}


def timed_group_advantages(rewards: Array, group_size: int, **_: Any) -> Timed:
    """Rewards of one reward function, from their list to the advantages."""
    prompts = [row // group_size for row in range(len(rewards))]
    values, texts = rewards.tolist(), [[""] * len(rewards)] * 4
    names = {
        "evaluated": evaluated,
        "calculate_rewards_and_advantages": grpo_trainer.calculate_rewards_and_advantages,
        "functions": [lambda **_: values],
        "texts": texts,
        "prompts": prompts,
        "unique": sorted(set(prompts)),
    }
    return Timed(
        "evaluated(calculate_rewards_and_advantages(functions, *texts, prompts, unique)[0])",
        names,
        lambda result: {"advantages": np.array(result)},
        "calculate_rewards_and_advantages with one reward function that returns the rewards; its statistics are in the time",
    )


def timed_policy_loss(*, policy: Array, reference: Array | None, advantages: Array, mask: Array, **x: Any) -> Timed:
    """Its compiled objective with MLX's gradient."""
    note = "grpo_trainer._grpo_objective under mx.value_and_grad, evaluated; its metrics are in the time"
    return timed_loss(_objective(policy, reference, advantages, mask, x), policy, note)


def timed_selective_log_softmax(logits: Array, ids: Array, **_: Any) -> Timed:
    """Its compiled token log-probs, each row a sequence of one token."""
    names = {
        "evaluated": evaluated,
        "select_token_logps": grpo_trainer._select_token_logps,
        "logits": evaluated(array(logits)[:, None]),
        "ids": evaluated(array(ids)[:, None]),
        "mask": evaluated(mx.ones((ids.size, 1), mx.bool_)),
    }
    return Timed(
        "evaluated(select_token_logps(logits, ids, mask))",
        names,
        lambda result: {"logprobs": np.array(result)[:, 0]},
        "grpo_trainer._select_token_logps",
    )


TIMED: dict[str, Callable[..., Timed]] = {
    "group_advantages": timed_group_advantages,
    "policy_loss": timed_policy_loss,
    "selective_log_softmax": timed_selective_log_softmax,
}
