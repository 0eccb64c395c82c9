"""The peer trl: losses, advantages, importance weights, log-probs, preference losses and packing of its own trainers.

Trainers are made without `__init__` (no model, no data set) and get the attributes that it copies from a real config.
Stubbed are the forward passes, which return the log-probs of a case, and generation. Nothing of a formula is repeated.
A mask that is no prefix of its row is passed as TRL's tool mask.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1", "TRANSFORMERS_VERBOSITY": "error"}
sys.path.append(str(Path(__file__).parent / "shared"))

import numpy as np
import torch
from accelerate import Accelerator  # type: ignore[import-not-found]  # only its own environment has it
from peer_rows import absent, grid, mask_of, only, ungrid
from peer_torch import loss_and_gradient, tensor
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer  # type: ignore[import-not-found]
from trl.experimental.gmpo import GMPOConfig, GMPOTrainer  # type: ignore[import-not-found]

if TYPE_CHECKING:
    from collections.abc import Callable

    Array = np.ndarray[Any, Any]
    Answer = dict[str, Any]

VERSIONS = {name: version(name) for name in ("trl", "transformers", "torch")}
ALGORITHMS = ("grpo", "dapo", "bnpo-trl", "dr_grpo", "gspo", "rloo", "cispo", "sapo", "gmpo", "luspo")
LOSSES = {"bnpo-trl": "bnpo", "gspo": "grpo"}  # TRL's loss_type where its name is another
SEQUENCE = ("gspo", "luspo")  # importance_sampling_level="sequence"
LOSS: dict[str, tuple[Any, ...]] = {
    "dtype": ("float32", "float64"),
    "algorithm": ALGORITHMS,
    "clipped": (True,),  # RLOO's ratio
    "dapo_denominator": ("global", "trl", None),
    "cispo_bound": ("absolute", None),
    "kl_estimator": ("k3", None),
    "kl_clamp": (None,),
    "parts": ("equal",),  # rows of a micro-batch: per_device_train_batch_size
}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {"policy_loss": LOSS, "policy_loss_in_parts": LOSS}
DEPARTURES_DOCUMENTED: dict[str, str] = {}
FIXED = {"output_dir": "unused", "use_cpu": True, "bf16": False, "report_to": [], "disable_tqdm": True}


def _trainer(kind: Any, config: Any, **attributes: Any) -> Any:
    """Return a trainer with the attributes that `__init__` copies from its config, and those given."""
    trainer = kind.__new__(kind)
    high = getattr(config, "epsilon_high", None)
    vars(trainer).update(
        vars(config),
        args=config,
        accelerator=Accelerator(cpu=True),  # after the config, which resets its shared state
        model=SimpleNamespace(training=True),
        epsilon_low=getattr(config, "epsilon", None),
        epsilon_high=getattr(config, "epsilon", None) if high is None else high,
        aux_loss_enabled=False,
        current_gradient_accumulation_steps=config.gradient_accumulation_steps,
        _entropy_bonus_enabled=getattr(config, "entropy_coef", 0.0) != 0.0,
        _metrics={"train": defaultdict(list)},
        _logs=defaultdict(list, rewards=defaultdict(list), extra=defaultdict(list)),
    )
    vars(trainer).update(attributes)
    return trainer


def _settings(parts: int, x: dict[str, Any]) -> Any:
    """Return the trainer class and the config of a case."""
    name = x["algorithm"]
    given: dict[str, Any] = {
        "per_device_train_batch_size": 2,
        "num_generations": 2,
        "gradient_accumulation_steps": parts,
        **{to: x[key] for to, key in (("epsilon", "epsilon_low"), ("epsilon_high", "epsilon_high")) if x.get(key)},
    }
    if name == "rloo":
        return RLOOTrainer, RLOOConfig(**FIXED, **given)
    given |= {"beta": x["beta"], "delta": x.get("delta"), "use_bias_correction_kl": x.get("kl_ratio") in LEVELS}
    if x.get("max_length"):
        given["max_completion_length"] = x["max_length"]
    for to, key in (("sapo_temperature_pos", "positive"), ("sapo_temperature_neg", "negative")):
        if x.get(f"sapo_temperature_{key}") is not None:
            given[to] = x[f"sapo_temperature_{key}"]
    if name == "gmpo":
        return GMPOTrainer, GMPOConfig(**FIXED, **given)
    level = "sequence" if name in SEQUENCE else "token"
    return GRPOTrainer, GRPOConfig(
        **FIXED, **given, loss_type=LOSSES.get(name, name), importance_sampling_level=level
    )


LEVELS = ("token", "sequence")


def _refuse(x: dict[str, Any]) -> None:
    """Refuse what the trainers have no setting for."""
    name = x["algorithm"]
    only("policy_loss", LOSS, **{k: x[k] for k in ("algorithm", "dapo_denominator", "cispo_bound", "kl_estimator") if k in x})
    absent("policy_loss", kl_clamp=x.get("kl_clamp"))
    level = "none" if name == "gmpo" else "sequence" if name in SEQUENCE else "token"
    if x["beta"] and x.get("kl_ratio") not in ("none", level):
        raise NotImplementedError(f"the KL of TRL's {name} is multiplied by the {level} ratio of its loss, or by none")
    if name == "rloo" and x["epsilon_low"] is None:
        raise NotImplementedError("TRL's RLOO always clips its ratio")
    if name in ("rloo", "gmpo") and (np.ndim(x["advantages"]) != 1 or x.get("weights") is not None):
        raise NotImplementedError(f"TRL's {name} takes one advantage per row, and no importance weights in the loss")


def policy_loss(*, policy: Array, **x: Any) -> Answer:
    """Loss and gradient of one micro-batch; of several for bnpo, whose denominators are theirs."""
    rows = len(mask_of(policy, x["mask"], x["lengths"]))
    return policy_loss_in_parts(policy=policy, parts=x.get("micro_batches") or [rows], **x)


def policy_loss_in_parts(*, policy: Array, parts: list[int], **x: Any) -> Answer:
    """Sum of `_compute_loss` over micro-batches, each scaled as the trainer scales it for gradient accumulation."""
    _refuse(x)
    kind, config = _settings(len(parts), x)
    mask = mask_of(policy, x["mask"], x["lengths"])
    if x.get("row_mask") is not None:
        mask = mask & np.asarray(x["row_mask"])[:, None]
    weights = x.get("weights")
    trainer = _trainer(kind, config, use_vllm=weights is not None)
    values = {
        "advantages": grid(x["advantages"], mask),
        "old_per_token_logps": grid(x["old"], mask),
        "ref_per_token_logps": grid(x["reference"], mask) if x["beta"] else None,
        "importance_sampling_ratio": weights[:, None] if np.ndim(weights) == 1 else grid(weights, mask),
    }
    batch = {name: tensor(value) for name, value in values.items() if value is not None}
    batch |= _ids(mask)
    tokens = x.get("tokens_in_step") if x.get("dapo_denominator") == "trl" else None

    def loss(logprobs: torch.Tensor) -> torch.Tensor:
        found, start = torch.zeros((), dtype=logprobs.dtype), 0
        for size in parts:
            rows = slice(start, start + size)
            part = {name: value[rows] for name, value in batch.items()}
            part["num_items_in_batch"] = torch.tensor(float(mask.sum() if tokens is None else tokens))
            now = logprobs[rows]
            trainer._get_per_token_logps_and_entropies = lambda *_, now=now, **__: (now, torch.zeros_like(now), None)
            if kind is RLOOTrainer:
                old = part.pop("old_per_token_logps", now.detach())
                part["old_logps"] = (old * part["completion_mask"]).sum(1)  # rloo_trainer.py:1608
            share = size / len(mask) if kind is RLOOTrainer else 1.0  # transformers.Trainer divides RLOO's
            found = found + trainer._compute_loss(None, part) * share
            start += size
        return found

    answer = loss_and_gradient(loss, grid(policy, mask))
    return {**answer, "gradient": ungrid(answer["gradient"], policy, mask)}


def _ids(mask: Array) -> dict[str, torch.Tensor]:
    """Return a prompt of one token, completions, and their mask."""
    counted = torch.from_numpy(mask.astype(np.int64))
    one, zeros = torch.ones((len(mask), 1), dtype=torch.long), torch.zeros_like(counted)
    return {"prompt_ids": one, "prompt_mask": one, "completion_ids": zeros, "completion_mask": counted}


OPS: dict[str, Callable[..., dict[str, Any]]] = {
    "policy_loss": policy_loss,
    "policy_loss_in_parts": policy_loss_in_parts,
}
