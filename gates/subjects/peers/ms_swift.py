# ruff: noqa: SLF001  the steps of trainers are private
"""The peer ms-swift: the losses of its GRPO and DPO trainers, its advantages, corrections, log-probs and distillation.

Trainers are made without `__init__` (no model, no data set, no template) and get their attributes from a real config, by the
trainer's own `_prepare_algorithm_params`. Forward passes are stubs that return a case's log-probs. No formula is repeated.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace as Names
from typing import TYPE_CHECKING, Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1", "LOG_LEVEL": "ERROR"}
sys.path.append(str(Path(__file__).parent / "shared"))

import numpy as np
import torch
from accelerate import Accelerator
from peer_rows import absent, grid, mask_of, micro_batches, only, ungrid
from peer_torch import loss_and_gradient, tensor
from swift.rewards.orm import SoftOverlong
from swift.rl_core.advantage import compute_advantages, expand_advantage_to_per_token
from swift.rl_core.data import GRPOBatch
from swift.rlhf_trainers.arguments import DPOConfig, GRPOConfig
from swift.rlhf_trainers.dpo_trainer import DPOTrainer
from swift.rlhf_trainers.gkd_loss import jsd_loss
from swift.rlhf_trainers.grpo_trainer import GRPOTrainer
from trl_names import FIXED, LOSSES

if TYPE_CHECKING:
    from collections.abc import Callable

    Array = np.ndarray[Any, Any]
    Answer = dict[str, Any]

VERSIONS = {name: version(name) for name in ("ms-swift", "trl", "transformers", "torch")}
ALGORITHMS = ("grpo", "dapo", "bnpo-trl", "dr_grpo", "gspo", "gspo-token", "cispo", "sapo")
LOSS: dict[str, tuple[Any, ...]] = {
    "algorithm": ALGORITHMS,
    "dapo_denominator": ("global", None),
    "cispo_bound": ("absolute", None),
    "kl_estimator": ("k3", None),
    "kl_ratio": ("none", None),
    "kl_clamp": (10.0,),
    "weights": (False,),
    "parts": ("equal",),  # per_device_train_batch_size
}
EPS = (1e-4, float(np.float32(1e-4)), None)
SCORES: dict[str, tuple[Any, ...]] = {"ids_per_position": ("one",), "ignore_index": (None,)}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "policy_loss": LOSS,
    "policy_loss_in_parts": LOSS | {"algorithm": tuple(name for name in ALGORITHMS if name != "bnpo-trl")},
    "group_advantages": {
        "scale": ("group", "batch", "none"),
        "ddof": (1, None),
        "eps": EPS,
        "eps_mode": ("add", None),
        "baseline": ("mean", "leave-one-out"),
    },
    "importance_weights": {"correction": ("tis", "mis"), "level": ("token",)},
    "preference_loss": {"loss": ("dpo", "hinge", "ipo")},
    "selective_log_softmax": SCORES,
    "selective_log_softmax_backward": SCORES,
}


def _trainer(kind: Any, config: Any, **attributes: Any) -> Any:
    """Return a trainer with the attributes that `__init__` takes from its config, and the given ones."""
    trainer = kind.__new__(kind)
    vars(trainer).update(
        vars(config),
        args=config,
        accelerator=Accelerator(cpu=True),
        model=Names(training=True),
        template=Names(padding_free=False, packing=False, sequence_parallel_size=1),
        model_accepts_loss_kwargs=False,  # as its __init__ sets it
        compute_loss_func=None,
        aux_loss_enabled=False,
        is_encoder_decoder=False,
        label_pad_token_id=-100,
        _metrics=defaultdict(lambda: defaultdict(list)),
    )
    vars(trainer).update(attributes)
    return trainer


def _grpo(parts: int, options: dict[str, Any]) -> Any:
    """Return a GRPO trainer of these options, without teacher, expert data and Liger's loss."""
    config = GRPOConfig(**FIXED, num_generations=1, gradient_accumulation_steps=parts, **options)
    trainer = _trainer(
        GRPOTrainer,
        config,
        current_gradient_accumulation_steps=parts,
        use_liger_loss=False,
        dynamic_num_samples=False,
        compute_entropy=False,
        disable_rollout_importance_sampling=False,
        chord_sft_iterator=None,
        _has_teacher=False,
        model_kwarg_keys=(),
    )
    trainer._prepare_algorithm_params()
    return trainer


def policy_loss(*, policy: Array, mask: Array | None = None, lengths: Array | None = None, **x: Any) -> Answer:
    """One micro-batch that is the whole step, or the given ones of bnpo."""
    where = mask_of(policy, mask, lengths)
    wide = grid(policy, where)
    assert wide is not None
    result = _step(wide, where, x.pop("micro_batches", None) or [len(where)], x)
    return {"loss": result["loss"], "gradient": ungrid(result["gradient"], policy, where)}


def policy_loss_in_parts(*, policy: Array, mask: Array, parts: list[int], **x: Any) -> Answer:
    """Micro-batches of one optimizer step."""
    return _step(policy, mask, parts, x)


def _step(policy: Array, mask: Array, parts: list[int], x: dict[str, Any]) -> Answer:
    """Sum and gradient of the losses of micro-batches, each divided by their number, as transformers' Trainer does."""
    only("policy_loss", LOSS, **{name: x[name] for name in ("algorithm", "kl_ratio", "kl_estimator")})
    absent("policy_loss", row_mask=x.get("row_mask"), weights=x.get("weights"))
    if x["beta"] and x.get("kl_clamp") is None:
        raise NotImplementedError("ms-swift clamps the KL of a token at 10")
    kind, level = LOSSES[x["algorithm"]]
    options = {"loss_type": kind, "importance_sampling_level": level, "beta": x["beta"], "delta": x.get("delta")}
    names = {"epsilon": "epsilon_low", "epsilon_high": "epsilon_high", "max_completion_length": "max_length"}
    names |= {"tau_pos": "sapo_temperature_positive", "tau_neg": "sapo_temperature_negative"}
    options |= {to: x[name] for to, name in names.items() if x.get(name) is not None}
    trainer, where = _grpo(len(parts), options), tensor(mask)
    gain = tensor(grid(x["advantages"], mask))
    rows = {
        "completion_mask": where,
        "truncated_mask": torch.zeros(len(mask), dtype=torch.bool),
        "seq_lengths": where.sum(1),
        "advantages": expand_advantage_to_per_token(gain, where) if gain.ndim == 1 else gain,
        "old_per_token_logps": tensor(grid(x["old"], mask)),
        "ref_per_token_logps": tensor(grid(x["reference"], mask)) if x["beta"] else None,
    }

    def total(logprobs: torch.Tensor) -> torch.Tensor:
        losses = torch.zeros((), dtype=logprobs.dtype)
        for at, own in micro_batches(rows, parts):
            trainer._get_per_token_logps_and_entropies = lambda *_, at=at, **__: (logprobs[at], None)
            batch = {
                "model_inputs": {"input_ids": where[at]},
                "grpo_batch": GRPOBatch(**own, num_items_in_batch=where.sum()),
            }
            losses = losses + trainer.compute_loss(None, batch) / len(parts)
        return losses

    return loss_and_gradient(total, policy)


def group_advantages(rewards: Array, group_size: int, *, scale: str, baseline: str, **x: Any) -> Answer:
    """What `compute_advantages` gives for one reward function."""
    only("group_advantages", CONVENTIONS["group_advantages"], scale=scale, baseline=baseline, **x)
    estimator = {"mean": "grpo", "leave-one-out": "rloo"}[baseline]
    column = tensor(rewards)[:, None]
    weights = torch.ones(1, dtype=column.dtype)
    return {"advantages": compute_advantages(column, weights, group_size, estimator, scale)[0].numpy()}


def importance_weights(
    old: Array, sampling: Array, *, correction: str, level: str, c_min: float | None, c_max: float, **x: Any
) -> Answer:
    """The weights of rollout_importance_sampling_mode."""
    only("importance_weights", CONVENTIONS["importance_weights"], correction=correction, level=level)
    absent("importance_weights", c_min=c_min)
    where, mode = (
        mask_of(old, x.get("mask"), x.get("lengths")),
        {"tis": "token_truncate", "mis": "token_mask"}[correction],
    )
    options = {"rollout_importance_sampling_mode": mode, "rollout_importance_sampling_threshold": c_max}
    pair = (tensor(grid(values, where)) for values in (old, sampling))
    _, weights = _grpo(1, options)._get_rollout_is_correction(*pair, tensor(where))
    weights = grid(weights.numpy()[where], where)  # of tokens only, since padding holds a weight too
    return {"weights": ungrid(weights, old, where)}


def preference_loss(*, policy: Array, reference: Array | None, mask: Array, loss: str, **x: Any) -> Answer:
    """The loss of its DPO trainer; a slot precedes each row, since position t scores the token after it."""
    only("preference_loss", CONVENTIONS["preference_loss"], loss=loss)
    if x.get("lengths") == "sum":
        raise NotImplementedError("ms-swift's IPO takes means")
    order = np.r_[0 : len(policy) : 2, 1 : len(policy) : 2]  # all chosen, then all rejected
    where = torch.nn.functional.pad(tensor(mask[order]), (1, 0))
    config = DPOConfig(
        **FIXED,
        beta=x["beta"],
        label_smoothing=x.get("label_smoothing") or 0.0,
        loss_type=[{"dpo": "sigmoid"}.get(loss, loss)],
    )
    trainer = _trainer(
        DPOTrainer,
        config,
        reference_free=reference is None,
        f_divergence_type="reverse_kl",
        use_weighting=False,
        ref_model=_scorer(tensor(np.zeros_like(policy) if reference is None else reference)[order]),
        _peft_has_been_casted_to_bf16=False,
        get_use_logits_to_keep=lambda *_: False,
        get_per_token_logps=_logps,
    )
    batch = {"labels": torch.where(where, 1, -100)}
    return loss_and_gradient(lambda now: trainer.get_batch_loss_metrics(_scorer(now[order]), batch)[0], policy)


def _scorer(logprobs: torch.Tensor) -> Callable[..., Any]:
    """Return a model whose logits are the log-probs of a case, (B, T + 1, 1)."""
    return lambda **_: Names(logits=torch.nn.functional.pad(logprobs, (0, 1))[..., None])


def _logps(logits: torch.Tensor, labels: torch.Tensor, **_: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the log-probs that `_scorer` holds, 0 where there is no label, as `get_per_token_logps` does."""
    counted = labels != -100
    return logits[..., 0].masked_fill(~counted, 0), torch.zeros_like(logits[..., 0]), counted


def full_kl(policy_logprobs: Array, reference_logprobs: Array) -> Answer:
    """`jsd_loss` of its distillation with beta 1, KL(student ‖ teacher), position by position."""
    width = policy_logprobs.shape[-1]
    rows = zip(*(tensor(values).reshape(-1, 1, width) for values in (policy_logprobs, reference_logprobs)), strict=True)
    found = [jsd_loss(student, teacher, beta=1).numpy() for student, teacher in rows]
    return {"kl": np.array(found, policy_logprobs.dtype).reshape(policy_logprobs.shape[:-1])}


def overlong_penalty(lengths: Array, limit: int, buffer: int) -> Answer:
    """Its reward function soft_overlong."""
    if buffer >= limit:
        raise NotImplementedError("ms-swift asks for a buffer below the limit")
    function = SoftOverlong(Names(soft_max_length=limit, soft_cache_length=buffer))
    return {"penalty": np.array(function(None, response_token_ids=[[3] * length for length in lengths.tolist()]))}


def selective_log_softmax(logits: Array, ids: Array, temperature: float, *, entropy: bool) -> Answer:
    """Log-probs and entropies, as its GRPO trainer takes them from a model's logits."""
    logprobs, entropies = _scores(tensor(logits), ids, temperature, entropy=entropy)
    return {"logprobs": logprobs.numpy(), "entropy": entropies.numpy()} if entropy else {"logprobs": logprobs.numpy()}


def selective_log_softmax_backward(
    logits: Array, ids: Array, grad_logprobs: Array, temperature: float, *, grad_entropy: Array | None
) -> Answer:
    """Autograd's gradient through the same method."""
    leaf = tensor(logits).requires_grad_()
    found = _scores(leaf, ids, temperature, entropy=grad_entropy is not None)
    pairs = [(a, tensor(b)) for a, b in zip(found, (grad_logprobs, grad_entropy), strict=True) if b is not None]
    gradient = torch.autograd.grad([a for a, _ in pairs], leaf, [b for _, b in pairs])
    return {"gradient": gradient[0].numpy()}


def _scores(logits: torch.Tensor, ids: Array, temperature: float, *, entropy: bool) -> tuple[torch.Tensor, Any]:
    """Score one row; its last position, which scores no token, and its first token, which none scores, are added."""
    flat = torch.nn.functional.pad(logits.reshape(1, -1, logits.shape[-1]), (0, 0, 0, 1))
    tokens = torch.nn.functional.pad(tensor(ids).long().reshape(1, -1), (1, 0))
    trainer = _grpo(1, {"temperature": temperature})
    batch = Names(logits_to_keep=tokens.shape[1] - 1)
    both = trainer._get_per_token_logps_and_entropies_single(
        lambda **_: Names(logits=flat), {"input_ids": tokens}, batch, compute_entropy=entropy
    )
    logprobs, entropies = (None if values is None else values.reshape(ids.shape) for values in both)
    assert logprobs is not None
    return logprobs, entropies


OPS: dict[str, Callable[..., dict[str, Any]]] = {
    function.__name__: function
    for function in (
        policy_loss,
        policy_loss_in_parts,
        group_advantages,
        importance_weights,
        preference_loss,
        full_kl,
        overlong_penalty,
        selective_log_softmax,
        selective_log_softmax_backward,
    )
}
