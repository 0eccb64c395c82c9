# ruff: noqa: SLF001  the losses of trainers are private
"""The peer trl: losses, advantages, importance weights, log-probs, preference losses and packing of its own trainers.

Trainers are made without `__init__` (no model, no data set) and get the attributes that it copies from a real config.
Generation and forward passes are stubs that return the log-probs of a case, for CPO and ORPO as logits. No formula is
repeated. A mask that is not a prefix of its row is passed as TRL's tool mask.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from functools import partial
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1", "TRANSFORMERS_VERBOSITY": "error"}
sys.path.append(str(Path(__file__).parent / "shared"))

import numpy as np
import torch
import trl_steps
import trl_timed
from accelerate import Accelerator
from datasets import Dataset, disable_progress_bars
from peer_rows import absent, grid, mask_of, only, ungrid
from peer_torch import FakeModel, logits_that_hold, loss_and_gradient, tensor
from trl import (
    DPOConfig,
    DPOTrainer,
    GRPOConfig,
    GRPOTrainer,
    KTOConfig,
    KTOTrainer,
    RLOOConfig,
    RLOOTrainer,
    pack_dataset,
)
from trl.experimental.cpo import CPOConfig, CPOTrainer
from trl.experimental.gkd import GKDTrainer
from trl.experimental.gmpo import GMPOConfig, GMPOTrainer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer
from trl.rewards import get_soft_overlong_punishment
from trl.trainer import utils as trainer_utils
from trl.trainer.utils import FusedCausalLMOutput

if TYPE_CHECKING:
    from collections.abc import Callable

    Array = np.ndarray[Any, Any]
    Answer = dict[str, Any]

VERSIONS = {name: version(name) for name in ("trl", "transformers", "torch")}
ALGORITHMS = ("grpo", "dapo", "bnpo-trl", "dr_grpo", "gspo", "rloo", "cispo", "sapo", "gmpo", "luspo", "vespo")
LOSSES = {"bnpo-trl": "bnpo", "gspo": "grpo"}  # TRL's loss_type if its name differs
SEQUENCE = ("gspo", "luspo")  # importance_sampling_level="sequence"
LEVELS = ("token", "sequence")  # of the ratio that multiplies the KL
FIELDS = {  # fields of the configs by inputs of a case
    "epsilon": "epsilon_low",
    "epsilon_high": "epsilon_high",
    "max_completion_length": "max_length",
    "steps_per_generation": "steps",
    "sapo_temperature_pos": "sapo_temperature_positive",
    "sapo_temperature_neg": "sapo_temperature_negative",
    "vespo_k_pos": "vespo_k_positive",
    "vespo_lambda_pos": "vespo_lambda_positive",
    "vespo_k_neg": "vespo_k_negative",
    "vespo_lambda_neg": "vespo_lambda_negative",
}
MODES = {  # vllm_importance_sampling_mode
    ("tis", "token"): "token_truncate",
    ("mis", "token"): "token_mask",
    ("tis", "seq_sum"): "sequence_truncate",
    ("mis", "seq_sum"): "sequence_mask",
}
LOSS: dict[str, tuple[Any, ...]] = {
    "dtype": ("float32", "float64"),
    "algorithm": ALGORITHMS,
    "clipped": (True, False),  # RLOO's ratio; epsilon=inf
    "dapo_denominator": ("global", "trl", None),
    "cispo_bound": ("absolute", None),
    "kl_estimator": ("k3", None),
    "kl_clamp": (None,),
    "parts": ("equal",),  # equal micro-batches: per_device_train_batch_size
}
# Rewards and the sampler's log-probs become float32.
WHOLE_STEP = tuple(name for name in ALGORITHMS if name != "bnpo-trl")  # of which the parts add up
DTYPE: dict[str, tuple[Any, ...]] = {"dtype": ("float32",)}
EPS = (1e-4, float(np.float32(1e-4)), None)
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    **trl_steps.CONVENTIONS,
    "policy_loss": LOSS,
    "policy_loss_in_parts": {**LOSS, **DTYPE, "algorithm": WHOLE_STEP, "clipped": (False,)},
    "loss_with_options": {"parts": ("equal",), "nan_sampling": ("unrecorded",), **DTYPE},
    "loss_constants": {"algorithm": ("grpo", "dapo", "gspo", "cispo", "sapo", "gmpo", "luspo"), **DTYPE},
    "loss_of_completions": {"algorithm": tuple(name for name in ALGORITHMS if name != "cispo"), **DTYPE},  # its bound
    "group_advantages": {
        "scale": ("group", "batch", "none"),
        "ddof": (1, None),
        "eps": EPS,
        "eps_mode": ("add", None),
        "baseline": ("mean", "leave-one-out"),
        "nan_rewards": ("unscored",),
        **DTYPE,
    },
    "normalise_then_sum": {
        "group_ddof": (1,),
        "group_eps": EPS,
        "batch_ddof": (1,),
        "batch_eps": EPS,
        "nan_rewards": ("unscored",),
        **DTYPE,
    },
    "preference_loss": {
        "loss": ("dpo", "hinge", "ipo", "orpo", "simpo", "cpo"),
        "nll_tokens": ("all",),
        "dtype": ("float32", "float64"),
    },
    "full_kl": {"dtype": ("float32", "float64")},
    "kto_loss": {"dtype": ("float32", "float64")},
    "selective_log_softmax": {"dtype": ("float32", "float64"), "ids_per_position": ("one", "several")},
    "selective_log_softmax_backward": {"dtype": ("float32", "float64"), "ids_per_position": ("one", "several")},
    "loss_from_logits": {
        "algorithm": tuple(name for name in WHOLE_STEP if name != "rloo")
    },  # by GRPOTrainer, one batch
    "pack_sequences": {
        "strategy": ("best-fit-decreasing", "wrapped"),
        "over_long": ("error", "truncate", "split"),  # error: cases without longer sequences
    },
    "importance_weights": {"level": ("token", "seq_sum"), "nan_sampling": ("unrecorded",), **DTYPE},
}
DEPARTURES_DOCUMENTED: dict[str, str] = {}
LOGS = ("prompt", "completion", "advantages", "images", "rewards", "extra")
disable_progress_bars()
FIXED = {"output_dir": "unused", "use_cpu": True, "bf16": False, "report_to": [], "disable_tqdm": True}


def _trainer(kind: Any, config: Any, **attributes: Any) -> Any:
    """Return a trainer with the attributes that `__init__` copies from its config, and the given ones."""
    trainer = kind.__new__(kind)
    high = getattr(config, "epsilon_high", None)
    vars(trainer).update(
        vars(config),
        args=config,
        accelerator=Accelerator(cpu=True),  # after the config, which resets its shared state
        model=SimpleNamespace(training=True, is_gradient_checkpointing=False, _modules={}),
        epsilon_low=getattr(config, "epsilon", None),
        epsilon_high=getattr(config, "epsilon", None) if high is None else high,
        aux_loss_enabled=False,
        current_gradient_accumulation_steps=config.gradient_accumulation_steps,
        _entropy_bonus_enabled=getattr(config, "entropy_coef", 0.0) != 0.0,
        _metrics={"train": defaultdict(list)},
        _logs={name: defaultdict(list) if name in ("rewards", "extra") else [] for name in LOGS},
    )
    vars(trainer).update(attributes)
    return trainer


def _settings(parts: int, x: dict[str, Any]) -> Any:
    """Return the trainer class and the config of a case."""
    name = x["algorithm"]
    options: dict[str, Any] = {
        "per_device_train_batch_size": x.get("generations", 2),
        "num_generations": x.get("generations", 2),
        "gradient_accumulation_steps": parts,
        "mask_truncated_completions": x.get("mask_truncated", False),
    }
    for to, key in FIELDS.items():
        if x.get(key) is not None:
            options[to] = x[key]
    if name == "rloo":
        options |= {"beta": x["beta"], "epsilon": options.get("epsilon", float("inf"))}
        return RLOOTrainer, RLOOConfig(**FIXED, **options)
    options |= {
        "beta": x["beta"],
        "delta": x.get("delta"),
        "use_bias_correction_kl": x.get("kl_ratio") in LEVELS,
        "num_iterations": 2,  # old log-probs are computed
        "top_entropy_quantile": x.get("entropy_share", 1.0),
        "entropy_coef": x.get("entropy_bonus", 0.0),
        **_correction(
            x.get("correction"), x.get("correction_level"), x.get("correction_low"), x.get("correction_high")
        ),
    }
    if name == "gmpo":
        return GMPOTrainer, GMPOConfig(**FIXED, **options)
    level = "sequence" if name in SEQUENCE else "token"
    return GRPOTrainer, GRPOConfig(
        **FIXED, **options, loss_type=LOSSES.get(name, name), importance_sampling_level=level
    )


def _correction(kind: str | None, level: str | None, low: float | None, high: float | None) -> dict[str, Any]:
    """Return the config's fields of an off-policy correction."""
    if kind is None:
        return {}
    bounds = {"vllm_importance_sampling_clip_min": low, "vllm_importance_sampling_clip_max": high}
    return {"vllm_importance_sampling_mode": MODES[kind, str(level)], **bounds}


def _refuse(x: dict[str, Any]) -> None:
    """Refuse inputs for which the trainers have no setting."""
    name = x["algorithm"]
    only(
        "policy_loss",
        LOSS,
        **{k: x[k] for k in ("algorithm", "dapo_denominator", "cispo_bound", "kl_estimator") if k in x},
    )
    absent("policy_loss", kl_clamp=x.get("kl_clamp"), row_mask=x.get("row_mask"))
    level = "none" if name == "gmpo" else "sequence" if name in SEQUENCE else "token"
    if x["beta"] and x.get("kl_ratio") not in ("none", level):
        raise NotImplementedError(f"the KL of TRL's {name} is multiplied by the {level} ratio of its loss, or by none")
    if name in ("rloo", "gmpo") and (np.ndim(x["advantages"]) != 1 or x.get("weights") is not None):
        raise NotImplementedError(f"TRL's {name} takes one advantage per row, and no importance weights in the loss")
    if name == "vespo" and x.get("weights") is not None:
        raise NotImplementedError(
            "TRL's VESPO takes importance weights into its ratio, and not as a factor of the loss"
        )


def _scored(trainer: Any, completions: list[list[int]], **x: Any) -> dict[str, Any]:
    """Run `_generate_and_score_completions` on given completions, log-probs and rewards (B, F); EOS is token 2, padding 0."""
    rewards = x.get("rewards")
    columns = np.zeros((len(completions), 1)) if rewards is None else rewards
    functions = [_reward(column) for column in columns.T]
    sampling, counted = x.get("sampling"), x.get("mask")
    if sampling is not None:
        sampling = [[None if np.isnan(value) else value for value in row] for row in sampling.tolist()]
    tools = None if counted is None else counted.astype(int).tolist()
    texts = [""] * len(completions)
    answer: Any = ([[1]] * len(completions), completions, tools, texts, sampling, {}, None, None)
    model = SimpleNamespace(training=True, is_gradient_checkpointing=False, _modules={})
    logprobs = {id(model): x.get("old"), id(trainer): x.get("reference")}
    vars(trainer).update(
        model=model,
        ref_model=trainer,
        use_vllm=sampling is not None,
        _generate=lambda _: answer if isinstance(trainer, GRPOTrainer) else (answer[0], completions, texts),
        # The clone has no gradient, as a forward pass in the trainer's own torch.no_grad() has none.
        _get_per_token_logps_and_entropies=lambda scored, *_, **__: (
            torch.zeros(()) if logprobs[id(scored)] is None else tensor(logprobs[id(scored)]).clone(),
            None,
            None,
        ),
        reward_funcs=functions,
        reward_func_names=[f"reward{index}" for index in range(len(functions))],
        reward_processing_classes=[None] * len(functions),
        reward_weights=torch.ones(len(functions)) if x.get("weights") is None else tensor(x["weights"]),
        _tokenizer=SimpleNamespace(pad_token_id=0),
        eos_token_ids=[2],
        environment_factories=None,
        environments=None,
        tools=None,
        state=SimpleNamespace(global_step=0),
        _pending_extra_logs={},
        _pending_metrics={},
    )
    return dict(trainer._generate_and_score_completions([{"prompt": ""} for _ in completions]))


def _reward(column: Array) -> Callable[..., list[float | None]]:
    return lambda **_: [None if np.isnan(value) else value for value in column.tolist()]


def _completions(mask: Array) -> list[list[int]]:
    return [[3] * mask.shape[1]] * len(mask)


def _run(trainer: Any, batch: dict[str, torch.Tensor], parts: list[int], policy: torch.Tensor, entropy: Any) -> Any:
    """Sum `_compute_loss` over micro-batches, each scaled for gradient accumulation as trainer and Trainer do."""
    total, start = torch.zeros((), dtype=policy.dtype), 0
    for size in parts:
        rows = slice(start, start + size)
        part = {name: value[rows] if value.ndim else value for name, value in batch.items()}
        answer = (policy[rows], entropy[rows], None)
        trainer._get_per_token_logps_and_entropies = lambda *_, answer=answer, **__: answer
        # transformers.Trainer divides the losses of a trainer that does not scale them itself.
        total = total + trainer._compute_loss(None, part) / (len(parts) if isinstance(trainer, RLOOTrainer) else 1)
        start += size
    return total


def policy_loss(*, policy: Array, **x: Any) -> Answer:
    """Loss and gradient of one micro-batch, or of several for bnpo, which averages over each."""
    rows = len(mask_of(policy, x["mask"], x["lengths"]))
    return policy_loss_in_parts(policy=policy, parts=x.get("micro_batches") or [rows], **x)


def policy_loss_in_parts(*, policy: Array, parts: list[int], **x: Any) -> Answer:
    """Sum of the losses of micro-batches and its gradient."""
    _refuse(x)
    if x["algorithm"] == "sapo" and policy.dtype == np.float64:
        raise NotImplementedError("the temperatures of TRL's SAPO are float32 (grpo_trainer.py:3122)")
    share = 2 if x.get("dapo_denominator") == "trl" else 1  # optimizer steps of a generation batch
    mask = mask_of(policy, x["mask"], x["lengths"])
    if x["algorithm"] == "rloo":  # its old log-probs are scored by group; the whole batch is one
        if len(mask) < 2:
            raise NotImplementedError("TRL's configs refuse groups of one")
        x["generations"] = len(mask)
    kind, config = _settings(len(parts), {**x, "steps": share * len(parts)})
    weights: Any = x.get("weights")
    tokens = share * x["tokens_in_step"] if share > 1 else mask.sum()
    values = {
        "advantages": grid(x["advantages"], mask),
        "old_per_token_logps": grid(x["old"], mask),
        "ref_per_token_logps": grid(x["reference"], mask) if x["beta"] else None,
        "importance_sampling_ratio": weights[:, None] if np.ndim(weights) == 1 else grid(weights, mask),
        "num_items_in_batch": np.array(float(tokens)),
    }
    batch = {name: tensor(value) for name, value in values.items() if value is not None} | _ids(mask)
    wide = grid(policy, mask)
    trainer = _trainer(kind, config, use_vllm=weights is not None)
    if kind is RLOOTrainer:
        lengths = mask.sum(axis=1)
        if not np.array_equal(mask, np.arange(mask.shape[1]) < lengths[:, None]):
            raise NotImplementedError("TRL's RLOO has no tool mask: completions have no holes")
        old = wide if x["old"] is None else grid(x["old"], mask)
        scored = _scored(trainer, [[3] * length for length in lengths], old=old[:, : max(lengths)])
        batch["old_logps"] = scored["old_logps"]
    answer = loss_and_gradient(lambda now: _run(trainer, batch, parts, now, torch.zeros_like(now)), wide)
    return {**answer, "gradient": ungrid(answer["gradient"], policy, mask)}


def _ids(mask: Array) -> dict[str, torch.Tensor]:
    """Return prompts of one token, completions, and their mask."""
    counted = torch.from_numpy(mask.astype(np.int64))
    ones, zeros = torch.ones((len(mask), 1), dtype=torch.long), torch.zeros_like(counted)
    return {"prompt_ids": ones, "prompt_mask": ones, "completion_ids": zeros, "completion_mask": counted}


def _step(leaves: dict[str, torch.Tensor], completions: list[list[int]], **x: Any) -> torch.Tensor:
    """Return the loss of scored completions, with the weights and masks that the trainer computes."""
    kind, config = _settings(len(x["parts"]), x)
    trainer = _trainer(kind, config)
    inputs = {**x, **leaves}
    sampling = x["sampling"] if x.get("correction") else None
    old = leaves["policy"] if x["old"] is None else inputs["old"]
    batch = _scored(trainer, completions, mask=x["mask"], sampling=sampling, old=old, reference=inputs["reference"])
    batch = {name: value for name, value in batch.items() if isinstance(value, torch.Tensor)}
    if x["old"] is None and sampling is None:  # with weights the trainer always has them
        batch.pop("old_per_token_logps")
    batch["advantages"] = tensor(x["advantages"])
    entropy = leaves.get("entropy", torch.zeros_like(leaves["policy"]))
    loss = _run(trainer, batch, x["parts"], leaves["policy"], entropy)
    loss.backward()
    return loss.detach()


def _gradient(leaf: torch.Tensor) -> Array:
    return (torch.zeros_like(leaf) if leaf.grad is None else leaf.grad).numpy()


def _leaves(x: dict[str, Any], *names: str) -> dict[str, torch.Tensor]:
    return {name: tensor(x[name]).requires_grad_() for name in names if x[name] is not None}


def loss_with_options(**x: Any) -> Answer:
    """Importance weights, the top-entropy mask and the entropy bonus, from `_generate_and_score_completions` on."""
    if len(set(x["parts"])) > 1:
        raise NotImplementedError("all micro-batches of TRL's trainer have as many rows")
    low, high = {"grpo": (0.2, 0.2), "dapo": (0.2, 0.28), "gspo": (3e-4, 4e-4)}[x["algorithm"]]
    leaves = _leaves(x, "policy", "entropy")
    loss = _step(leaves, _completions(x["mask"]), **{**x, "epsilon_low": low, "epsilon_high": high})
    return {
        "loss": float(loss),
        "gradient": _gradient(leaves["policy"]),
        "entropy_gradient": _gradient(leaves["entropy"]),
    }


def loss_constants(**x: Any) -> Answer:
    """Gradients by all log-probs that the trainer receives as tensors."""
    _refuse(x)
    leaves = _leaves(x, "policy", "old", "reference")
    low, high = {"gspo": (3e-4, 4e-4), "cispo": (0.2, 5.0)}.get(x["algorithm"], (0.2, 0.28))
    more = {"epsilon_low": low, "epsilon_high": high, "parts": [len(x["mask"])]}
    loss = _step(leaves, _completions(x["mask"]), **{**x, **more})
    answer = {f"{name}_gradient": _gradient(leaf) for name, leaf in leaves.items() if name != "policy"}
    nothing = np.zeros(x["policy"].shape, np.float32)
    return {
        "loss": float(loss),
        "gradient": _gradient(leaves["policy"]),
        **{f"{name}_gradient": nothing for name in ("old", "sampling")},
        **answer,
    }


def loss_of_completions(*, lengths: Array, ended: Array, micro_batch_rows: int, **x: Any) -> Answer:
    """Completions with and without an EOS, masked by the trainer, then `_compute_loss` on micro-batches."""
    _refuse(x)
    rows = len(lengths)
    if rows % micro_batch_rows:
        raise NotImplementedError("all micro-batches of TRL's trainer have as many rows")
    width = max(lengths)
    ids = [[3] * (length - 1) + [2 if end else 3] for length, end in zip(lengths, ended, strict=True)]
    parts = [micro_batch_rows] * (rows // micro_batch_rows)
    cut = {name: x[name][:, :width] for name in ("policy", "old", "reference") if x[name] is not None}
    leaves = _leaves(cut, "policy")
    loss = _step(leaves, ids, **{**x, "reference": None, **cut, "mask": None, "parts": parts})
    gradient = np.zeros(x["policy"].shape, np.float32)
    gradient[:, :width] = _gradient(leaves["policy"])
    return {"loss": float(loss), "gradient": gradient}


def rewarded_loss(*, policy: Array, mask: Array, rewards: Array, group_size: int, beta: float, **x: Any) -> Answer:
    """RLOO from the rewards: the KL is subtracted from them, then leave-one-out."""
    lengths = mask.sum(axis=1)
    x |= {"algorithm": "rloo", "generations": group_size, "beta": beta, "epsilon_low": None}
    kind, config = _settings(1, x)
    trainer = _trainer(kind, config)
    logprobs = {name: x[name][:, : max(lengths)] for name in ("old", "reference")}
    batch = _scored(trainer, [[3] * length for length in lengths], rewards=rewards[:, None], **logprobs)
    batch = {name: value for name, value in batch.items() if isinstance(value, torch.Tensor)}

    def loss(now: torch.Tensor) -> torch.Tensor:
        return _run(trainer, batch, [len(mask)], now[:, : max(lengths)], torch.zeros_like(now)[:, : max(lengths)])

    return {**loss_and_gradient(loss, policy), "advantages": batch["advantages"].numpy()}


def _advantages(kind: Any, config: Any, group_size: int, rewards: Array, weights: Array | None = None) -> Array:
    trainer = _trainer(kind, config(**FIXED, per_device_train_batch_size=group_size, num_generations=group_size))
    advantages = _scored(trainer, [[3]] * len(rewards), rewards=rewards, weights=weights)["advantages"]
    return np.asarray(advantages.numpy())


def group_advantages(rewards: Array, group_size: int, **x: Any) -> Answer:
    """Advantages from `_generate_and_score_completions` of the GRPO trainer; leave-one-out of the RLOO trainer."""
    only("group_advantages", CONVENTIONS["group_advantages"], dtype=str(rewards.dtype), **x)
    if group_size < 2:
        raise NotImplementedError("TRL's configs refuse groups of one")
    if x["baseline"] == "leave-one-out":
        if x["scale"] != "none":
            raise NotImplementedError("TRL's RLOO divides by no deviation of rewards")
        return {"advantages": _advantages(RLOOTrainer, RLOOConfig, group_size, rewards[:, None])}
    config = partial(GRPOConfig, scale_rewards=x["scale"])
    return {"advantages": _advantages(GRPOTrainer, config, group_size, rewards[:, None])}


def normalise_then_sum(rewards: Array, weights: Array, group_size: int, **x: Any) -> Answer:
    """Advantages with multi_objective_aggregation="normalize_then_sum"."""
    only("normalise_then_sum", CONVENTIONS["normalise_then_sum"], dtype=str(rewards.dtype), **x)
    config = partial(GRPOConfig, multi_objective_aggregation="normalize_then_sum")
    return {"advantages": _advantages(GRPOTrainer, config, group_size, rewards, weights)}


def importance_weights(*, old: Array, sampling: Array, mask: Array | None, lengths: Array | None, **x: Any) -> Answer:
    """Importance-sampling ratios of `_generate_and_score_completions`."""
    only("importance_weights", CONVENTIONS["importance_weights"], dtype=str(old.dtype))
    where = mask_of(old, mask, lengths)
    fields = _correction(x["correction"], x["level"], x["c_min"], x["c_max"])
    trainer = _trainer(GRPOTrainer, GRPOConfig(**FIXED, per_device_train_batch_size=2, num_generations=2, **fields))
    logprobs = {"old": grid(old, where), "sampling": grid(sampling, where)}
    weights = _scored(trainer, _completions(where), mask=where, **logprobs)["importance_sampling_ratio"].numpy()
    if x["level"] == "seq_sum":
        return {"weights": weights[:, 0]}
    return {"weights": ungrid(grid(weights[where], where), old, where)}  # of tokens only, since padding holds 1


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
    known = CONVENTIONS["preference_loss"]
    only("preference_loss", known, loss=loss)
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
    trainer = _trainer(
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
    trainer = _trainer(kind, config, is_encoder_decoder=False, pad_token_id=0, padding_value=0)
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
    trainer = _trainer(
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


def full_kl(policy_logprobs: Array, reference_logprobs: Array) -> Answer:
    """`generalized_jsd_loss` of the GKD trainer with beta=1, KL(student ‖ teacher), position by position."""
    width = policy_logprobs.shape[-1]
    pairs = zip(tensor(policy_logprobs).reshape(-1, width), tensor(reference_logprobs).reshape(-1, width), strict=True)
    divergences = [GKDTrainer.generalized_jsd_loss(*pair, beta=1, reduction="sum").numpy() for pair in pairs]
    return {"kl": np.array(divergences, policy_logprobs.dtype).reshape(policy_logprobs.shape[:-1])}


def overlong_penalty(*, lengths: Array, limit: int, buffer: int) -> Answer:
    """The reward function of `get_soft_overlong_punishment`."""
    punish = get_soft_overlong_punishment(limit, buffer)
    return {"penalty": np.array(punish(completion_ids=[[3] * length for length in lengths.tolist()]))}


def selective_log_softmax(*, logits: Array, ids: Array, temperature: float, entropy: bool, **x: Any) -> Answer:
    """`selective_log_softmax`, with the entropy in one pass where a position has one id."""
    absent("selective_log_softmax", ignore_index=x.get("ignore_index"))
    scores, index = tensor(logits), tensor(ids)
    if not entropy:
        return {"logprobs": trainer_utils.selective_log_softmax(scores, index, temperature=temperature).numpy()}
    if index.ndim == scores.ndim:
        raise NotImplementedError("TRL gives the entropy with one id for each position")
    both = trainer_utils.selective_log_softmax_and_entropy(scores, index, temperature=temperature)
    return {"logprobs": both[0].numpy(), "entropy": both[1].numpy()}


def selective_log_softmax_backward(
    *, logits: Array, ids: Array, grad_logprobs: Array, temperature: float, grad_entropy: Array | None, **x: Any
) -> Answer:
    """Autograd's gradient of the same functions."""
    absent("selective_log_softmax", ignore_index=x.get("ignore_index"))
    scores, index = tensor(logits).requires_grad_(), tensor(ids)
    if grad_entropy is None:
        trainer_utils.selective_log_softmax(scores, index, temperature=temperature).backward(tensor(grad_logprobs))
    elif index.ndim == scores.ndim:
        raise NotImplementedError("TRL gives the entropy with one id for each position")
    else:
        both = trainer_utils.selective_log_softmax_and_entropy(scores, index, temperature=temperature)
        torch.autograd.backward(both, (tensor(grad_logprobs), tensor(grad_entropy)))
    return {"gradient": scores.grad.numpy()}


class _Backbone(torch.nn.Module):
    """A causal model whose last hidden states are the wanted logits, and whose head is the identity."""

    def __init__(self, vocabulary: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.head = torch.nn.Linear(vocabulary, vocabulary, bias=False, dtype=dtype)
        self.head.weight = torch.nn.Parameter(torch.eye(vocabulary, dtype=dtype), requires_grad=False)
        self.config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(model_type="fake"))
        self.hidden: Any = None

    def forward(self, *_: Any, **__: Any) -> None:
        """Have a signature; `add_fused_lm_head` replaces it."""

    def base_model(self, **_: Any) -> Any:
        return SimpleNamespace(last_hidden_state=self.hidden)

    def get_output_embeddings(self) -> Any:
        return self.head


def loss_from_logits(
    *, logits: Array, ids: Array, prompt_lengths: Array, lengths: Array, temperature: float, **x: Any
) -> Answer:
    """From logits on: TRL's fused head, `_get_per_token_logps_and_entropies` and `_compute_loss`."""
    _refuse(x)
    prompt, width = int(max(prompt_lengths)), int(max(lengths))
    kind, config = _settings(1, x)
    mask = np.arange(width) < lengths[:, None]
    batch = _ids(mask)
    places = np.clip(np.arange(prompt + width) - prompt + prompt_lengths[:, None], 0, ids.shape[1] - 1)
    moved = tensor(np.take_along_axis(ids, places, 1)).long()  # prompts padded on the left, as TRL's are
    batch |= {
        "prompt_ids": moved[:, :prompt],
        "completion_ids": moved[:, prompt:],
        "prompt_mask": torch.from_numpy((np.arange(prompt) >= prompt - prompt_lengths[:, None]).astype(np.int64)),
        "num_items_in_batch": torch.tensor(float(mask.sum())),
        "advantages": tensor(x["advantages"]),
        **{to: tensor(x[key][:, :width]) for to, key in NAMES.items() if x[key] is not None},
    }
    model = _Backbone(logits.shape[-1], tensor(logits).dtype)
    trainer_utils.add_fused_lm_head(model, temperature=temperature, outputs=("log_probs", "entropy"))
    trainer = _trainer(kind, config)
    kept: list[torch.Tensor] = []

    def loss(now: torch.Tensor) -> torch.Tensor:
        model.hidden = now.gather(1, torch.from_numpy(places)[..., None].expand(-1, -1, now.shape[-1]))
        score = kind._get_per_token_logps_and_entropies
        trainer._get_per_token_logps_and_entropies = lambda *arguments, **more: _keep(
            kept, score(trainer, *arguments, **more)
        )
        value: torch.Tensor = trainer._compute_loss(model, batch)
        return value

    answer = loss_and_gradient(loss, logits)
    return {**answer, "logprobs": kept[0].detach().numpy()}


NAMES = {"old_per_token_logps": "old", "ref_per_token_logps": "reference"}


def _keep(kept: list[torch.Tensor], scored: Any) -> Any:
    kept.append(scored[0])
    return scored


def pack_sequences(lengths: Array, max_length: int, strategy: str, over_long: str, **x: Any) -> Answer:
    """`pack_dataset` in one batch; each token encodes its sequence and its position."""
    only("pack_sequences", CONVENTIONS["pack_sequences"], strategy=strategy, over_long=over_long, **x)
    if over_long == "error" and (lengths > max_length).any():
        raise NotImplementedError("TRL cuts or splits a sequence that is longer than a bin")
    if not lengths.size or not lengths.all():
        raise NotImplementedError("TRL leaves empty sequences out")
    name = "wrapped" if strategy == "wrapped" else "bfd_split" if over_long == "split" else "bfd"
    rows = {
        "index": [[index] * length for index, length in enumerate(lengths.tolist())],
        "place": [list(range(length)) for length in lengths.tolist()],
    }
    packed = pack_dataset(Dataset.from_dict(rows), max_length, name, map_kwargs={"batch_size": None}).to_dict()
    pieces: list[tuple[int, int, int]] = []
    offsets = [0]
    for row, (held, places) in enumerate(zip(packed["index"], packed["place"], strict=True)):
        if name == "wrapped":  # it does not mark the start of a sequence
            starts = [at for at in range(len(held)) if at == 0 or held[at] != held[at - 1]]
        else:
            starts = np.cumsum([0, *packed["seq_lengths"][row]])[:-1].tolist()
        pieces += [(held[at], places[at], end - at) for at, end in pairwise([*starts, len(held)])]
        offsets.append(len(pieces))
    table = np.array(pieces, np.int64).T
    answer = {
        "indices": table[0],
        "offsets": np.array(offsets),
        "efficiency": float(table[2].sum() / (len(packed["index"]) * max_length)),
    }
    return answer | {"starts": table[1], "sizes": table[2]} if over_long == "split" else answer


OPS: dict[str, Callable[..., dict[str, Any]]] = {
    function.__name__: function
    for function in (
        policy_loss,
        policy_loss_in_parts,
        loss_with_options,
        loss_constants,
        loss_of_completions,
        loss_from_logits,
        rewarded_loss,
        full_kl,
        overlong_penalty,
        group_advantages,
        normalise_then_sum,
        importance_weights,
        preference_loss,
        kto_loss,
        selective_log_softmax,
        selective_log_softmax_backward,
        pack_sequences,
        trl_steps.training_step,
        trl_steps.resolve_config,
    )
}


def _trainer_of_step(x: dict[str, Any]) -> Any:
    """Return the trainer of a step in one micro-batch."""
    return _trainer(*_settings(1, {**x, "steps": 1}))


TIMED: dict[str, Callable[..., Any]] = {
    "group_advantages": trl_timed.group_advantages,
    "policy_loss": partial(trl_timed.policy_loss, _trainer_of_step),
    "selective_log_softmax": trl_timed.selective_log_softmax,
    "pack_sequences": trl_timed.pack_sequences,
}
