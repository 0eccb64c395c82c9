"""The peer areal: the loss of its PPO actor, its normalisation of rewards, KL, corrections, DPO and IPO, and log-probs.

Shim: the packages areal, areal.infra, areal.trainer, areal.trainer.ppo, areal.trainer.dpo and areal.engine.fsdp_utils are imported
without their `__init__`, which starts from servers, launchers and loggers (sglang, wandb), and a placeholder stands for the
controller of its training service. Nothing that is judged calls them.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.append(str(Path(__file__).parent / "shared"))

import numpy as np
import torch
from peer_rows import absent, grid, mask_of, only, ungrid
from peer_shim import PLACEHOLDER, Placeholder, without_init
from peer_torch import loss_and_gradient, tensor

CONTROLLER = "areal.experimental.training_service.controller.controller"
without_init(
    "areal", "areal.infra", "areal.engine.fsdp_utils", "areal.trainer", "areal.trainer.ppo", "areal.trainer.dpo"
)
sys.modules[CONTROLLER] = Placeholder(CONTROLLER)

from areal.api.cli_args import NormConfig, RejectionSamplingConfig
from areal.trainer.dpo.dpo_engine import compute_dpo_loss
from areal.trainer.ppo.actor import grpo_loss_fn
from areal.utils import stats_tracker
from areal.utils.data import KLEstimator, Normalization
from areal.utils.functional import reward_overlong_penalty
from areal.utils.functional.functional import apply_rejection_sampling
from areal.utils.functional.vocab_parallel import gather_logprobs, gather_logprobs_entropy

if TYPE_CHECKING:
    from collections.abc import Callable

    Array = np.ndarray[Any, Any]

VERSIONS = {name: version(name) for name in ("areal", "torch", "transformers")}
VERSIONS |= {"areal's services": PLACEHOLDER}
SETTING: dict[str, Any] = dict(globals().get("SETTINGS", {}))
SCORES: dict[str, tuple[Any, ...]] = {"ids_per_position": ("one",), "ignore_index": (None,)}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "policy_loss": {
        "dtype": ("float32",),  # its statistics refuse others
        "algorithm": ("ppo", "dapo"),
        "dapo_denominator": ("global", None),
        "kl_estimator": (None,),  # its KL stands in the reward
        "weights": (False,),
        **{axis: (choice,) for axis, choice in SETTING.items()},
    },
    "group_advantages": {
        "dtype": ("float32",),  # Normalization returns float32
        "scale": ("group", "batch", "none"),
        "ddof": (0, 1, None),
        "eps": (1e-8, 1e-6, 1e-5, 1e-4, None),  # any, "to avoid numerical issues"; 0 is none
        "eps_mode": ("add", None),
        "baseline": ("mean", "leave-one-out", "batch", "none"),
    },
    "token_kl": {"kl_ratio": ("none",), "kl_clamp": (None, 10.0), "reduction": ("none",)},
    "importance_weights": {"correction": ("tis", "mis"), "level": ("token",)},
    "preference_loss": {"loss": ("dpo", "ipo"), "reference_free": (False,), "rows": ("mask",)},
    "selective_log_softmax": SCORES,
    "selective_log_softmax_backward": SCORES,
}
VARIANTS = {  # importance_sampling_level and use_sapo_loss; every loss is a mean over the tokens of the step
    "grpo": (("policy_loss",), {"algorithm": "grpo", "aggregation": "token-mean"}),
    "gspo": (("policy_loss",), {"algorithm": "gspo", "aggregation": "token-mean"}),
    "sapo": (("policy_loss",), {"algorithm": "sapo", "aggregation": "token-mean"}),
}


def policy_loss(*, policy: Array, mask: Array | None = None, lengths: Array | None = None, **x: Any) -> dict[str, Any]:
    """The actor's loss of one minibatch that is the whole step."""
    only("policy_loss", CONVENTIONS["policy_loss"], algorithm=x["algorithm"])
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
    only("group_advantages", CONVENTIONS["group_advantages"], scale=scale, baseline=baseline, ddof=ddof, eps=eps, **x)
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


def token_kl(policy: Array, reference: Array, *, estimator: str, **x: Any) -> dict[str, Any]:
    """Its estimate per token, clamped at 10 unless it is told otherwise."""
    where = mask_of(policy, x["mask"], x["lengths"])
    if not where.all():
        raise NotImplementedError("areal's KLEstimator takes no mask")
    pair = (tensor(grid(values, where)) for values in (policy, reference))
    kl = KLEstimator(estimator, apply_clamp=x.get("kl_clamp") is not None)(*pair)
    return {"kl": ungrid(kl.numpy(), policy, where)}


def importance_weights(
    old: Array, sampling: Array, *, correction: str, level: str, c_min: float | None, c_max: float, **x: Any
) -> dict[str, Any]:
    """Its behavioural weights: `clamp` truncates, `mask` drops."""
    only("importance_weights", CONVENTIONS["importance_weights"], correction=correction, level=level)
    where = mask_of(old, x.get("mask"), x.get("lengths"))
    action = {"tis": "clamp", "mis": "mask"}[correction]
    try:
        config = RejectionSamplingConfig(level=level, action=action, metric="ratio", upper=c_max, lower=c_min)
    except ValueError as error:  # such as an upper bound of at most 1
        raise NotImplementedError(str(error)) from None
    pair = [tensor(grid(values, where)) for values in (old, sampling)]
    result = apply_rejection_sampling(*pair, loss_mask=tensor(where), cu_seqlens=None, config=config)
    return {"weights": ungrid(result.behave_imp_weight.numpy(), old, where)}


def preference_loss(*, policy: Array, reference: Array, mask: Array, loss: str, **x: Any) -> dict[str, Any]:
    """Its loss of packed pairs; a slot precedes each row, since position t scores the token after it."""
    absent("preference_loss", label_smoothing=x.get("label_smoothing"))
    if x.get("lengths") == "sum":
        raise NotImplementedError("areal's IPO takes means")
    rows, width = mask.shape
    marks = torch.nn.functional.pad(tensor(mask), (1, 0)).flatten()
    batch = {"cu_seqlens": torch.arange(rows + 1) * (width + 1), "loss_mask": marks}

    def packed(logprobs: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(logprobs, (0, 1)).flatten()

    batch["ref_logprobs"] = packed(tensor(reference))
    kind = {"dpo": "sigmoid", "ipo": "ipo"}[loss]
    return loss_and_gradient(
        lambda logprobs: compute_dpo_loss(packed(logprobs), None, batch, beta=x["beta"], loss_type=kind), policy
    )


def overlong_penalty(lengths: Array, limit: int, buffer: int) -> dict[str, Any]:
    """What it adds to rewards of 0."""
    tokens = torch.arange(max(int(lengths.max(initial=0)), 1)) < tensor(lengths)[:, None]
    data = {"rewards": torch.zeros(len(lengths), dtype=torch.float64), "input_ids": tokens, "loss_mask": tokens}
    return {"penalty": reward_overlong_penalty(data, buffer, 1.0, limit)["rewards"].numpy()}


def selective_log_softmax(logits: Array, ids: Array, temperature: float, *, entropy: bool) -> dict[str, Any]:
    """Log-probs and entropies of float32 logits, as its engines take them."""
    if not entropy:
        return {"logprobs": gather_logprobs(tensor(logits), tensor(ids), temperature).numpy()}
    logprobs, entropies = gather_logprobs_entropy(tensor(logits), tensor(ids), temperature)
    return {"logprobs": logprobs.numpy(), "entropy": entropies.numpy()}


def selective_log_softmax_backward(
    logits: Array, ids: Array, grad_logprobs: Array, temperature: float, *, grad_entropy: Array | None
) -> dict[str, Any]:
    """Autograd's gradient through the log-probs; its actor detaches entropies."""
    absent("selective_log_softmax_backward", grad_entropy=grad_entropy)
    leaf = tensor(logits).requires_grad_()
    outputs = gather_logprobs(leaf, tensor(ids), temperature)
    (gradient,) = torch.autograd.grad(outputs, leaf, tensor(grad_logprobs).to(outputs.dtype))
    return {"gradient": gradient.numpy()}


OPS: dict[str, Callable[..., dict[str, Any]]] = {
    "policy_loss": policy_loss,
    "group_advantages": group_advantages,
    "token_kl": token_kl,
    "importance_weights": importance_weights,
    "preference_loss": preference_loss,
    "overlong_penalty": overlong_penalty,
    "selective_log_softmax": selective_log_softmax,
    "selective_log_softmax_backward": selective_log_softmax_backward,
}
