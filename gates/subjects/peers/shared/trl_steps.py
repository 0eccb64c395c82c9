"""Updates of TRL's own trainers on given rows: model, data and lengths are the case's, and the completions are not sampled.

GRPO takes them by its documented `rollout_func`, SFT as rows of ids. The others take texts, so the sampling of RLOO and Online
DPO and the tokenization of all of them are replaced (trl_given.py).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import trl_given
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import (
    DPOConfig,
    DPOTrainer,
    GRPOConfig,
    GRPOTrainer,
    KTOConfig,
    KTOTrainer,
    RLOOConfig,
    RLOOTrainer,
    SFTConfig,
    SFTTrainer,
)
from trl.experimental.cpo import CPOConfig, CPOTrainer
from trl.experimental.online_dpo import OnlineDPOConfig, OnlineDPOTrainer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

PREFERENCE = {  # experimental in TRL
    "orpo": (ORPOConfig, ORPOTrainer),
    "cpo": (CPOConfig, CPOTrainer),
    "simpo": (CPOConfig, CPOTrainer),
}
SIMPO = {"loss_type": "simpo", "cpo_alpha": 0.0}  # without the likelihood, as its guide says
KINDS = {
    "grpo": (GRPOConfig, GRPOTrainer),
    "rloo": (RLOOConfig, RLOOTrainer),
    "dpo": (DPOConfig, DPOTrainer),
    **PREFERENCE,
    "kto": (KTOConfig, KTOTrainer),
    "online_dpo": (OnlineDPOConfig, OnlineDPOTrainer),
    "sft": (SFTConfig, SFTTrainer),
}
PREFERENCES = {"dpo": "sigmoid", "hinge": "hinge", "ipo": "ipo"}  # words of the judge: loss_type
LOSS_TYPES = {"grpo": "grpo", "dapo": "dapo", "dr_grpo": "dr_grpo", "bnpo-trl": "bnpo"}
OPTIONS = {  # words of the judge that a config has under another name
    "epsilon_low": "epsilon",
    "epsilon_high": "epsilon_high",
    "delta": "delta",
    "beta": "beta",
    "scale": "scale_rewards",
    "learning_rate": "learning_rate",
    "weight_decay": "weight_decay",
    "gradient_clip": "max_grad_norm",
    "temperature": "temperature",
    "label_smoothing": "label_smoothing",
    "desirable_weight": "desirable_weight",
    "undesirable_weight": "undesirable_weight",
    "margin": "simpo_gamma",
}
METRICS = {  # words of the judge: names in TRL's log
    "loss": "loss",
    "gradient_norm": "grad_norm",
    "learning_rate": "learning_rate",
    "reward": "reward",
    "length": "completions/mean_length",
    "reference_point": "kl",
}


def config(trainer: str, settings: Mapping[str, Any], folder: str, **more: Any) -> Any:
    """Return the config of a user who asks for these settings."""
    asked = dict(settings)
    chosen: dict[str, Any] = dict(SIMPO) if trainer == "simpo" else {}
    if trainer == "rloo" and "kl_in_reward" in asked:
        chosen["beta"] = asked.pop("kl_in_reward")
    algorithm = asked.pop("algorithm", None)
    if trainer == "grpo" and algorithm is not None:
        chosen["loss_type"] = LOSS_TYPES[algorithm]
    if trainer in {"dpo", "online_dpo"} and "loss" in asked:
        chosen["loss_type"] = PREFERENCES[asked.pop("loss")]
    chosen |= {OPTIONS[word]: value for word, value in asked.items()}
    plain = {"output_dir": folder, "report_to": [], "use_cpu": True, "bf16": False, "save_strategy": "no"}
    return KINDS[trainer][0](**plain, **chosen, **more)


def in_force(trainer: str, args: Any) -> dict[str, Any]:
    """Return what a config has in force, in the judge's words."""
    words: dict[str, Any] = {
        "learning_rate": args.learning_rate,
        "weight_decay": args.weight_decay,
        "gradient_clip": args.max_grad_norm or None,
    }
    without_rewards = {
        "sft": _supervised,
        "dpo": _dpo,
        "orpo": _orpo,
        "cpo": _cpo,
        "simpo": _simpo,
        "kto": _kto,
        "online_dpo": _online_dpo,
    }
    if trainer in without_rewards:
        return words | without_rewards[trainer](args)
    words |= {
        "epsilon_low": args.epsilon,
        "epsilon_high": args.epsilon if args.epsilon_high is None else args.epsilon_high,
        "temperature": args.temperature,
    }
    if trainer == "rloo":
        if args.normalize_advantages:
            raise NotImplementedError("RLOO with advantages that are normalised has no word here")
        own = {
            "algorithm": "rloo",
            "kl_in_reward": args.beta,
            "beta": 0.0,
            "scale": "none",
            "baseline": "leave-one-out",
        }
        return words | own
    names = {value: name for name, value in LOSS_TYPES.items()}
    level = "sequence" if args.importance_sampling_level == "sequence" else "token"
    scale = {True: "group", False: "none"}.get(args.scale_rewards, args.scale_rewards)
    words |= {
        "algorithm": names[args.loss_type],
        "delta": args.delta,
        "beta": args.beta,
        "scale": scale,
        "baseline": "mean",
    }
    if args.beta:
        words |= {"kl_estimator": "k3", "kl_ratio": level if args.use_bias_correction_kl else "none"}
    if scale != "none":
        words |= {"ddof": 1, "eps": 1e-4, "eps_mode": "add"}
    if args.loss_type == "dapo":
        words["dapo_denominator"] = "trl"
    if args.loss_type == "dr_grpo":
        words["max_length"] = args.max_completion_length
    return words


def _supervised(args: Any) -> dict[str, Any]:
    if args.loss_type != "nll":
        raise NotImplementedError(f"SFT's loss_type {args.loss_type!r} has no word here")
    return {"aggregation": "token-mean"}


def _dpo(args: Any) -> dict[str, Any]:
    names = {value: name for name, value in PREFERENCES.items()}
    (loss,) = args.loss_type
    return {"loss": names[loss], "beta": args.beta, "label_smoothing": args.label_smoothing}


def _orpo(args: Any) -> dict[str, Any]:
    return {"loss": "orpo", "beta": args.beta, "nll_tokens": "all"}


def _cpo(args: Any) -> dict[str, Any]:
    if args.loss_type != "sigmoid" or args.label_smoothing or args.alpha:
        raise NotImplementedError("CPO with another loss, with label smoothing or as AlphaPO has no word here")
    return {"loss": "cpo", "beta": args.beta, "nll": args.cpo_alpha}


def _simpo(args: Any) -> dict[str, Any]:
    if args.loss_type != "simpo" or args.cpo_alpha:
        raise NotImplementedError("SimPO with a likelihood has no word here")
    return {"loss": "simpo", "beta": args.beta, "margin": args.simpo_gamma}


def _kto(args: Any) -> dict[str, Any]:
    if args.loss_type != "kto":
        raise NotImplementedError(f"KTO's loss_type {args.loss_type!r} has no word here")
    return {name: getattr(args, name) for name in ("beta", "desirable_weight", "undesirable_weight")}


def _online_dpo(args: Any) -> dict[str, Any]:
    names = {value: name for name, value in PREFERENCES.items()}
    return {"loss": names[args.loss_type], "beta": args.beta, "label_smoothing": 0.0}


def resolve_config(*, trainer: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a config with these settings has in force."""
    return {"settings": json.dumps(in_force(trainer, config(trainer, settings, "unused")))}


def training_step(  # noqa: PLR0913  the inputs of the op
    *,
    model: Mapping[str, Any],
    trainer: str,
    settings: Mapping[str, Any],
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    rewards: np.ndarray[Any, Any],
    group_size: int,
    updates: int,
    micro_batch_rows: int,
    folder: str,
) -> dict[str, Any]:
    """Train on these rows, with everything that is not asked at its default."""
    os.chdir(folder)
    pairs = 2 if trainer in {"dpo", "online_dpo", *PREFERENCE} else 1
    sampled = {
        "num_iterations": updates,
        "num_generations": group_size,
        "max_completion_length": max(map(len, completions)),
    }
    args = config(
        trainer,
        settings,
        str(Path(folder) / "run"),
        max_steps=updates,
        per_device_train_batch_size=micro_batch_rows // pairs,
        gradient_accumulation_steps=len(completions) // micro_batch_rows,
        logging_steps=1,
        **(sampled if trainer in {"grpo", "rloo"} else {}),
    )
    tokenizer = AutoTokenizer.from_pretrained(model["path"])
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    policy = AutoModelForCausalLM.from_pretrained(model["path"], dtype=torch.float32)

    rows = trl_given.Rows(prompts, completions, rewards, group_size)
    more: dict[str, Any] = {"reward_funcs": rows.reward} if trainer in {"grpo", "rloo", "online_dpo"} else {}
    if trainer == "grpo":
        more["rollout_func"] = lambda names, _: {**rows.rollout(names), "logprobs": None}
    kind = trl_given.kind(trainer, KINDS[trainer][1], rows)
    made = kind(model=policy, args=args, train_dataset=rows.data(trainer), processing_class=tokenizer, **more)
    if trainer == "rloo":
        trl_given.give(made, rows)
    made.train()
    logs = [entry for entry in made.state.log_history if "loss" in entry]
    metrics: dict[str, Any] = {word: [entry[name] for entry in logs if name in entry] for word, name in METRICS.items()}
    metrics["digits"] = {"loss": 4}  # transformers rounds it
    return {"settings": json.dumps(in_force(trainer, made.args)), "metrics": json.dumps(metrics)}


OPS = {"training_step": training_step, "resolve_config": resolve_config}
CONVENTIONS = {name: {"trainer": tuple(KINDS)} for name in OPS}
