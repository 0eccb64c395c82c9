"""The loss of unsloth-zoo's GRPO, and the weights that it multiplies it by.

unsloth is imported before unsloth_zoo, as that asks, and takes its own backend for machines without a GPU. What both write at
import goes to a folder of this process. VESPO's weights are TRL's static method, as its GRPO hands it to the loss.
It is copied next to an adapter, since Gates is not installed in a peer's environment. It has no formula of any op.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from typing import Any

WRITTEN = tempfile.mkdtemp(prefix="unsloth-zoo-")
atexit.register(shutil.rmtree, WRITTEN, ignore_errors=True)
os.environ |= {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1", "UNSLOTH_COMPILE_LOCATION": WRITTEN}
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # as peer_torch does, which unsloth has to precede

import unsloth  # noqa: F401  before TRL, which it patches

# isort: split
import numpy as np
import torch
from peer_rows import absent, grid, mask_of, micro_batches, only, ungrid
from peer_torch import loss_and_gradient, tensor
from trl import GRPOTrainer
from trl_names import LOSSES, MODES, SHAPES
from unsloth_zoo.rl_replacements import UnslothEfficientGRPO, grpo_compute_loss

Array = np.ndarray[Any, Any]
Answer = dict[str, Any]
ALGORITHMS = ("grpo", "dapo", "bnpo-trl", "dr_grpo", "gspo", "luspo", "cispo", "sapo", "vespo")
SETTINGS_OF = {  # keywords of the loss by inputs of a case
    "epsilon_low": "epsilon_low",
    "epsilon_high": "epsilon_high",
    "delta": "delta",
    **SHAPES,
}
LOSS: dict[str, tuple[Any, ...]] = {
    "dtype": ("float32", "float64"),
    "algorithm": ALGORITHMS,
    "dapo_denominator": ("global", "trl", None),
    "cispo_bound": ("absolute", None),
    "kl_estimator": ("k3", None),
    "kl_ratio": ("none", None),
    "kl_clamp": (10.0,),
    "weights": (False,),
    "parts": ("equal",),  # per_device_train_batch_size
}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "policy_loss": LOSS,
    "policy_loss_in_parts": LOSS
    | {"dtype": ("float32",), "algorithm": tuple(name for name in ALGORITHMS if name != "bnpo-trl")},
    "importance_weights": {"level": ("token", "seq_sum"), "nan_sampling": ("unrecorded",)},
}


def _keywords(parts: int, tokens: int, x: dict[str, Any]) -> dict[str, Any]:
    """Return the keywords of the loss for a case, of whose optimizer step these are the micro-batches and tokens."""
    only("policy_loss", LOSS, **{name: x[name] for name in ("algorithm", "kl_ratio", "kl_estimator")})
    absent("policy_loss", row_mask=x.get("row_mask"), weights=x.get("weights"))
    if x["beta"] and x.get("kl_clamp") is None:
        raise NotImplementedError("unsloth-zoo clamps the KL of a token at 10")
    kind, level = LOSSES[x["algorithm"]]
    share = 2 if x.get("dapo_denominator") == "trl" else 1  # optimizer steps of a generation batch
    return {
        "loss_type": kind,
        "importance_sampling_level": level,
        "num_items_in_batch": torch.tensor(float(share * x["tokens_in_step"] if share > 1 else tokens)),
        "current_gradient_accumulation_steps": parts,
        "steps_per_generation": share * parts,
        "get_gamma_weights": GRPOTrainer.get_gamma_weights,
    } | {to: x[name] for to, name in SETTINGS_OF.items() if x.get(name) is not None}


def _rows(mask: Array, x: dict[str, Any]) -> dict[str, Any]:
    """Return the tensors of a case, by the names of the loss."""
    return {
        "ref": tensor(grid(x["reference"], mask)) if x["beta"] else None,
        "old": tensor(grid(x["old"], mask)),
        "input_ids": torch.ones(mask.shape, dtype=torch.long),
        "mask": tensor(mask).long(),
        "advantages": tensor(grid(x["advantages"], mask)),
    }


def policy_loss(*, policy: Array, mask: Array | None = None, lengths: Array | None = None, **x: Any) -> Answer:
    """`grpo_compute_loss` of one micro-batch, or of the given ones of bnpo, by autograd."""
    if x["algorithm"] == "sapo" and policy.dtype == np.float64:
        raise NotImplementedError("the temperatures of unsloth-zoo's SAPO are float32 (rl_replacements.py:1166)")
    where = mask_of(policy, mask, lengths)
    parts = x.pop("micro_batches", None) or [len(where)]
    keywords, rows = _keywords(len(parts), int(where.sum()), x), _rows(where, x)

    def total(now: torch.Tensor) -> torch.Tensor:
        losses = [
            grpo_compute_loss(new=now[at], sampling_per_token_logps=None, beta=x["beta"], **own, **keywords)[0]
            for at, own in micro_batches(rows, parts)
        ]
        return torch.stack(losses).sum()

    wide = grid(policy, where)
    assert wide is not None
    result = loss_and_gradient(total, wide)
    return {"loss": result["loss"], "gradient": ungrid(result["gradient"], policy, where)}


def policy_loss_in_parts(*, policy: Array, mask: Array, parts: list[int], **x: Any) -> Answer:
    """Micro-batches of one optimizer step, each by `UnslothEfficientGRPO` as its trainer calls it."""
    keywords, rows = _keywords(len(parts), int(mask.sum()), x), _rows(mask, x)
    order = ("old", "ref", "sampling", "lm_head", "input_ids", "mask", "advantages")

    def total(now: torch.Tensor) -> torch.Tensor:
        losses = [
            UnslothEfficientGRPO.apply(now[at], *map(own.get, order), x["beta"], None, 1, keywords)[0]
            for at, own in micro_batches(rows, parts)
        ]
        return torch.stack(losses).sum()

    return loss_and_gradient(total, policy)


def importance_weights(*, old: Array, sampling: Array, correction: str, level: str, **x: Any) -> Answer:
    """The ratios that `grpo_compute_loss` returns for its metrics, those which it multiplies the loss by."""
    where = mask_of(old, x.get("mask"), x.get("lengths"))
    now, drawn = (tensor(grid(values, where)) for values in (old, sampling))
    ratios = grpo_compute_loss(
        ref=None,
        new=now,
        old=now,
        sampling_per_token_logps=drawn,
        input_ids=torch.ones(where.shape, dtype=torch.long),
        mask=tensor(where).long(),
        beta=0.0,
        advantages=torch.ones(len(where)),
        use_vllm=True,
        vllm_importance_sampling_correction=True,
        vllm_importance_sampling_mode=MODES[correction, level],
        vllm_importance_sampling_clip_min=x["c_min"],
        vllm_importance_sampling_clip_max=x["c_max"],
    )[4].numpy()
    return {"weights": ratios[:, 0] if level == "seq_sum" else ungrid(ratios, old, where)}
