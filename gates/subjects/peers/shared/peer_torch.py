"""Shared by adapters of torch libraries: tensors, autograd, and fake models with given log-probs.

It is copied next to an adapter, since Gates is not installed in a peer's environment. It has no formula of any op.
"""

from __future__ import annotations

import os

TIMED = bool(os.environ.get("GATES_TIMED"))  # set by benches/ratios.py, so that a peer is timed as its users run it
if not TIMED:
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # compilation needs a C++ compiler and takes minutes

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from peer_timed import Timed

Array = np.ndarray[Any, Any]
VOCABULARY = 7  # vocabulary size of the fake models
if not TIMED:
    torch.set_num_threads(1)


def tensor(values: Any) -> Any:
    """Return an array as a tensor of the same dtype without shared memory; other values unchanged."""
    if not isinstance(values, np.ndarray):
        return values
    return torch.from_numpy(values.astype(values.dtype.newbyteorder("="), order="C"))


def loss_and_gradient(function: Callable[[torch.Tensor], torch.Tensor], values: Array) -> dict[str, Any]:
    """Return a loss and autograd's gradient by `values` in their shape and dtype (zeros if the loss does not use them)."""
    leaf = tensor(values).requires_grad_()
    loss = function(leaf)
    gradient = torch.zeros_like(leaf)
    if loss.requires_grad:
        (slope,) = torch.autograd.grad(loss, leaf, allow_unused=True)
        gradient = gradient if slope is None else slope
    return {"loss": float(loss.detach()), "gradient": gradient.detach().numpy()}


def timed_loss(function: Callable[[torch.Tensor], torch.Tensor], values: Array, note: str) -> Timed:
    """Return a timed call of a loss with autograd's gradient by `values`."""
    leaf = tensor(values).requires_grad_()

    def loss_and_gradient() -> tuple[torch.Tensor, torch.Tensor]:
        loss = function(leaf)
        return loss, torch.autograd.grad(loss, leaf)[0]

    return Timed(
        "loss_and_gradient()",
        {"loss_and_gradient": loss_and_gradient},
        lambda result: {"loss": float(result[0].detach()), "gradient": result[1].numpy()},
        note,
    )


def logits_that_hold(logprobs: torch.Tensor, ids: torch.Tensor, vocabulary: int = VOCABULARY) -> torch.Tensor:
    """Return logits (..., V) whose log-softmax at the ids is `logprobs`, differentiable in them.

    The other tokens share the remaining probability, log((1 − p)/(V − 1)) each, so the logsumexp of a row is 0.
    """
    rest = torch.log(-torch.expm1(logprobs)) - np.log(vocabulary - 1)
    wide = rest[..., None].expand(*logprobs.shape, vocabulary)
    return torch.where(torch.nn.functional.one_hot(ids, vocabulary).bool(), logprobs[..., None], wide)


class FakeModel(torch.nn.Module):
    """A causal model that returns given logits (B, T, V) for any ids and counts its calls."""

    def __init__(self, logits: torch.Tensor) -> None:
        super().__init__()
        self.logits, self.calls = logits, 0
        self.config = SimpleNamespace(vocab_size=logits.shape[-1], is_encoder_decoder=False, model_type="fake")

    def forward(self, *_: Any, **__: Any) -> Any:
        """Return an object with `logits`."""
        self.calls += 1
        return SimpleNamespace(logits=self.logits, loss=None, aux_loss=None)
