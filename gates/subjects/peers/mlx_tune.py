"""The peer mlx-tune: its preference losses, with a stub of the cross entropy that reads log-probs out of a model's logits.

A row is one start token, then prompt and completion; its losses take whole rows and their lengths. Its GRPO is a closure of a training loop that takes rewards, and its
KTO has neither weights nor a reference point, so that both are judged by their trainers' updates: see mlx-tune.toml.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.append(str(Path(__file__).parent / "shared"))
import mlx.core as mx
import mlx_tune_steps
import numpy as np
from mlx_tune import losses  # type: ignore[import-not-found,unused-ignore]
from peer_mlx import array, given_logprobs, loss_and_gradient, only_float32
from peer_rows import absent

if TYPE_CHECKING:
    from collections.abc import Callable

    Array = np.ndarray[Any, Any]

mx.set_default_device(mx.cpu)
VERSIONS = {name: version(name) for name in ("mlx-tune", "mlx", "mlx-lm")}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "preference_loss": {
        "dtype": ("float32",),
        "loss": ("dpo", "orpo", "simpo"),
        "nll_tokens": ("completion",),
        "prompt": ("shared",),
        "rows": ("mask",),
        "arithmetic": ("float32",),
    },
    **mlx_tune_steps.CONVENTIONS,
}


class _Texts:
    """Rows of log-probs as the arguments of the losses: ids, lengths and a model."""

    def __init__(self, mask: Array) -> None:
        ends = np.where(mask.any(axis=1), mask.shape[1] - np.argmax(mask[:, ::-1], axis=1), 0)
        self.ids = mx.zeros((len(mask), mask.shape[1] + 1), mx.int32)
        self.lengths = mx.array(ends + 1)

    def pairs(self) -> dict[str, mx.array]:
        return {
            "chosen_ids": self.ids[0::2],
            "rejected_ids": self.ids[1::2],
            "chosen_lengths": self.lengths[0::2],
            "rejected_lengths": self.lengths[1::2],
        }

    def model(self, logprobs: mx.array) -> Callable[..., mx.array]:
        """Return a model that is called for the chosen rows first, then for the rejected ones; its "logits" are log-probs."""
        sides = cycle([logprobs[0::2], logprobs[1::2]])
        return lambda *_: next(sides)


def preference_loss(
    *, policy: Array, reference: Array | None, mask: Array, loss: str, beta: float, **options: Any
) -> dict[str, Any]:
    """DPO with precomputed reference log-probs, as its trainer calls it; ORPO; SimPO with its γ inside β's bracket."""
    only_float32("policy", policy)
    absent("preference_loss", penalty=options.get("penalty"), nll=options.get("nll"))
    texts = _Texts(mask)
    if loss == "dpo" and reference is None:
        raise NotImplementedError("mlx-tune's DPO takes a reference")
    if not _prompts_are_shared(policy, mask):
        raise NotImplementedError("mlx-tune's trainers make pairs whose prompts are the same")

    def total(logprobs: mx.array) -> mx.array:
        model = texts.model(logprobs)
        if loss == "orpo":
            return losses.orpo_loss(model, **texts.pairs(), beta=beta)[0]
        if loss == "simpo":  # losses.py:480: beta * (r_chosen - r_rejected - gamma)
            return losses.simpo_loss(model, **texts.pairs(), beta=beta, gamma=options["margin"] / beta)[0]
        first, second = losses.compute_reference_logprobs(texts.model(array(reference)), **texts.pairs())
        smoothing = options.get("label_smoothing") or 0.0
        return losses.dpo_loss(
            model,
            **texts.pairs(),
            beta=beta,
            reference_chosen_logprobs=first,
            reference_rejected_logprobs=second,
            label_smoothing=smoothing,
        )[0]

    with given_logprobs():
        return loss_and_gradient(total, policy)


def _prompts_are_shared(policy: Array, mask: Array) -> bool:
    before = np.cumsum(mask, axis=1) == 0
    scored = np.where(before, policy, 0)
    return np.array_equal(before[0::2], before[1::2]) and np.array_equal(scored[0::2], scored[1::2])


OPS: dict[str, Callable[..., dict[str, Any]]] = {"preference_loss": preference_loss, **mlx_tune_steps.OPS}
TIMED: dict[str, Callable[..., Any]] = {}  # it has no op that is a kernel
