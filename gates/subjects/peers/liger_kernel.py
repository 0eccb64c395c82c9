"""The peer liger-kernel: its chunked losses in plain PyTorch, which run on a CPU; its Triton kernels need a GPU.

GRPO's losses are `ppo_loss_fn` on log-probs, one call for each chunk of rows, as its fused forward pass calls it. The
preference losses and the log-probs are fused with a linear layer: its input holds logits with the given log-probs and its
weight is an identity, or vice versa. torch.compile is off.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.append(str(Path(__file__).parent / "shared"))

import numpy as np
import torch
from liger_kernel.chunked_loss import (
    LigerFusedLinearCPOLoss,
    LigerFusedLinearDPOLoss,
    LigerFusedLinearORPOLoss,
    LigerFusedLinearSimPOLoss,
)
from liger_kernel.chunked_loss.fused_linear_ppo import LigerFusedLinearPPOBase
from liger_kernel.chunked_loss.grpo_loss import LigerFusedLinearGRPOFunction, LigerFusedLinearGRPOLoss
from peer_rows import absent, grid, mask_of, only, ungrid
from peer_timed import Timed
from peer_torch import logits_that_hold, loss_and_gradient, tensor, timed_loss

if TYPE_CHECKING:
    from collections.abc import Callable

    Array = np.ndarray[Any, Any]

VERSIONS = {name: version(name) for name in ("liger-kernel", "torch")}
LOSSES = {  # loss_type and importance_sampling_level by algorithm
    "grpo": ("grpo", "token"),
    "dapo": ("dapo", "token"),
    "dr_grpo": ("dr_grpo", "token"),
    "gspo": ("grpo", "sequence"),
    "cispo": ("cispo", "token"),
    "sapo": ("sapo", "token"),
    "luspo": ("luspo", "sequence"),
    "vespo": ("vespo", "token"),
}
VESPO = {  # options by inputs of a case
    "vespo_k_pos": "vespo_k_positive",
    "vespo_lambda_pos": "vespo_lambda_positive",
    "vespo_k_neg": "vespo_k_negative",
    "vespo_lambda_neg": "vespo_lambda_negative",
}
LOSS: dict[str, tuple[Any, ...]] = {
    "algorithm": tuple(LOSSES),
    "advantages": ("row",),
    "dapo_denominator": ("global", "trl", None),
    "cispo_bound": ("absolute", None),
    "kl_estimator": ("k3", None),
    "kl_clamp": (None,),
}
FUSED: dict[str, tuple[Any, ...]] = {"dtype": ("float32",)}  # chunk_forward: logits_chunk.float()
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "policy_loss": LOSS,
    "policy_loss_in_parts": LOSS,
    "loss_from_logits": LOSS,
    # ORPO's likelihood is a mean over the tokens of nll_target, here prompt and completion of all chosen rows.
    "preference_loss": {**FUSED, "loss": ("dpo", "simpo", "orpo", "cpo"), "nll_tokens": ("all",)},
    "selective_log_softmax": {"dtype": ("float16", "float32"), "ids_per_position": ("one",), "ignore_index": (None,)},
    "selective_log_softmax_backward": {**FUSED, "ids_per_position": ("one",), "ignore_index": (None,)},
}
IGNORED = -100
IDENTITY = torch.eye(2, dtype=torch.float64)  # a linear layer that returns its input


def policy_loss(*, policy: Array, mask: Array | None = None, lengths: Array | None = None, **x: Any) -> dict[str, Any]:
    """One chunk for each row, its default chunk_size."""
    where = mask_of(policy, mask, lengths)
    wide = grid(policy, where)
    assert wide is not None
    result = _losses(wide, where, [1] * len(where), x)
    return {"loss": result["loss"], "gradient": ungrid(result["gradient"], policy, where)}


def policy_loss_in_parts(*, policy: Array, mask: Array, parts: list[int], **x: Any) -> dict[str, Any]:
    """The parts are its chunks."""
    return _losses(policy, mask, parts, x)


def _losses(policy: Array, mask: Array, sizes: list[int], x: dict[str, Any]) -> dict[str, Any]:
    """Sum and gradient of its loss function over chunks of rows."""
    return loss_and_gradient(_loss_of_chunks(policy, mask, sizes, x), policy)


def _loss_of_chunks(
    policy: Array, mask: Array, sizes: list[int], x: dict[str, Any]
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the sum of its loss function over chunks of rows, each with the mask of all rows."""
    options = {**_options(x), "num_items_in_batch": x.get("tokens_in_step")}
    full = tensor(mask.astype(policy.dtype))
    rows = {"advantages": x["advantages"], "old_per_token_logps": grid(x["old"], mask)}
    rows["ref_per_token_logps"] = grid(x["reference"], mask) if x["beta"] else None
    if x.get("weights") is not None:
        weights = grid(x["weights"], mask)
        assert weights is not None
        rows["vllm_is_ratio"] = weights if weights.ndim > 1 else weights[:, None]  # the shape of its forward pass
    chunks = {name: _split(value, sizes) for name, value in rows.items()}

    def loss(logprobs: torch.Tensor) -> torch.Tensor:
        total = logprobs.new_zeros(())
        for index, (part, where) in enumerate(zip(logprobs.split(sizes), full.split(sizes), strict=True)):
            own = {name: values[index] for name, values in chunks.items()}
            result = LigerFusedLinearGRPOFunction.ppo_loss_fn(part, where, full_attention_mask=full, **own, **options)
            total = total + result[0]
        return total

    return loss


def _split(values: Array | None, sizes: list[int]) -> Any:
    return [None] * len(sizes) if values is None else tensor(values).split(sizes)


def _options(x: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of its loss."""
    only("policy_loss", LOSS, algorithm=x["algorithm"])
    absent("policy_loss", row_mask=x.get("row_mask"))
    loss_type, level = LOSSES[x["algorithm"]]
    if x.get("delta") and loss_type in {"cispo", "sapo", "vespo"}:
        raise NotImplementedError(f"liger's {loss_type} has no two-sided clip")
    if loss_type == "vespo" and x.get("weights") is not None:
        raise NotImplementedError("liger's VESPO takes importance weights into the ratio")
    return {
        "epsilon_low": 0.2 if x["epsilon_low"] is None else x["epsilon_low"],
        "epsilon_high": 0.2 if x["epsilon_high"] is None else x["epsilon_high"],
        "beta": x["beta"],
        "loss_type": loss_type,
        "max_completion_length": x.get("max_length"),
        "importance_sampling_level": level,
        "sapo_temperature_pos": x.get("sapo_temperature_positive") or 1.0,
        "sapo_temperature_neg": x.get("sapo_temperature_negative") or 1.05,
        "delta": x.get("delta"),
        **{to: x[key] for to, key in VESPO.items() if x.get(key) is not None},
        "use_bias_correction_kl": bool(x["beta"]) and _corrected(x["kl_ratio"], level),
    }


def _corrected(kl_ratio: str | None, level: str) -> bool:
    if kl_ratio not in {"none", None, level}:
        raise NotImplementedError(f"liger multiplies the KL by the ratio of the loss, here by {level}")
    return kl_ratio == level


def loss_from_logits(
    *, logits: Array, ids: Array, prompt_lengths: Array, lengths: Array, temperature: float, **x: Any
) -> dict[str, Any]:
    """The fused loss: its log-probs, their loss and its own backward pass in one."""
    at = np.arange(int(lengths.max()))
    mask, places = at < lengths[:, None], np.minimum(prompt_lengths[:, None] + at, ids.shape[1] - 1)
    tokens = tensor(np.take_along_axis(ids, places, axis=1)).long()
    before, identity = tensor(places - 1)[..., None].expand(*mask.shape, logits.shape[-1]), torch.eye(logits.shape[-1])
    function = LigerFusedLinearGRPOLoss(
        **_options(x), temperature=temperature, compiled=False, use_ref_model=bool(x["beta"])
    )
    others = {"old_per_token_logps": tensor(x["old"])}
    others["ref_per_token_logps"] = tensor(x["reference"]) if x["beta"] else None

    def loss(values: torch.Tensor) -> torch.Tensor:
        hidden = values.gather(1, before)
        return function(hidden, identity, tokens, tensor(mask).float(), tensor(x["advantages"]), **others)[0]

    scores = LigerFusedLinearPPOBase.chunk_forward(
        tensor(logits).gather(1, before), identity, tokens, temperature=temperature
    )
    return {**loss_and_gradient(loss, logits), "logprobs": scores.numpy()}


def preference_loss(*, policy: Array, reference: Array | None, mask: Array, loss: str, **x: Any) -> dict[str, Any]:
    """The fused loss of its class; chosen rows first, as it takes them."""
    if x.get("label_smoothing"):
        raise NotImplementedError("liger's sigmoid loss takes no label smoothing; its robust loss is another")
    beta, options = x["beta"], {"compiled": False}
    kinds: dict[str, Callable[[], Any]] = {
        "dpo": lambda: LigerFusedLinearDPOLoss(beta=beta, use_ref_model=reference is not None, **options),
        "simpo": lambda: LigerFusedLinearSimPOLoss(beta=beta, gamma=x["margin"], compute_nll_loss=False, **options),
        "orpo": lambda: LigerFusedLinearORPOLoss(beta=beta, **options),
        "cpo": lambda: LigerFusedLinearCPOLoss(beta=beta, alpha=x["nll"], **options),
    }
    function, order = kinds[loss](), np.r_[0 : len(policy) : 2, 1 : len(policy) : 2]
    target = torch.where(tensor(mask), 0, IGNORED)[order]
    others: dict[str, Any] = {}
    if loss == "orpo":
        others = {"nll_target": torch.where(tensor(x["attention_mask"]), 0, IGNORED)[order]}
    if reference is not None and loss == "dpo":
        others = {"ref_input": _logits(tensor(reference), mask)[order], "ref_weight": IDENTITY}

    def value(logprobs: torch.Tensor) -> torch.Tensor:
        return function(IDENTITY, _logits(logprobs, mask)[order], target, **others)[0]

    return loss_and_gradient(value, policy)


def _logits(logprobs: torch.Tensor, mask: Array) -> torch.Tensor:
    """Logits of two tokens that hold the log-probs for the token 0; −inf times the identity's zeros would be NaN."""
    first, second = logits_that_hold(logprobs.double(), torch.zeros(mask.shape, dtype=torch.int64), 2).unbind(-1)
    return torch.stack((first, second.clamp(min=-1e4)), dim=-1)


def selective_log_softmax(logits: Array, ids: Array, temperature: float, *, entropy: bool) -> dict[str, Any]:
    """Its log-probs of a linear layer whose input is 1 and whose weights are the logits, row by row."""
    absent("selective_log_softmax", entropy=entropy)
    rows = tensor(logits).reshape(-1, logits.shape[-1])
    scores = [_score(row, token, temperature) for row, token in zip(rows, tensor(ids).reshape(-1), strict=True)]
    return {"logprobs": torch.stack(scores).reshape(ids.shape).numpy()}


def selective_log_softmax_backward(
    logits: Array, ids: Array, grad_logprobs: Array, temperature: float, *, grad_entropy: Array | None
) -> dict[str, Any]:
    """Its own backward pass of the same."""
    absent("selective_log_softmax_backward", grad_entropy=grad_entropy)
    leaf = tensor(logits).requires_grad_()
    rows = leaf.reshape(-1, logits.shape[-1])
    scores = [_score(row, token, temperature) for row, token in zip(rows, tensor(ids).reshape(-1), strict=True)]
    (gradient,) = torch.autograd.grad(torch.stack(scores), leaf, tensor(grad_logprobs).reshape(-1))
    return {"gradient": gradient.numpy()}


def _score(row: torch.Tensor, token: torch.Tensor, temperature: float) -> torch.Tensor:
    hidden = torch.ones(1, 1, 1, dtype=row.dtype)
    return LigerFusedLinearPPOBase.chunk_forward(hidden, row[:, None], token.reshape(1, 1), temperature=temperature)[
        0, 0
    ]


OPS: dict[str, Callable[..., dict[str, Any]]] = {
    "policy_loss": policy_loss,
    "policy_loss_in_parts": policy_loss_in_parts,
    "loss_from_logits": loss_from_logits,
    "preference_loss": preference_loss,
    "selective_log_softmax": selective_log_softmax,
    "selective_log_softmax_backward": selective_log_softmax_backward,
}


def timed_policy_loss(*, policy: Array, mask: Array, **x: Any) -> Timed:
    """Its loss function on one chunk of all rows, compiled as its forward pass does, with autograd's gradient."""
    return timed_loss(
        torch.compile(_loss_of_chunks(policy, mask, [len(mask)], x)),
        policy,
        "LigerFusedLinearGRPOFunction.ppo_loss_fn on one chunk of all rows under torch.compile, its default, then "
        "torch.autograd.grad by the log-probs; the linear layer that it is fused with is not in the time",
    )


TIMED: dict[str, Callable[..., Timed]] = {"policy_loss": timed_policy_loss}
