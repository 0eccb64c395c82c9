"""What skyrl's policy worker computes for a mini-batch: the losses that it hands to its strategy, by its own micro-batches.

This file is copied next to an adapter. Its first lines are the shim: its worker imports them, and nothing that is judged calls
into them. `skyrl.tinker.types`, the messages of its server, does not import on Python 3.11; `skyrl.train.dataset` is
imported without its `__init__`, which needs `datasets`; flash_attn is not installed; and the worker's device is the CPU.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from types import SimpleNamespace as Names
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from peer_rows import absent, grid, mask_of, only, ungrid
from peer_shim import PLACEHOLDER, Placeholder, stand_in, without_init
from peer_torch import loss_and_gradient, tensor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SHIM = stand_in("flash_attn", "flash_attn.bert_padding") | {"skyrl's messages": PLACEHOLDER}
sys.modules["skyrl.tinker.types"] = Placeholder("skyrl.tinker.types")
without_init("skyrl.train.dataset")

from skyrl.backends.skyrl_train.training_batch import TrainingInputBatch
from skyrl.backends.skyrl_train.utils.ppo_utils import PolicyLossRegistry, apply_loss_reduction_to_advantages_minibatch
from skyrl.backends.skyrl_train.workers.worker import PolicyWorkerBase
from skyrl.train.config import AlgorithmConfig, CISPOConfig, SAPOConfig

Array = np.ndarray[Any, Any]
LOSSES = {  # policy_loss_type and loss_reduction by algorithm; docs/definitions.md, "Presets"
    "grpo": ("regular", "sequence_mean"),
    "dapo": ("regular", "token_mean"),
    "dr_grpo": ("regular", "seq_mean_token_sum_norm"),
    "gspo": ("gspo", "sequence_mean"),
    "gspo-token": ("gspo", "sequence_mean"),
    "sapo": ("sapo", "sequence_mean"),
    "cispo": ("cispo", "token_mean"),
    "ppo": ("regular", "token_mean"),
    "reinforce++": ("regular", "token_mean"),
    "rloo": ("regular", "token_mean"),  # of a variant: advantage_estimator=rloo changes no setting of the loss
}


def conventions(setting: Mapping[str, Any]) -> dict[str, dict[str, tuple[Any, ...]]]:
    """Return the choices of the policy loss, with those of a variant."""
    loss = {
        "algorithm": tuple(name for name in LOSSES if name != "rloo"),
        "arithmetic": ("float32",),  # safe_exp_delta
        "dapo_denominator": ("global", "group", None),
        "cispo_bound": ("relative", None),
        "kl_ratio": ("none", None),
        "kl_clamp": (10.0,),
        "kl_aggregation": ("row-mean",),  # the worker averages the KL without loss_reduction
        "lower_bound": (False, True),
        "weights": (False,),  # it makes its own of the rollout's log-probs
        **{axis: (choice,) for axis, choice in setting.items()},
    }
    in_parts = {"parts": ("equal",), "dapo_denominator": ("global", None), "lower_bound": (False,)}
    return {"policy_loss": loss, "policy_loss_in_parts": loss | in_parts}


def policy_loss(*, policy: Array, mask: Array | None = None, lengths: Array | None = None, **x: Any) -> dict[str, Any]:
    """One micro-batch that is the whole step."""
    where = mask_of(policy, mask, lengths)
    wide = grid(policy, where)
    assert wide is not None
    result = _step(wide, where, len(where), x)
    return {"loss": result["loss"], "gradient": ungrid(result["gradient"], policy, where)}


def policy_loss_in_parts(*, policy: Array, mask: Array, parts: list[int], **x: Any) -> dict[str, Any]:
    """Micro-batches of one optimizer step, of one size, as its worker makes them."""
    if any(size != parts[0] for size in parts):
        raise NotImplementedError("skyrl's micro-batches have one size")
    return _step(policy, mask, parts[0], x)


def _step(policy: Array, mask: Array, size: int, x: dict[str, Any]) -> dict[str, Any]:
    """Sum and gradient of the losses that `forward_backward` hands to its strategy."""
    only("policy_loss", conventions({})["policy_loss"], kl_ratio=x["kl_ratio"], dapo_denominator=x["dapo_denominator"])
    absent("policy_loss", row_mask=x.get("row_mask"), weights=x.get("weights"))
    if x["beta"] and (x.get("kl_clamp") is not None) != (x["kl_estimator"] == "k3"):
        raise NotImplementedError("skyrl clamps k3 at 10, and no other estimate")
    worker, reduction = _worker(x, size)
    marks = tensor(mask.astype(np.float32))
    gain = grid(x["advantages"], mask)
    assert gain is not None
    gain = gain if gain.ndim > 1 else np.repeat(gain[:, None], mask.shape[1], axis=1)
    prompts = x.get("group_size")
    scaled = apply_loss_reduction_to_advantages_minibatch(
        tensor(gain),
        marks,
        reduction,
        size,
        x.get("max_length"),
        [(start, start + prompts) for start in range(0, len(mask), prompts)] if prompts else None,
    )
    rows, width = mask.shape
    batch = {"sequences": torch.arange(rows)[:, None].expand(rows, width + 1), "advantages": scaled, "loss_mask": marks}
    batch["attention_mask"] = torch.ones(rows, width + 1, dtype=torch.int64)
    batch["action_log_probs"] = tensor(policy if x["old"] is None else grid(x["old"], mask))
    if x["beta"]:
        batch["base_action_log_probs"] = tensor(grid(x["reference"], mask))
    data = TrainingInputBatch(batch)
    data.metadata = {"response_length": width}

    def total(logprobs: torch.Tensor) -> torch.Tensor:
        losses: list[torch.Tensor] = []
        worker.strategy = Names(backward=lambda loss, *_: losses.append(loss), all_reduce=lambda found, **_: found)
        worker.model = _Model(logprobs)
        with _cpu():
            worker.forward_backward(data)
        return torch.stack(losses).sum()

    return loss_and_gradient(total, policy)


class _Model:
    """A model that returns given log-probs of the rows that its sequences name."""

    def __init__(self, logprobs: torch.Tensor) -> None:
        self.logprobs = logprobs

    def train(self) -> None:
        """Do nothing: it has no dropout."""

    def __call__(self, sequences: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return the log-probs, and entropies of 0, which its worker logs."""
        return self.logprobs[sequences[:, 0]], {"entropy": torch.zeros(sequences.shape)}


@contextmanager
def _cpu() -> Iterator[None]:
    """Let the worker's device be the CPU, where there is no other."""
    before, torch.cuda.current_device = torch.cuda.current_device, lambda: "cpu"
    try:
        yield
    finally:
        torch.cuda.current_device = before


def _worker(x: dict[str, Any], size: int) -> tuple[Any, str]:
    """Return a policy worker without model, optimizer and mesh, as `__init__` sets what a step reads; and its reduction."""
    kind, reduction = LOSSES[x["algorithm"]]
    if x.get("delta") and kind != "regular":
        raise NotImplementedError(f"skyrl's {kind} has no dual clip")
    low, high = x["epsilon_low"], x["epsilon_high"]
    widths = {} if kind in {"cispo", "sapo"} else {"eps_clip_low": low, "eps_clip_high": high}
    if kind == "cispo":  # 1.0: no lower bound
        widths["cispo"] = CISPOConfig(cispo_eps_clip_low=1.0 if low is None else low, cispo_eps_clip_high=high)
    if kind == "sapo":
        widths["sapo"] = SAPOConfig(x["sapo_temperature_positive"], x["sapo_temperature_negative"])
    if x.get("delta"):
        kind, widths["clip_ratio_c"] = "dual_clip", x["delta"]
    reduction = "prompt_mean" if x.get("dapo_denominator") == "group" else reduction
    algorithm = AlgorithmConfig(
        policy_loss_type=kind,
        loss_reduction=reduction,
        use_kl_loss=bool(x["beta"]),
        kl_loss_coef=x["beta"],
        kl_estimator_type=x["kl_estimator"] or "k3",
        **widths,
    )
    worker = PolicyWorkerBase.__new__(PolicyWorkerBase)
    worker.cfg = Names(algorithm=algorithm, micro_train_batch_size_per_gpu=size, max_tokens_per_microbatch=-1)
    worker.policy_loss_fn = PolicyLossRegistry.get(kind)
    worker.mesh_rank, worker.device_mesh = Names(dp_size=1), Names(get_group=lambda _: None)
    worker.scheduler, worker.optimizer = Names(get_last_lr=lambda: [0.0]), None
    return worker, reduction
