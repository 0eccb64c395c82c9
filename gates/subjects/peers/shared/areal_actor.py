"""What areal's PPO actor computes: its loss, the normalisation of its rewards, its corrections and its overlong penalty.

This file is copied next to an adapter. Its first import is the shim: packages of areal are imported without their `__init__`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from peer_rows import absent, grid, mask_of, only, ungrid
from peer_shim import Placeholder, without_init
from peer_torch import loss_and_gradient, tensor

CONTROLLER = "areal.experimental.training_service.controller.controller"
without_init(
    "areal", "areal.infra", "areal.engine.fsdp_utils", "areal.trainer", "areal.trainer.ppo", "areal.trainer.dpo"
)
sys.modules[CONTROLLER] = Placeholder(CONTROLLER)

from areal.api.cli_args import NormConfig, RejectionSamplingConfig
from areal.trainer.ppo.actor import grpo_loss_fn
from areal.utils import stats_tracker
from areal.utils.data import Normalization
from areal.utils.functional import reward_overlong_penalty
from areal.utils.functional.functional import apply_rejection_sampling

Array = np.ndarray[Any, Any]


def conventions(setting: Mapping[str, Any]) -> dict[str, dict[str, tuple[Any, ...]]]:
    """Return the choices of these ops, with those of a variant."""
    return {
        "policy_loss": LOSS | {axis: (choice,) for axis, choice in setting.items()},
        "group_advantages": ADVANTAGES,
        "importance_weights": WEIGHTS,
    }


LOSS: dict[str, tuple[Any, ...]] = {
    "dtype": ("float32",),  # its statistics refuse others
    "algorithm": ("ppo", "dapo"),
    "dapo_denominator": ("global", None),
    "kl_estimator": (None,),  # its KL stands in the reward
    "weights": (False,),
}
ADVANTAGES: dict[str, tuple[Any, ...]] = {
    "dtype": ("float32",),  # Normalization returns float32
    "scale": ("group", "batch", "none"),
    "ddof": (0, 1, None),
    "eps": (1e-8, 1e-6, 1e-5, 1e-4, None),  # any, "to avoid numerical issues"; 0 is none
    "eps_mode": ("add", None),
    "baseline": ("mean", "leave-one-out", "batch", "none"),
}
WEIGHTS: dict[str, tuple[Any, ...]] = {"correction": ("tis", "mis"), "level": ("token",)}


def policy_loss(*, policy: Array, mask: Array | None = None, lengths: Array | None = None, **x: Any) -> dict[str, Any]:
    """The actor's loss of one minibatch that is the whole step."""
    absent("policy_loss", row_mask=x.get("row_mask"), weights=x.get("weights"), beta=x["beta"])
    where, sapo = mask_of(policy, mask, lengths), x["algorithm"] == "sapo"
    wide, gain = grid(policy, where), grid(x["advantages"], where)
    assert wide is not None
    assert gain is not None
    gain = gain if gain.ndim > 1 else np.repeat(gain[:, None], where.shape[1], axis=1)
    old = tensor(wide if x["old"] is None else grid(x["old"], where))
    batch = {"logprobs": old, "prox_logp": old, "advantages": tensor(gain), "loss_mask": tensor(where)}
    options = {
        "eps_clip": 0.2 if sapo else x["epsilon_low"],
        "eps_clip_higher": None if sapo else x["epsilon_high"],
        "c_clip": x.get("delta"),
        "importance_sampling_level": "sequence" if x["algorithm"] == "gspo" else "token",
        "use_sapo_loss": sapo,
        "sapo_tau_pos": x.get("sapo_temperature_positive") or 1.0,
        "sapo_tau_neg": x.get("sapo_temperature_negative") or 1.05,
    }
    entropy = torch.zeros_like(old)  # it logs them
    stats_tracker.export_all()  # after each step its trainer takes what the loss has logged
    result = loss_and_gradient(lambda logprobs: grpo_loss_fn(logprobs, entropy, batch, **options), wide)
    return {"loss": result["loss"], "gradient": ungrid(result["gradient"], policy, where)}


def group_advantages(
    rewards: Array, group_size: int, *, scale: str, baseline: str, ddof: int | None, eps: float | None, **x: Any
) -> dict[str, Any]:
    """Rewards normalised as its actor normalises them."""
    only("group_advantages", ADVANTAGES, scale=scale, baseline=baseline, ddof=ddof, eps=eps, **x)
    if (scale, baseline) not in {("group", "mean"), ("batch", "batch")} and scale != "none":
        raise NotImplementedError("areal's deviation is about the baseline, as documented, not about the mean")
    levels = {"mean": "group", "leave-one-out": "group", "batch": "batch", "none": None}
    config = NormConfig(
        mean_level=levels[baseline],
        mean_leave1out=baseline == "leave-one-out",
        std_level=None if scale == "none" else scale,
        std_unbiased=ddof != 0,
        group_size=group_size,
        **({} if eps is None else {"eps": eps}),
    )
    return {"advantages": Normalization(config)(tensor(rewards)).numpy()}


def importance_weights(
    old: Array, sampling: Array, *, correction: str, level: str, c_min: float | None, c_max: float, **x: Any
) -> dict[str, Any]:
    """Its behavioural weights: `clamp` truncates, `mask` drops."""
    only("importance_weights", WEIGHTS, correction=correction, level=level)
    where = mask_of(old, x.get("mask"), x.get("lengths"))
    action = {"tis": "clamp", "mis": "mask"}[correction]
    try:
        config = RejectionSamplingConfig(level=level, action=action, metric="ratio", upper=c_max, lower=c_min)
    except ValueError as error:  # such as an upper bound of at most 1
        raise NotImplementedError(str(error)) from None
    pair = [tensor(grid(values, where)) for values in (old, sampling)]
    result = apply_rejection_sampling(*pair, loss_mask=tensor(where), cu_seqlens=None, config=config)
    return {"weights": ungrid(result.behave_imp_weight.numpy(), old, where)}


def overlong_penalty(lengths: Array, limit: int, buffer: int) -> dict[str, Any]:
    """What it adds to rewards of 0."""
    tokens = torch.arange(max(int(lengths.max(initial=0)), 1)) < tensor(lengths)[:, None]
    data = {"rewards": torch.zeros(len(lengths), dtype=torch.float64), "input_ids": tokens, "loss_mask": tokens}
    return {"penalty": reward_overlong_penalty(data, buffer, 1.0, limit)["rewards"].numpy()}
