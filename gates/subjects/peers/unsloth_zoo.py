"""The peer unsloth-zoo: the loss of its GRPO, its weights of a sampler's log-probs, and log-probs with entropies."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.append(str(Path(__file__).parent / "shared"))

import unsloth_loss  # unsloth precedes every other import of a library

# isort: split
import numpy as np
import torch
from peer_torch import tensor
from unsloth_zoo.rl_replacements import (
    chunked_hidden_states_selective_log_softmax_recompute,
    chunked_selective_log_softmax,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    Array = np.ndarray[Any, Any]
    Answer = dict[str, Any]

VERSIONS = {name: version(name) for name in ("unsloth-zoo", "unsloth", "trl", "torch")}
SCORES = {"dtype": ("float16", "bfloat16", "float32"), "ids_per_position": ("one",), "ignore_index": (None,)}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    **unsloth_loss.CONVENTIONS,
    "selective_log_softmax": SCORES,
    "selective_log_softmax_backward": SCORES,
}


def selective_log_softmax(logits: Array, ids: Array, temperature: float, *, entropy: bool) -> Answer:
    """Log-probs of logits; with entropies those of a head that makes the logits."""
    if not entropy:
        return {"logprobs": _logprobs(tensor(logits), tensor(ids), temperature).numpy()}
    logprobs, entropies = _with_entropies(tensor(logits), tensor(ids), temperature)
    return {"logprobs": logprobs.numpy(), "entropy": entropies.numpy()}


def selective_log_softmax_backward(
    logits: Array, ids: Array, grad_logprobs: Array, temperature: float, *, grad_entropy: Array | None
) -> Answer:
    """Autograd's gradient through the same functions."""
    leaf = tensor(logits).requires_grad_()
    if grad_entropy is None:
        outputs, slopes = [_logprobs(leaf, tensor(ids), temperature)], [grad_logprobs]
    else:
        outputs, slopes = list(_with_entropies(leaf, tensor(ids), temperature)), [grad_logprobs, grad_entropy]
    given = [tensor(slope).to(output.dtype) for slope, output in zip(slopes, outputs, strict=True)]
    return {"gradient": torch.autograd.grad(outputs, leaf, given)[0].numpy()}


def _logprobs(logits: torch.Tensor, ids: torch.Tensor, temperature: float) -> torch.Tensor:
    """Score one row of logits, as its GRPO does where a model returns them."""
    flat = logits.reshape(1, -1, logits.shape[-1])
    return chunked_selective_log_softmax(flat, ids.reshape(1, -1), temperature=temperature).reshape(ids.shape)


def _with_entropies(logits: torch.Tensor, ids: torch.Tensor, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Score each position by a head of its own, whose one hidden unit is 1, so that its weights are the logits."""
    hidden = torch.ones(1, 1, 1, dtype=logits.dtype)
    pairs = [
        chunked_hidden_states_selective_log_softmax_recompute(
            hidden, head[:, None], one.reshape(1, 1), temperature=temperature, return_entropy=True
        )
        for head, one in zip(logits.reshape(-1, logits.shape[-1]), ids.flatten(), strict=True)
    ]
    logprobs, entropies = (torch.cat([part.flatten() for part in both]) for both in zip(*pairs, strict=True))
    return logprobs.reshape(ids.shape), entropies.reshape(ids.shape)


OPS: dict[str, Callable[..., dict[str, Any]]] = {
    "policy_loss": unsloth_loss.policy_loss,
    "policy_loss_in_parts": unsloth_loss.policy_loss_in_parts,
    "importance_weights": unsloth_loss.importance_weights,
    "selective_log_softmax": selective_log_softmax,
    "selective_log_softmax_backward": selective_log_softmax_backward,
}
