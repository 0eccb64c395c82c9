"""The peer trl: losses, advantages, importance weights, log-probs, preference losses and packing of its own trainers.

Trainers are made without `__init__` (no model, no data set) and get the attributes that it copies from a real config.
Stubbed are the forward passes, which return the log-probs of a case, and generation. Nothing of a formula is repeated.
A mask that is no prefix of its row is passed as TRL's tool mask.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from functools import partial
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
    "clipped": (True, False),  # RLOO's ratio; epsilon=inf
    "dapo_denominator": ("global", "trl", None),
    "cispo_bound": ("absolute", None),
    "kl_estimator": ("k3", None),
    "kl_clamp": (None,),
    "parts": ("equal",),  # rows of a micro-batch: per_device_train_batch_size
}
DTYPE: dict[str, tuple[Any, ...]] = {"dtype": ("float32",)}  # of rewards and of the sampler's log-probs, whatever is given
EPS = (1e-4, float(np.float32(1e-4)), None)
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "policy_loss": LOSS,
    "policy_loss_in_parts": LOSS,
    "loss_with_options": {"parts": ("equal",), "nan_sampling": ("unrecorded",), **DTYPE},
    "loss_constants": {"algorithm": ALGORITHMS, **DTYPE},
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
    "importance_weights": {"level": ("token", "seq_sum"), "nan_sampling": ("unrecorded",), **DTYPE},
}
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
        "per_device_train_batch_size": x.get("generations", 2),
        "num_generations": x.get("generations", 2),
        "gradient_accumulation_steps": parts,
        "mask_truncated_completions": x.get("mask_truncated", False),
        **{to: x[key] for to, key in (("epsilon", "epsilon_low"), ("epsilon_high", "epsilon_high")) if x.get(key)},
    }
    if name == "rloo":
        given |= {"beta": x["beta"], "epsilon": x["epsilon_low"] or float("inf")}
        return RLOOTrainer, RLOOConfig(**FIXED, **given)
    given |= {
        "beta": x["beta"],
        "delta": x.get("delta"),
        "use_bias_correction_kl": x.get("kl_ratio") in LEVELS,
        "num_iterations": 2,  # old log-probs are computed
        "top_entropy_quantile": x.get("entropy_share", 1.0),
        "entropy_coef": x.get("entropy_bonus", 0.0),
        **_correction(x.get("correction"), x.get("correction_level"), x.get("correction_low"), x.get("correction_high")),
    }
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
MODES = {("tis", "token"): "token_truncate", ("mis", "token"): "token_mask"}
MODES |= {("tis", "seq_sum"): "sequence_truncate", ("mis", "seq_sum"): "sequence_mask"}


def _correction(kind: str | None, level: str | None, low: float | None, high: float | None) -> dict[str, Any]:
    """Return the config's fields of an off-policy correction."""
    if kind is None:
        return {}
    bounds = {"vllm_importance_sampling_clip_min": low, "vllm_importance_sampling_clip_max": high}
    return {"vllm_importance_sampling_mode": MODES[kind, str(level)], **bounds}


def _refuse(x: dict[str, Any]) -> None:
    """Refuse what the trainers have no setting for."""
    name = x["algorithm"]
    only("policy_loss", LOSS, **{k: x[k] for k in ("algorithm", "dapo_denominator", "cispo_bound", "kl_estimator") if k in x})
    absent("policy_loss", kl_clamp=x.get("kl_clamp"))
    level = "none" if name == "gmpo" else "sequence" if name in SEQUENCE else "token"
    if x["beta"] and x.get("kl_ratio") not in ("none", level):
        raise NotImplementedError(f"the KL of TRL's {name} is multiplied by the {level} ratio of its loss, or by none")
    if name in ("rloo", "gmpo") and (np.ndim(x["advantages"]) != 1 or x.get("weights") is not None):
        raise NotImplementedError(f"TRL's {name} takes one advantage per row, and no importance weights in the loss")


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
    answer = ([[1]] * len(completions), completions, tools, texts, sampling, {}, None, None)
    model = SimpleNamespace(training=True, is_gradient_checkpointing=False)
    logprobs = {id(model): x.get("old"), id(trainer): x.get("reference")}
    vars(trainer).update(
        model=model,
        ref_model=trainer,
        use_vllm=sampling is not None,
        _generate=lambda _: answer if isinstance(trainer, GRPOTrainer) else (answer[0], completions, texts),
        # The clone has no gradient, as a forward pass in the trainer's own torch.no_grad() has none.
        _get_per_token_logps_and_entropies=lambda one, *_, **__: (
            torch.zeros(()) if logprobs[id(one)] is None else tensor(logprobs[id(one)]).clone(),
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
    found, start = torch.zeros((), dtype=policy.dtype), 0
    for size in parts:
        rows = slice(start, start + size)
        part = {name: value[rows] if value.ndim else value for name, value in batch.items()}
        answer = (policy[rows], entropy[rows], None)
        trainer._get_per_token_logps_and_entropies = lambda *_, answer=answer, **__: answer
        # transformers.Trainer divides the losses of a trainer that does not scale them itself.
        found = found + trainer._compute_loss(None, part) / (len(parts) if isinstance(trainer, RLOOTrainer) else 1)
        start += size
    return found


def policy_loss(*, policy: Array, **x: Any) -> Answer:
    """Loss and gradient of one micro-batch; of several for bnpo, whose denominators are theirs."""
    rows = len(mask_of(policy, x["mask"], x["lengths"]))
    return policy_loss_in_parts(policy=policy, parts=x.get("micro_batches") or [rows], **x)


def policy_loss_in_parts(*, policy: Array, parts: list[int], **x: Any) -> Answer:
    """Sum of the losses of micro-batches and its gradient."""
    _refuse(x)
    kind, config = _settings(len(parts), x)
    mask = mask_of(policy, x["mask"], x["lengths"])
    if x.get("row_mask") is not None:
        mask = mask & np.asarray(x["row_mask"])[:, None]
    weights, tokens = x.get("weights"), mask.sum()
    if x.get("dapo_denominator") == "trl":
        tokens = x["tokens_in_step"]
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
    one, zeros = torch.ones((len(mask), 1), dtype=torch.long), torch.zeros_like(counted)
    return {"prompt_ids": one, "prompt_mask": one, "completion_ids": zeros, "completion_mask": counted}


def _step(leaves: dict[str, torch.Tensor], completions: list[list[int]], **x: Any) -> torch.Tensor:
    """Return the loss of scored completions: weights and masks are those that the trainer computes."""
    kind, config = _settings(len(x["parts"]), x)
    trainer = _trainer(kind, config)
    given = {**x, **leaves}
    sampling = x["sampling"] if x.get("correction") else None
    old = leaves["policy"] if x["old"] is None else given["old"]
    batch = _scored(trainer, completions, mask=x["mask"], sampling=sampling, old=old, reference=given["reference"])
    batch = {name: value for name, value in batch.items() if isinstance(value, torch.Tensor)}
    if x["old"] is None:
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
    """Gradients in all log-probs that the trainer gets; those of the sampler reach it as numbers."""
    _refuse(x)
    if x["correction"] and (x["old"] is None or x["algorithm"] in ("cispo", "gmpo")):
        raise NotImplementedError("TRL computes old log-probs wherever it corrects for those of a sampler")
    leaves = _leaves(x, "policy", "old", "reference")
    low, high = (3e-4, 4e-4) if x["algorithm"] == "gspo" else (0.2, 0.28)
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
    rows, leaves = len(lengths), _leaves(x, "policy")
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
    """RLOO from rewards on: the KL goes into them, then leave-one-out."""
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
    given = {"old": grid(old, where), "sampling": grid(sampling, where)}
    weights = _scored(trainer, _completions(where), mask=where, **given)["importance_sampling_ratio"].numpy()
    if x["level"] == "seq_sum":
        return {"weights": weights[:, 0]}
    return {"weights": ungrid(grid(weights[where], where), old, where)}  # those of tokens; its padding holds 1


OPS: dict[str, Callable[..., dict[str, Any]]] = {
    function.__name__: function
    for function in (
        policy_loss,
        policy_loss_in_parts,
        loss_with_options,
        loss_constants,
        loss_of_completions,
        rewarded_loss,
        group_advantages,
        normalise_then_sum,
        importance_weights,
    )
}
