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

import areal_actor  # the shim, which precedes every import of areal
import numpy as np
import torch
from areal.trainer.dpo.dpo_engine import compute_dpo_loss
from areal.utils.data import KLEstimator
from areal.utils.functional.vocab_parallel import gather_logprobs, gather_logprobs_entropy
from peer_rows import absent, grid, mask_of, ungrid
from peer_shim import PLACEHOLDER
from peer_torch import loss_and_gradient, tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    Array = np.ndarray[Any, Any]

VERSIONS = {name: version(name) for name in ("areal", "torch", "transformers")}
VERSIONS |= {"areal's services": PLACEHOLDER}
SETTING: dict[str, Any] = dict(globals().get("SETTINGS", {}))
SCORES: dict[str, tuple[Any, ...]] = {"ids_per_position": ("one",), "ignore_index": (None,)}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    **areal_actor.conventions(SETTING),
    "token_kl": {"kl_ratio": ("none",), "kl_clamp": (None, 10.0), "reduction": ("none",)},
    "preference_loss": {"loss": ("dpo", "ipo"), "reference_free": (False,), "rows": ("mask",)},
    "selective_log_softmax": SCORES,
    "selective_log_softmax_backward": SCORES,
}
VARIANTS = {  # importance_sampling_level and use_sapo_loss; every loss is a mean over the tokens of the step
    "grpo": (("policy_loss",), {"algorithm": "grpo", "aggregation": "token-mean"}),
    "gspo": (("policy_loss",), {"algorithm": "gspo", "aggregation": "token-mean"}),
    "sapo": (("policy_loss",), {"algorithm": "sapo", "aggregation": "token-mean"}),
}


def token_kl(policy: Array, reference: Array, *, estimator: str, **x: Any) -> dict[str, Any]:
    """Its estimate per token, clamped at 10 unless it is told otherwise."""
    where = mask_of(policy, x["mask"], x["lengths"])
    if not where.all():
        raise NotImplementedError("areal's KLEstimator takes no mask")
    pair = (tensor(grid(values, where)) for values in (policy, reference))
    kl = KLEstimator(estimator, apply_clamp=x.get("kl_clamp") is not None)(*pair)
    return {"kl": ungrid(kl.numpy(), policy, where)}


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
    "policy_loss": areal_actor.policy_loss,
    "group_advantages": areal_actor.group_advantages,
    "token_kl": token_kl,
    "importance_weights": areal_actor.importance_weights,
    "preference_loss": preference_loss,
    "overlong_penalty": areal_actor.overlong_penalty,
    "selective_log_softmax": selective_log_softmax,
    "selective_log_softmax_backward": selective_log_softmax_backward,
}
