# ruff: noqa: SLF001  the losses of trainers are private
"""The timed calls of TRL.

The loss is the trainer's own `_compute_loss`. Advantages and packing are inside long methods, so a range of statements of
the installed source is timed. This file is copied next to the adapter.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from peer_timed import Timed, cut, only_output
from trl import GRPOTrainer, data_utils
from trl.trainer import utils

Array = np.ndarray[Any, Any]
OLD, REFERENCE = "old_per_token_logps", "ref_per_token_logps"


def group_advantages(rewards: Array, group_size: int, **conventions: Any) -> Timed:
    """The statements of `_generate_and_score_completions` from one function's rewards to advantages."""
    advantages = cut(
        GRPOTrainer._generate_and_score_completions,
        "unscorable_mask = ",
        "advantages = torch.nan_to_num",
        ("self", "rewards_per_func", "num_generations", "device"),
        "advantages",
    )
    trainer = SimpleNamespace(
        multi_objective_aggregation="sum_then_normalize",
        scale_rewards=conventions["scale"],
        reward_weights=torch.ones(1),
    )
    return Timed(
        f'advantages(trainer, rewards, {group_size}, "cpu")',
        {"advantages": advantages, "trainer": trainer, "rewards": torch.from_numpy(rewards)[:, None].clone()},
        only_output("advantages"),
        "the statements of GRPOTrainer._generate_and_score_completions from unscorable_mask to nan_to_num, one reward",
    )


def selective_log_softmax(logits: Array, ids: Array, *, temperature: float, entropy: bool) -> Timed:
    """trl.trainer.utils, on tensors without a gradient."""
    name = "selective_log_softmax_and_entropy" if entropy else "selective_log_softmax"
    names = {"logits": torch.from_numpy(logits), "ids": torch.from_numpy(ids), name: getattr(utils, name)}
    options = "" if temperature == 1.0 else f", temperature={temperature}"

    def answer(result: Any) -> dict[str, Any]:
        values = result if entropy else (result,)
        return {key: value.numpy() for key, value in zip(("logprobs", "entropy"), values, strict=False)}

    note = "trl.trainer.utils, its path for a CPU; no gradient is asked for"
    return Timed(f"{name}(logits, ids{options})", names, answer, note)


def pack_sequences(lengths: Array, max_length: int, **_: Any) -> Timed:
    """The statements of `_pack_bfd` that choose the bins."""
    pack = cut(
        data_utils._pack_bfd, "ids = np.arange", "for length, idx in", ("examples", "lengths", "seq_length"), "bins"
    )
    # The statements use `examples` only for its len().
    names = {"pack": pack, "examples": range(len(lengths)), "lengths": pa.array(lengths.astype(np.int32))}

    def answer(bins: Any) -> dict[str, Any]:
        held = [np.asarray(bin_["ids"], np.int64) for bin_ in bins]
        return {"indices": np.concatenate(held), "offsets": np.cumsum([0, *map(len, held)])}

    note = "the statements of trl.data_utils._pack_bfd from ids to the end of its loop: the bins alone, no tokens moved"
    return Timed(f"pack(examples, lengths, {max_length})", names, answer, note)


def policy_loss(make: Callable[[dict[str, Any]], Any], policy: Array, **x: Any) -> Timed:
    """`_compute_loss` of a real trainer, and autograd's gradient by the log-probs that its forward pass would give.

    Args:
        make: the adapter's function from the op's conventions to the trainer.
        policy: log-probs (B, T).
        **x: the op's other inputs.
    """
    trainer = make(x)
    mask, leaf = x["mask"], torch.from_numpy(policy.copy()).requires_grad_()
    arrays = {OLD: x["old"], REFERENCE: x["reference"], "advantages": x["advantages"]}
    ids = torch.zeros(mask.shape, dtype=torch.long)
    ones = torch.ones((len(mask), 1), dtype=torch.long)
    batch = {name: torch.from_numpy(value) for name, value in arrays.items() if value is not None}
    batch |= {"prompt_ids": ones, "prompt_mask": ones, "completion_ids": ids}
    batch |= {
        "completion_mask": torch.from_numpy(mask.astype(np.int64)),
        "num_items_in_batch": torch.tensor(mask.sum()),
    }
    forward = (leaf, torch.zeros_like(leaf), None)
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: forward

    def loss_and_gradient() -> tuple[Any, Any]:
        loss = trainer._compute_loss(None, batch)
        return loss, torch.autograd.grad(loss, leaf)[0]

    return Timed(
        "loss_and_gradient()",
        {"loss_and_gradient": loss_and_gradient},
        lambda result: {"loss": float(result[0].detach()), "gradient": result[1].numpy()},
        f"{type(trainer).__name__}._compute_loss, then torch.autograd.grad by the log-probs; its metrics are in the time, "
        "its forward pass is not",
    )
