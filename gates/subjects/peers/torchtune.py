"""The peer torchtune: GAE, the KL in the reward, PPO's policy loss, DPO and RSO, and log-probs, as its recipes call them."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.append(str(Path(__file__).parent / "shared"))

import numpy as np
import torch
from peer_rows import absent, grid, mask_of, only, ungrid
from peer_torch import logits_that_hold, loss_and_gradient, tensor
from torchtune import rlhf
from torchtune.rlhf.loss import DPOLoss, PPOLoss, RSOLoss

if TYPE_CHECKING:
    from collections.abc import Callable

    Array = np.ndarray[Any, Any]

VERSIONS = {name: version(name) for name in ("torchtune", "torch", "torchao")}
IGNORED = -100
SCORES: dict[str, tuple[Any, ...]] = {"ids_per_position": ("one",), "ignore_index": (None,)}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "policy_loss": {  # PPOLoss: one ε, a mean over the tokens of the micro-batch, no KL, as it stands in the reward
        "algorithm": ("ppo",),
        "clip_width": ("one",),
        "dapo_denominator": ("global", None),
        "weights": (False,),
        "kl_estimator": (None,),
    },
    "gae": {"rows": ("mask", "all", "lengths", "flat")},
    "token_kl": {"estimator": ("k1",), "reduction": ("none",), "kl_ratio": ("none",), "kl_clamp": (None,)},
    "preference_loss": {"loss": ("dpo", "hinge"), "reference_free": (False,)},
    "selective_log_softmax": SCORES,
    "selective_log_softmax_backward": SCORES,
}


def policy_loss(
    *, policy: Array, advantages: Array, mask: Array | None = None, lengths: Array | None = None, **x: Any
) -> dict[str, Any]:
    """The policy loss of PPOLoss, whose value loss has no weight."""
    only("policy_loss", CONVENTIONS["policy_loss"], algorithm=x["algorithm"])
    absent("policy_loss", row_mask=x.get("row_mask"), weights=x.get("weights"), delta=x.get("delta"), beta=x["beta"])
    if x["epsilon_low"] != x["epsilon_high"]:
        raise NotImplementedError("torchtune's PPO has one clip width")
    where = mask_of(policy, mask, lengths)
    wide, gain = grid(policy, where), grid(advantages, where)
    assert wide is not None
    assert gain is not None
    old, gain = tensor(wide if x["old"] is None else grid(x["old"], where)), gain if gain.ndim > 1 else gain[:, None]
    function, zero = PPOLoss(epsilon=x["epsilon_low"], value_coeff=0.0), torch.zeros_like(old)

    def loss(logprobs: torch.Tensor) -> torch.Tensor:
        return function(old, logprobs, tensor(gain), zero, zero, zero, padding_masks=tensor(where))[0]

    result = loss_and_gradient(loss, wide)
    return {"loss": result["loss"], "gradient": ungrid(result["gradient"], policy, where)}


def gae(rewards: Array, values: Array, *, gamma: float, lam: float, **x: Any) -> dict[str, Any]:
    """Returns minus values, since it whitens its advantages; in padding both are 0, as its recipe leaves them."""
    absent("gae", bootstrap=x["bootstrap"], terminal=x["terminal"])
    where = mask_of(rewards, x.get("mask"), x.get("lengths"))
    gain, critic = (tensor(np.where(where, grid(rows, where), rows.dtype.type(0))) for rows in (rewards, values))
    _, returns = rlhf.estimate_advantages(critic, gain, gamma, lam, masks=tensor(where))
    return {"advantages": ungrid((returns - critic).numpy(), rewards, where)}


def token_kl(policy: Array, reference: Array, **x: Any) -> dict[str, Any]:
    """The KL that it takes from the rewards of PPO."""
    where = mask_of(policy, x["mask"], x["lengths"])
    if not where.all():
        raise NotImplementedError("torchtune's get_rewards_ppo takes no mask")
    pair = [tensor(grid(values, where)) for values in (policy, reference)]
    _, kl, _ = rlhf.get_rewards_ppo(torch.zeros(len(where), dtype=pair[0].dtype), *pair, kl_coeff=1.0)
    return {"kl": ungrid(kl.numpy(), policy, where)}


def preference_loss(*, policy: Array, reference: Array, mask: Array, loss: str, **x: Any) -> dict[str, Any]:
    """The mean of its losses of pairs, whose log-probs its recipes take from logits by `get_batch_log_probs`."""
    labels = torch.nn.functional.pad(torch.where(tensor(mask), 0, IGNORED), (1, 0), value=IGNORED)

    def pair(logprobs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scored = logits_that_hold(logprobs, torch.zeros(mask.shape, dtype=torch.int64))
        sums = rlhf.get_batch_log_probs(torch.nn.functional.pad(scored, (0, 0, 0, 1)), labels)
        return sums[0::2], sums[1::2]

    if loss == "hinge" and policy.dtype != np.float64:
        raise NotImplementedError("a float32 softmax between log-probs and loss rounds the exact slopes of a hinge")
    smoothing = x.get("label_smoothing") or 0.0
    function = RSOLoss(gamma=x["beta"]) if loss == "hinge" else DPOLoss(x["beta"], label_smoothing=smoothing)
    return loss_and_gradient(lambda logprobs: function(*pair(logprobs), *pair(tensor(reference)))[0].mean(), policy)


def selective_log_softmax(logits: Array, ids: Array, temperature: float, *, entropy: bool) -> dict[str, Any]:
    """Its log-probs of one batch of positions."""
    absent("selective_log_softmax", entropy=entropy)
    return {"logprobs": _scores(tensor(logits), tensor(ids), temperature).numpy()}


def selective_log_softmax_backward(
    logits: Array, ids: Array, grad_logprobs: Array, temperature: float, *, grad_entropy: Array | None
) -> dict[str, Any]:
    """Autograd's gradient through the same function."""
    absent("selective_log_softmax_backward", grad_entropy=grad_entropy)
    leaf = tensor(logits).requires_grad_()
    (gradient,) = torch.autograd.grad(_scores(leaf, tensor(ids), temperature), leaf, tensor(grad_logprobs))
    return {"gradient": gradient.numpy()}


def _scores(logits: torch.Tensor, ids: torch.Tensor, temperature: float) -> torch.Tensor:
    rows = logits.reshape(1, -1, logits.shape[-1])  # it takes (b, s, V)
    return rlhf.logits_to_logprobs(rows, ids.reshape(1, -1), temperature).reshape(ids.shape)


OPS: dict[str, Callable[..., dict[str, Any]]] = {
    "policy_loss": policy_loss,
    "gae": gae,
    "token_kl": token_kl,
    "preference_loss": preference_loss,
    "selective_log_softmax": selective_log_softmax,
    "selective_log_softmax_backward": selective_log_softmax_backward,
}
