# ruff: noqa: SLF001  what samples and what tokenizes in trainers is private
"""Updates of TRL's own trainers on given rows: model, data and lengths are the case's, and the completions are not sampled.

GRPO takes them by its documented `rollout_func`, SFT as rows of ids. RLOO and DPO take texts, so RLOO's sampling and the
tokenization of both are replaced.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import (
    DPOConfig,
    DPOTrainer,
    GRPOConfig,
    GRPOTrainer,
    RLOOConfig,
    RLOOTrainer,
    SFTConfig,
    SFTTrainer,
)
from trl.experimental.cpo import CPOConfig, CPOTrainer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

PREFERENCE = {"orpo": (ORPOConfig, ORPOTrainer), "cpo": (CPOConfig, CPOTrainer)}  # experimental in TRL
KINDS = {
    "grpo": (GRPOConfig, GRPOTrainer),
    "rloo": (RLOOConfig, RLOOTrainer),
    "dpo": (DPOConfig, DPOTrainer),
    **PREFERENCE,
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
}
METRICS = {  # words of the judge: names in TRL's log
    "loss": "loss",
    "gradient_norm": "grad_norm",
    "learning_rate": "learning_rate",
    "reward": "reward",
    "length": "completions/mean_length",
}


def config(trainer: str, settings: Mapping[str, Any], folder: str, **more: Any) -> Any:
    """Return the config of a user who asks for these settings."""
    asked = dict(settings)
    chosen: dict[str, Any] = {}
    if trainer == "rloo" and "kl_in_reward" in asked:
        chosen["beta"] = asked.pop("kl_in_reward")
    algorithm = asked.pop("algorithm", None)
    if trainer == "grpo" and algorithm is not None:
        chosen["loss_type"] = LOSS_TYPES[algorithm]
    if trainer == "dpo" and "loss" in asked:
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
    without_rewards = {"sft": _supervised, "dpo": _dpo, "orpo": _orpo, "cpo": _cpo}
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
    pairs = 2 if trainer == "dpo" or trainer in PREFERENCE else 1
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

    rows = _Rows(prompts, completions, rewards, group_size)
    more: dict[str, Any] = {"reward_funcs": rows.reward} if trainer in {"grpo", "rloo"} else {}
    if trainer == "grpo":
        more["rollout_func"] = lambda names, _: {**rows.rollout(names), "logprobs": None}
    kind = _Tokenized if trainer == "dpo" else KINDS[trainer][1]
    if trainer in PREFERENCE:
        kind = type(kind.__name__, (kind,), {"tokenize_row": rows.tokenized})
    made = kind(model=policy, args=args, train_dataset=rows.data(trainer), processing_class=tokenizer, **more)
    if trainer == "rloo":
        _give(made, rows)
    made.train()
    logs = [entry for entry in made.state.log_history if "loss" in entry]
    metrics: dict[str, Any] = {word: [entry[name] for entry in logs if name in entry] for word, name in METRICS.items()}
    metrics["digits"] = {"loss": 4}  # transformers rounds it
    return {"settings": json.dumps(in_force(trainer, made.args)), "metrics": json.dumps(metrics)}


class _Rows:
    """The rows of a case. A prompt's text is its number, and each time that it is asked for, its next completion is given."""

    def __init__(self, prompts: Any, completions: Any, rewards: Any, group_size: int) -> None:
        self.prompts, self.completions, self.rewards, self.size = prompts, completions, rewards, group_size

    def places(self, names: Sequence[str]) -> list[int]:
        """Return the row of each prompt's next occurrence."""
        seen: Counter[str] = Counter()
        places = []
        for name in names:
            places.append(int(name) * self.size + seen[name])
            seen[name] += 1
        return places

    def reward(self, prompts: list[str], **_: Any) -> list[float]:
        """Return the rewards of rows: a reward function of TRL."""
        return [float(self.rewards[row]) for row in self.places(prompts)]

    def rollout(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the ids of prompts and completions."""
        return {
            "prompt_ids": [list(self.prompts[int(name)]) for name in names],
            "completion_ids": [list(self.completions[row]) for row in self.places(names)],
        }

    def data(self, trainer: str) -> Dataset:
        """Return the rows as a trainer takes them."""
        prompts = [list(prompt) for prompt in self.prompts]
        if trainer == "dpo":
            chosen, rejected = self.completions[0::2], self.completions[1::2]
            return Dataset.from_dict({"prompt_ids": prompts, "chosen_ids": chosen, "rejected_ids": rejected})
        if trainer == "sft":
            rows = list(zip(prompts, self.completions, strict=True))
            labels = [[-100] * len(prompt) + list(completion) for prompt, completion in rows]  # as it documents for ids
            return Dataset.from_dict({"input_ids": [[*a, *b] for a, b in rows], "labels": labels})
        names = [str(index) for index in range(len(prompts))]
        return Dataset.from_dict(
            dict.fromkeys(("prompt", "chosen", "rejected"), names) if trainer in PREFERENCE else {"prompt": names}
        )

    def tokenized(self, feature: Mapping[str, str], **_: Any) -> dict[str, Any]:
        """Return the ids of a pair, whose texts are its number, in place of what ORPO and CPO make of texts."""
        index = int(feature["prompt"])
        prompt, made = list(self.prompts[index]), dict[str, Any]()
        for name, row in (("chosen", 2 * index), ("rejected", 2 * index + 1)):
            ids = [*prompt, *self.completions[row]]
            labels = [-100] * len(prompt) + ids[len(prompt) :]
            made |= {f"{name}_input_ids": ids, f"{name}_attention_mask": [1] * len(ids), f"{name}_labels": labels}
        return made | {"prompt_input_ids": prompt, "prompt_attention_mask": [1] * len(prompt)}


class _Tokenized(DPOTrainer):
    """DPO on rows of ids: what it makes of texts is left out."""

    def _prepare_dataset(self, dataset: Dataset, *_: Any, **__: Any) -> Dataset:
        return dataset


def _give(trainer: Any, rows: _Rows) -> None:
    """Give RLOO the rows in place of what it samples."""
    whole = trainer._generate

    def generate(names: list[str]) -> Any:
        _, ids, texts = whole(names)
        return rows.rollout(names)["prompt_ids"], ids, texts

    trainer._tokenize_prompts = lambda names: (list(names), None, {})
    trainer._generate_single_turn = lambda names, *_: rows.rollout(names)["completion_ids"]
    trainer._generate = generate


OPS = {"training_step": training_step, "resolve_config": resolve_config}
CONVENTIONS = {name: {"trainer": tuple(KINDS)} for name in OPS}
