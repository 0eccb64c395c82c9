"""The peer skyrl: its policy worker's loss, advantages, KL, off-policy corrections, packing and log-probs, on torch.

Losses run through `PolicyWorkerBase.forward_backward`, from advantages that its trainer's function has scaled by the loss
reduction to the losses that the worker hands to its strategy; the model returns the log-probs of the case.

Shim, made by skyrl_worker.py: a placeholder stands for `skyrl.tinker.types`, the messages of its server, which do not import
on Python 3.11, and one for flash_attn, which is not installed; `skyrl.train.dataset` is imported without its `__init__`;
and the worker's device is the CPU. Nothing that is judged calls them; without flash_attn log-probs take its other path.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.append(str(Path(__file__).parent / "shared"))

import numpy as np
import skyrl_worker  # the shim, which precedes every import of skyrl
import torch
from peer_rows import absent, grid, mask_of, only, ungrid
from peer_torch import FakeModel, tensor
from skyrl.backends.skyrl_train.utils.off_policy_correction_utils import apply_off_policy_correction
from skyrl.backends.skyrl_train.utils.ppo_utils import compute_advantages_and_returns, compute_approx_kl
from skyrl.backends.skyrl_train.utils.torch_utils import masked_mean
from skyrl.backends.skyrl_train.workers.model_wrapper import HFModelWrapper
from skyrl.train.config import AlgorithmConfig, OffPolicyCorrectionConfig
from skyrl.train.dataset.bin_packing import make_seq_packer

if TYPE_CHECKING:
    from collections.abc import Callable

    Array = np.ndarray[Any, Any]

VERSIONS = {name: version(name) for name in ("skyrl", "torch", "transformers")} | skyrl_worker.SHIM
SETTING: dict[str, Any] = dict(globals().get("SETTINGS", {}))
ESTIMATOR = SETTING.pop("estimator", None)  # advantage_estimator of a variant
SCORES: dict[str, tuple[Any, ...]] = {  # half types: its worker calls under autocast, which widens them
    "dtype": ("float32", "float64"),
    "ids_per_position": ("one",),
    "ignore_index": (None,),
}
ADVANTAGES: dict[str, tuple[Any, ...]] = {
    "scale": ("group", "none"),
    "ddof": (1, None),
    "eps": (1e-6, None),  # its trainer sets no other
    "eps_mode": ("add", None),
    "baseline": ("mean", "leave-one-out"),
}
if ESTIMATOR:  # masked_whiten over the tokens of the batch, which has one constant
    ADVANTAGES = {"scale": ("batch",), "ddof": (1,), "eps": (1e-8,), "eps_mode": ("inside",), "baseline": ("batch",)}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    **skyrl_worker.conventions(SETTING),
    "group_advantages": ADVANTAGES,
    "gae": {"rows": ("mask", "all", "lengths", "flat")},  # holes keep the trace of the tokens around
    "token_kl": {"kl_ratio": ("none",), "kl_clamp": (None, 10.0), "reduction": ("none", "mean")},
    "importance_weights": {"correction": ("tis", "mis"), "level": ("token", "seq_sum")},
    "pack_sequences": {"strategy": ("first-fit-decreasing",), "over_long": ("error",)},
    "selective_log_softmax": SCORES,
    "selective_log_softmax_backward": SCORES,
}
VARIANTS = {
    "reinforce++": (("group_advantages",), {"estimator": "reinforce++"}),
    "rloo": (
        ("policy_loss",),
        {"algorithm": "rloo", "ratio_level": "token", "bound": "clip", "aggregation": "token-mean"},
    ),
}


def group_advantages(
    rewards: Array, group_size: int, *, scale: str, baseline: str, **conventions: Any
) -> dict[str, Any]:
    """Advantages of answers of one token, whose reward stands on it."""
    only("group_advantages", ADVANTAGES, scale=scale, baseline=baseline, **conventions)
    if baseline == "leave-one-out" and scale != "none":
        raise NotImplementedError("skyrl's RLOO divides by no deviation")
    name = ESTIMATOR or ("rloo" if baseline == "leave-one-out" else "grpo")
    column = tensor(rewards)[:, None]
    advantages, _ = compute_advantages_and_returns(
        column,
        torch.ones(column.shape, dtype=torch.int64),
        np.arange(len(rewards)) // group_size,
        name,
        AlgorithmConfig(advantage_estimator=name),
        grpo_norm_by_std=scale == "group",
    )
    return {"advantages": advantages[:, 0].numpy()}


def gae(rewards: Array, values: Array, *, gamma: float, lam: float, **x: Any) -> dict[str, Any]:
    """Returns minus values, since skyrl whitens its advantages; padding lies left of the tokens, as it pads."""
    absent("gae", bootstrap=x["bootstrap"], terminal=x["terminal"])
    where = mask_of(rewards, x.get("mask"), x.get("lengths"))
    width = where.shape[1]
    last = np.where(where.any(axis=1), width - 1 - where[:, ::-1].argmax(axis=1), width - 1)
    right = (np.arange(width) + last[:, None] + 1) % width  # the last token of a row comes to its end
    left = np.argsort(right, axis=1)
    gain, critic = (np.take_along_axis(grid(each, where), right, axis=1) for each in (rewards, values))
    _, returns = compute_advantages_and_returns(
        tensor(gain),
        tensor(np.take_along_axis(where, right, axis=1).astype(np.int64)),
        np.arange(len(where)),
        "gae",
        AlgorithmConfig(advantage_estimator="gae"),
        values=tensor(critic),
        gamma=gamma,
        lambd=lam,
    )
    found = np.take_along_axis((returns - tensor(critic)).numpy(), left, axis=1)
    found = np.where(where, found, found.dtype.type(0))  # its losses mask the other slots
    return {"advantages": ungrid(found, rewards, where)}


def token_kl(policy: Array, reference: Array, *, estimator: str, reduction: str, **x: Any) -> dict[str, Any]:
    """Its estimate per token, and its masked mean of a row, as its worker computes them."""
    if x.get("kl_clamp") and estimator != "k3":
        raise NotImplementedError("skyrl clamps k3 at 10, and no other estimate")
    where = mask_of(policy, x["mask"], x["lengths"])
    marks = tensor(where.astype(np.float32))
    pair = (tensor(grid(logprobs, where)) for logprobs in (policy, reference))
    kl = compute_approx_kl(*pair, loss_mask=marks, kl_estimator_type=estimator)
    if reduction == "mean":
        return {"kl": masked_mean(kl, marks, dim=-1).numpy()}
    return {"kl": ungrid(kl.numpy(), policy, where)}


def importance_weights(
    old: Array, sampling: Array, *, correction: str, level: str, c_min: float | None, c_max: float, **x: Any
) -> dict[str, Any]:
    """What its correction makes of losses of 1: a ratio that it truncates, and with bounds a mask of tokens or rows."""
    if correction == "tis" and c_min is not None:
        raise NotImplementedError("skyrl's truncation has an upper bound only")
    where = mask_of(old, x.get("mask"), x.get("lengths"))
    if level == "seq_sum" and not where.any(axis=1).all():
        raise NotImplementedError("skyrl's weights stand on tokens, and a row without any has none")
    settings: dict[str, Any] = {"tis_ratio_type": "token", "token_tis_ratio_clip_high": c_max}
    bounds: dict[str, Any] = {"token_mask_is_threshold_low": c_min or 0.0, "token_mask_is_threshold_high": c_max}
    if level == "seq_sum":
        settings = {"tis_ratio_type": "sequence", "sequence_tis_ratio_clip_high": c_max}
        bounds = {"sequence_mask_metric": "product", "product_mask_low": c_min or 0.0, "product_mask_high": c_max}
    config = OffPolicyCorrectionConfig(**settings, **(bounds if correction == "mis" else {}))
    pair = [tensor(grid(logprobs, where)) for logprobs in (old, sampling)]
    losses, kept, _ = apply_off_policy_correction(
        torch.ones_like(pair[0]), *pair, tensor(where.astype(np.float32)), config
    )
    weights = torch.where(tensor(where), losses * kept, 0).numpy()
    if level == "token":
        return {"weights": ungrid(weights, old, where)}
    return {"weights": weights[np.arange(len(where)), where.argmax(axis=1)]}  # the tokens of a row share one weight


def pack_sequences(lengths: Array, max_length: int, **conventions: Any) -> dict[str, Any]:
    """Bins of its packer; the efficiency is counted from them."""
    only("pack_sequences", CONVENTIONS["pack_sequences"], **conventions)
    bins = make_seq_packer("first_fit_decreasing", max_length).pack(lengths.tolist())
    return {
        "indices": np.array([index for held in bins for index in held], np.int64),
        "offsets": np.cumsum([0, *map(len, bins)]),
        "efficiency": float(lengths.sum()) / (len(bins) * max_length) if bins else 1.0,
    }


def selective_log_softmax(logits: Array, ids: Array, temperature: float, *, entropy: bool) -> dict[str, Any]:
    """Log-probs and entropies as its model's forward computes them of logits, without flash-attention."""
    logprobs, entropies = _scores(tensor(logits), tensor(ids), temperature, entropy=entropy)
    return {"logprobs": logprobs.numpy(), "entropy": entropies.numpy()} if entropy else {"logprobs": logprobs.numpy()}


def selective_log_softmax_backward(
    logits: Array, ids: Array, grad_logprobs: Array, temperature: float, *, grad_entropy: Array | None
) -> dict[str, Any]:
    """Autograd's gradient through the same forward."""
    leaf = tensor(logits).requires_grad_()
    logprobs, entropies = _scores(leaf, tensor(ids), temperature, entropy=grad_entropy is not None)
    outputs, gradients = [logprobs], [tensor(grad_logprobs)]
    if grad_entropy is not None:
        outputs, gradients = [logprobs, entropies], [*gradients, tensor(grad_entropy)]
    return {"gradient": torch.autograd.grad(outputs, leaf, gradients)[0].numpy()}


def _scores(logits: torch.Tensor, ids: torch.Tensor, temperature: float, *, entropy: bool) -> Any:
    """Return log-probs, and entropies if wanted: position t scores the token after it, so that a token precedes the ids."""
    flat = ids.ndim == 1
    logits, ids = (logits[None], ids[None]) if flat else (logits, ids)
    model = FakeModel(torch.nn.functional.pad(logits, (0, 0, 0, 1)))  # the last position scores no token
    model.forward = lambda *_, **__: {"logits": model.logits}
    sequences = torch.nn.functional.pad(ids.long(), (1, 0))
    width = ids.shape[1]
    logprobs, output = HFModelWrapper(model)(
        sequences,
        width,
        torch.ones_like(sequences),
        temperature,
        return_output=True,
        compute_entropy=entropy,
    )
    entropies = output["entropy"][:, -width - 1 : -1] if entropy else logprobs  # as its worker takes them
    return (logprobs[0], entropies[0]) if flat else (logprobs, entropies)


OPS: dict[str, Callable[..., dict[str, Any]]] = {
    "policy_loss": skyrl_worker.policy_loss,
    "policy_loss_in_parts": skyrl_worker.policy_loss_in_parts,
    "group_advantages": group_advantages,
    "gae": gae,
    "token_kl": token_kl,
    "importance_weights": importance_weights,
    "pack_sequences": pack_sequences,
    "selective_log_softmax": selective_log_softmax,
    "selective_log_softmax_backward": selective_log_softmax_backward,
}
