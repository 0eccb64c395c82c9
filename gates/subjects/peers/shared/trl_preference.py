# ruff: noqa: SLF001  the losses of trainers are private
"""The losses of TRL's DPO, CPO, ORPO and KTO trainers; log-probs are given by the model, for CPO and ORPO as logits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from peer_rows import only
from peer_torch import FakeModel, logits_that_hold, loss_and_gradient, tensor
from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer
from trl.experimental.cpo import CPOConfig, CPOTrainer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer
from trl.trainer.utils import FusedCausalLMOutput
from trl_made import made
from trl_names import FIXED

if TYPE_CHECKING:
    from collections.abc import Callable

    Array = np.ndarray[Any, Any]
    Answer = dict[str, Any]

LOSSES: dict[str, tuple[Any, ...]] = {"loss": ("dpo", "hinge", "ipo", "orpo", "simpo", "cpo"), "nll_tokens": ("all",)}


def _scorer(logprobs: torch.Tensor) -> Callable[..., FusedCausalLMOutput]:
    """Return a model with TRL's fused head for given (B, T) log-probs; 0 where the label is -100, as documented."""

    def model(*, labels: torch.Tensor, **_: Any) -> FusedCausalLMOutput:
        selected = logprobs.masked_fill(labels[:, 1:] == -100, 0.0)
        zeros = torch.zeros_like(selected)
        return FusedCausalLMOutput(
            log_probs=selected, entropy=zeros, mean_logits=zeros, is_top1=zeros.bool(), label_mask=labels[:, 1:] != -100
        )

    return model


def _inputs(mask: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return a batch whose token t + 1 is scored by log-prob t."""
    completion = torch.nn.functional.pad(mask.long(), (1, 0))
    ones = torch.ones_like(completion)
    return {"input_ids": ones, "attention_mask": ones, "completion_mask": completion}


def preference_loss(*, policy: Array, reference: Array | None, mask: Array, loss: str, **x: Any) -> Answer:
    """Losses of the DPO trainer, or without a reference of the CPO and ORPO trainers."""
    only("preference_loss", LOSSES, loss=loss)
    if loss == "orpo" and x.get("attention_mask") is None:
        raise NotImplementedError("the likelihood of TRL's ORPO is of prompt and completion")
    if x.get("lengths") == "sum":
        raise NotImplementedError("IPO of TRL's DPO and CPO trainers is of mean log-probs")
    order = np.r_[0 : len(policy) : 2, 1 : len(policy) : 2]  # all chosen, then all rejected
    masked = tensor(mask[order])
    if reference is None:
        if loss == "hinge":
            raise NotImplementedError("logits that hold log-probs round more than the gradient of CPO's hinge")
        return loss_and_gradient(lambda now: _reference_free(now[order], masked, loss, x), policy)
    if x.get("label_smoothing"):
        raise NotImplementedError("label_smoothing of TRL's DPO is that of Robust DPO and EXO (dpo_config.py:104)")
    config = DPOConfig(**FIXED, beta=x["beta"], loss_type=[{"dpo": "sigmoid"}.get(loss, loss)])
    trainer = made(
        DPOTrainer,
        config,
        loss_types=config.loss_type,
        loss_weights=[1.0],
        precompute_ref_logps=False,
        ref_model=_scorer(tensor(reference[order])),
        _total_train_tokens=0,
        _tp_size=1,
    )
    return loss_and_gradient(
        lambda now: trainer._compute_loss(_scorer(now[order]), _inputs(masked), return_outputs=False), policy
    )


def _reference_free(logprobs: torch.Tensor, mask: torch.Tensor, loss: str, x: dict[str, Any]) -> torch.Tensor:
    """Return the loss of the ORPO or CPO trainer on logits that hold the log-probs."""
    options = {"beta": x["beta"], "max_length": 64, "max_completion_length": None}
    counted = mask
    if loss == "orpo":
        if logprobs.dtype != torch.float32:
            raise NotImplementedError("TRL's odds_ratio_loss computes in float32 (orpo_trainer.py:691)")
        kind, config = ORPOTrainer, ORPOConfig(**FIXED, **options)
        counted = tensor(x["attention_mask"])[[*range(0, len(mask), 2), *range(1, len(mask), 2)]]
    else:
        name = loss if loss in ("hinge", "ipo", "simpo") else "sigmoid"
        options |= {
            "loss_type": name,
            "cpo_alpha": x.get("nll") or 0.0,
            "label_smoothing": x.get("label_smoothing") or 0.0,
        }
        kind, config = CPOTrainer, CPOConfig(**FIXED, **options, simpo_gamma=x.get("margin") or 0.0)
    trainer = made(kind, config, is_encoder_decoder=False, pad_token_id=0, padding_value=0)
    ids = torch.ones((len(mask), mask.shape[1] + 1), dtype=torch.long)
    logits = logits_that_hold(torch.nn.functional.pad(logprobs, (0, 1), value=-1.0), ids)
    labels = ids.masked_fill(~torch.nn.functional.pad(mask, (1, 0)), -100)
    attention = torch.nn.functional.pad(counted.long(), (1, 0), value=1)
    half = len(mask) // 2
    batch = {
        f"{side}_{name}": value[rows]
        for side, rows in (("chosen", slice(half)), ("rejected", slice(half, None)))
        for name, value in (("input_ids", ids), ("attention_mask", attention), ("labels", labels))
    }
    value: torch.Tensor = trainer.get_batch_loss_metrics(FakeModel(logits), batch)[0]
    return value


def kto_loss(*, policy: Array, reference: Array, mask: Array, desirable: Array, mismatched: Array, **x: Any) -> Answer:
    """Loss of the KTO trainer; the log-ratios of mismatched completions are given to it as log-probs."""
    weights = {name: x[name] for name in ("beta", "desirable_weight", "undesirable_weight")}
    ref_model, others = _scorer(tensor(reference)), tensor(mismatched)
    trainer = made(
        KTOTrainer,
        KTOConfig(**FIXED, **weights),
        calculate_KL=True,
        precompute_ref_logps=False,
        ref_model=ref_model,
        _compute_kl_logps=lambda model, _: torch.zeros_like(others) if model is ref_model else others,
        _total_train_tokens=0,
        _tp_size=1,
    )
    batch = {**_inputs(tensor(mask)), "label": tensor(desirable)}
    return loss_and_gradient(lambda now: trainer._compute_loss(_scorer(now), dict(batch), return_outputs=False), policy)
