"""The peer mlx-lm-lora: its GRPO objective and advantages, and the losses of its preference trainers.

Its GRPO makes one update per rollout and takes no old log-probs: only on-policy cases are judged. Its preference losses
take sums of token log-probs; its own `compute_score` adds them up, and ORPO's `get_logps` reads them from a fake model.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.append(str(Path(__file__).parent / "shared"))
import mlx.core as mx
import numpy as np
from mlx_lm_lora.trainer import cpo_trainer, dpo_trainer, grpo_trainer, online_dpo_trainer, orpo_trainer, xpo_trainer
from peer_mlx import FakeModel, array, logits_that_hold, loss_and_gradient, only_float32
from peer_rows import absent, only

if TYPE_CHECKING:
    from collections.abc import Callable

    Array = np.ndarray[Any, Any]

mx.set_default_device(mx.cpu)
VERSIONS = {name: version(name) for name in ("mlx-lm-lora", "mlx", "mlx-lm")}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "group_advantages": {  # grpo_trainer.py:311: (group - mean) / (std + 1e-4), in float64, handed on in float32
        "dtype": ("float32",),
        "scale": ("group",),
        "ddof": (0,),
        "eps": (1e-4, float(np.float32(1e-4))),
        "eps_mode": ("add",),
        "baseline": ("mean",),
    },
    "policy_loss": {
        "dtype": ("float32",),
        "algorithm": ("grpo", "dapo", "dr_grpo", "gspo"),
        "advantages": ("row",),
        "ratio": ("on-policy",),
        "dapo_denominator": ("global", None),
        "kl_estimator": ("k3",),
        "kl_ratio": ("none", None),
        "kl_clamp": (None,),
        "rows": ("mask", "holes"),
        "weights": (False,),
        "arithmetic": ("float32",),
    },
    "preference_loss": {
        "dtype": ("float32",),
        "loss": ("dpo", "hinge", "ipo", "dpop", "cpo", "orpo"),
        "lengths": ("mean", None),
        "nll_tokens": ("completion",),
        "arithmetic": ("float32",),
    },
    "selective_log_softmax": {
        "dtype": ("float16", "float32"),
        "ids_per_position": ("one",),
        "ignore_index": (None,),
    },
}
VARIANTS = {  # its other trainers have losses of their own
    "online-dpo": (("preference_loss",), {"trainer": "online"}),
    "xpo": (("preference_loss",), {"trainer": "xpo"}),
}
TRAINER: str = globals().get("SETTINGS", {}).get("trainer", "dpo")
LOSSES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "dpo": (dpo_trainer.compute_score, dpo_trainer.dpo_loss),
    "online": (online_dpo_trainer.compute_score, online_dpo_trainer.online_dpo_loss),
    "xpo": (online_dpo_trainer.compute_score, xpo_trainer.xpo_loss),
}
if TRAINER != "dpo":
    CONVENTIONS["preference_loss"]["loss"] = ("dpo", "hinge", "ipo", "dpop")


def group_advantages(rewards: Array, group_size: int, **conventions: Any) -> dict[str, Any]:
    """Advantages of rewards that one reward function returns."""
    only("group_advantages", CONVENTIONS["group_advantages"], dtype=str(rewards.dtype), **conventions)
    rows = range(len(rewards))
    prompts = [row // group_size for row in rows]

    def reward(**_: Any) -> list[float]:
        return rewards.tolist()

    nothing = ["" for _ in rows]
    found, _ = grpo_trainer.calculate_rewards_and_advantages(
        [reward], nothing, nothing, nothing, nothing, prompts, sorted(set(prompts))
    )
    return {"advantages": np.array(found)}


def policy_loss(
    *,
    policy: Array,
    old: Array | None,
    reference: Array | None,
    advantages: Array,
    mask: Array,
    algorithm: str,
    beta: float,
    max_length: int | None,
    **options: Any,
) -> dict[str, Any]:
    """Its objective of token log-probs; GSPO is its sequence level, DAPO's token mean its loss type bnpo."""
    only_float32("policy", policy)
    absent("policy_loss", old=old, delta=options.get("delta"), weights=options.get("weights"))
    level = "sequence" if algorithm == "gspo" else "token"
    kind = {"dapo": "bnpo", "dr_grpo": "dr_grpo"}.get(algorithm, "grpo")

    def loss(logprobs: mx.array) -> mx.array:
        return grpo_trainer._grpo_objective(  # noqa: SLF001  what its grpo_loss calls on log-probs
            logprobs,
            mx.stop_gradient(logprobs) if reference is None else array(reference),  # as its grpo_loss does
            array(mask),
            array(advantages),
            beta,
            options["epsilon_low"],
            options["epsilon_high"],
            max_length or policy.shape[1],
            level,
            kind,
        )[0]

    return loss_and_gradient(loss, policy)


def preference_loss(
    *, policy: Array, reference: Array | None, mask: Array, loss: str, **options: Any
) -> dict[str, Any]:
    """Losses of rows in pairs; the first column of its masks stands for a prompt."""
    only_float32("policy", policy)
    absent("preference_loss", label_smoothing=options.get("label_smoothing"), margin=options.get("margin"))
    counted = mx.array(np.pad(mask, ((0, 0), (1, 0))).astype(np.float32))
    if TRAINER != "dpo":
        counted = counted[:, 1:]
    masks = counted[0::2], counted[1::2]
    if loss == "orpo":
        return loss_and_gradient(lambda lp: _orpo(lp, mask, masks, options), policy)
    if loss != "cpo" and reference is None:
        raise NotImplementedError("its DPO losses take a reference")
    kind = {"dpo": "sigmoid", "cpo": "sigmoid"}.get(loss, loss)
    score, function = LOSSES[TRAINER]
    constants = {"beta": options["beta"], "delta": options.get("penalty") or 0.0, "loss_type": kind}

    def scores(logprobs: mx.array) -> tuple[mx.array, mx.array]:
        found = score(mx.where(array(mask), logprobs, 0), counted, kind)
        return found[0::2], found[1::2]

    def total(logprobs: mx.array) -> mx.array:
        if loss == "cpo":
            return cpo_trainer.cpo_loss(*scores(logprobs), *masks, **constants)[0]
        return function(*scores(logprobs), *scores(array(reference)), *masks, **constants)[0]

    return loss_and_gradient(total, policy)


def _orpo(logprobs: mx.array, mask: Array, masks: tuple[mx.array, mx.array], options: dict[str, Any]) -> mx.array:
    tokens = mx.zeros((len(mask), mask.shape[1] + 1), mx.int32)
    logits = logits_that_hold(mx.where(array(mask), logprobs, -1.0), tokens[:, 1:])
    chosen, rejected = (FakeModel(logits[side::2]) for side in (0, 1))
    scored = [
        orpo_trainer.get_logps(model, tokens[0::2], own) for model, own in zip((chosen, rejected), masks, strict=True)
    ]
    return orpo_trainer.orpo_loss(*scored[0], *scored[1], *masks, mx.ones(len(mask) // 2), options["beta"])[0]


def selective_log_softmax(logits: Array, ids: Array, *, temperature: float, entropy: bool, **_: Any) -> dict[str, Any]:
    """Its token log-probs; temperatures and entropies it does not have."""
    if temperature != 1.0 or entropy:
        raise NotImplementedError("mlx-lm-lora scores at temperature 1, without an entropy")
    rows = mx.array(logits).reshape(-1, 1, logits.shape[-1])
    select = grpo_trainer._select_token_logps  # noqa: SLF001  what all its scores go through
    found = select(rows, mx.array(ids).reshape(-1, 1), mx.ones((ids.size, 1), mx.bool_))
    return {"logprobs": np.array(found).reshape(ids.shape)}


OPS: dict[str, Callable[..., dict[str, Any]]] = {
    "group_advantages": group_advantages,
    "policy_loss": policy_loss,
    "preference_loss": preference_loss,
    "selective_log_softmax": selective_log_softmax,
}
