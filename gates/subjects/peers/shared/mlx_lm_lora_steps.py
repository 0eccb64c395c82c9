"""Updates of mlx-lm-lora's own trainers on given rows: its defaults, the case's model and data; the completions are not sampled.

`train_grpo` has no place for completions, so the function that samples them is replaced.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.optimizers as optim
import mlx_lm
import mlx_lm_lora_online
import numpy as np
from mlx_lm_lora.train import CONFIG_DEFAULTS
from mlx_lm_lora.trainer import cpo_trainer, dpo_trainer, grpo_trainer, online_dpo_trainer, orpo_trainer, sft_trainer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TRAINERS = ("grpo", "dpo", "orpo", "cpo", "online_dpo", "sft")
LOSS_TYPES = {"grpo": "grpo", "dr_grpo": "dr_grpo"}
ARGUMENTS = {
    "grpo": grpo_trainer.GRPOTrainingArgs,
    "dpo": dpo_trainer.DPOTrainingArgs,
    "orpo": orpo_trainer.ORPOTrainingArgs,
    "cpo": cpo_trainer.CPOTrainingArgs,
    "online_dpo": online_dpo_trainer.OnlineDPOTrainingArgs,
    "sft": sft_trainer.SFTTrainingArgs,
}
FIXED: dict[str, dict[str, Any]] = {
    "grpo": {"scale": "group"},
    "dpo": {"loss": "dpo"},
    "online_dpo": {"loss": "dpo"},
}  # asked, and the only choice
PREFERENCES: dict[str, dict[str, Any]] = {  # what its trainers of pairs compute; its CPO has no likelihood
    "dpo": {"loss": "dpo", "label_smoothing": 0.0},
    "online_dpo": {"loss": "dpo", "label_smoothing": 0.0},
    "orpo": {"loss": "orpo"},
    "cpo": {"loss": "cpo", "nll": 0.0},
}
OPTIONS = {"epsilon_low": "epsilon", "epsilon_high": "epsilon_high", "beta": "beta"}


class Losses:
    """The callback that its trainers report to."""

    def __init__(self) -> None:
        self.reports: list[Mapping[str, Any]] = []

    def on_train_loss_report(self, report: Mapping[str, Any]) -> None:
        """Keep a report."""
        self.reports.append(report)

    def on_val_loss_report(self, report: Mapping[str, Any]) -> None:
        """Keep nothing: there is no validation."""


def _asked(trainer: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a user who asks for these settings.

    Raises:
        NotImplementedError: it has no such option.
    """
    fixed = FIXED.get(trainer, {})
    chosen: dict[str, Any] = {}
    for name, value in settings.items():
        if name == "learning_rate" or (name in fixed and fixed[name] == value):
            continue
        if name == "algorithm":
            chosen["grpo_loss_type"] = LOSS_TYPES[value]
        elif name in OPTIONS:
            chosen[OPTIONS[name]] = value
        else:
            raise NotImplementedError(f"mlx-lm-lora has no {name} {value!r}")
    return chosen


def _in_force(trainer: str, args: Any, rate: float) -> dict[str, Any]:
    """Return what is in force, in the judge's words."""
    words = {"optimizer": CONFIG_DEFAULTS["optimizer"], "learning_rate": rate, "weight_decay": 0.0}
    if trainer == "sft":
        return words | {"aggregation": "token-mean"}
    if trainer in PREFERENCES:
        return words | {"beta": args.beta, **PREFERENCES[trainer]}
    names = {value: name for name, value in LOSS_TYPES.items()}
    words |= {
        "algorithm": names[args.grpo_loss_type],
        "ratio": "on-policy",
        "epsilon_low": args.epsilon,
        "epsilon_high": args.epsilon if args.epsilon_high is None else args.epsilon_high,
        "beta": args.beta,
        "scale": "group",
        "ddof": 0,
        "eps": 1e-4,
        "eps_mode": "add",
        "baseline": "mean",
    }
    if args.beta:
        words |= {"kl_estimator": "k3", "kl_ratio": "none"}
    if args.grpo_loss_type == "dr_grpo":
        words["max_length"] = args.max_completion_length
    return words


def _arguments(trainer: str, settings: Mapping[str, Any], **more: Any) -> Any:
    return ARGUMENTS[trainer](**_asked(trainer, settings), **more)


def _rate(settings: Mapping[str, Any]) -> float:
    return float(settings.get("learning_rate", CONFIG_DEFAULTS["learning_rate"]))


def resolve_config(*, trainer: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what arguments with these settings have in force."""
    return {"settings": json.dumps(_in_force(trainer, _arguments(trainer, settings), _rate(settings)))}


def training_step(  # noqa: PLR0913  the inputs of the op
    *,
    model: Mapping[str, Any],
    trainer: str,
    settings: Mapping[str, Any],
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    rewards: np.ndarray[Any, Any] | None,
    group_size: int,
    updates: int,
    micro_batch_rows: int,
    folder: str,
) -> dict[str, Any]:
    """Train on these rows, with everything that is not asked at its default."""
    if not mx.metal.is_available():  # its DPO asks Metal how much memory it has
        mx.device_info = lambda *_: {"max_recommended_working_set_size": 1 << 30}
        mx.set_wired_limit = lambda limit: limit
    parts = len(completions) // micro_batch_rows
    policy, tokenizer = mlx_lm.load(model["path"])
    reports = Losses()
    args = _arguments(
        trainer,
        settings,
        batch_size=micro_batch_rows // group_size,
        gradient_accumulation_steps=parts,
        iters=updates * parts,
        steps_per_report=parts,
        steps_per_eval=10**6,
        adapter_file=str(Path(folder) / "adapters.safetensors"),
        **(
            {"group_size": group_size, "max_completion_length": max(map(len, completions))} if trainer == "grpo" else {}
        ),
    )
    optimizer = optim.Adam(_rate(settings))
    given = _Given(prompts, completions, rewards, group_size)
    if trainer == "grpo":
        rows = [(list(prompt), [0], str(index), "", None) for index, prompt in enumerate(prompts)]
        grpo_trainer.generate_grpo = given.generate
        more = {"args": args, "training_callback": reports, "reward_funcs": [given.reward]}
        grpo_trainer.train_grpo(policy, mlx_lm.load(model["path"])[0], tokenizer, optimizer, rows, None, **more)
    elif trainer == "dpo":
        other = mlx_lm.load(model["path"])[0]
        dpo_trainer.train_dpo(policy, other, optimizer, given.pairs(), None, args=args, training_callback=reports)
    elif trainer == "online_dpo":
        other = mlx_lm.load(model["path"])[0]
        mlx_lm_lora_online.train(policy, other, optimizer, given, rewards, args=args, training_callback=reports)
    elif trainer == "sft":
        sft_trainer.train_sft(policy, optimizer, given.supervised(), None, args=args, training_callback=reports)
    else:
        train = orpo_trainer.train_orpo if trainer == "orpo" else cpo_trainer.train_cpo
        train(policy, optimizer, given.pairs(), None, args=args, training_callback=reports)
    names = {"loss": "train_loss", "learning_rate": "learning_rate"}
    metrics = {word: [float(report[name]) for report in reports.reports] for word, name in names.items()}
    words = _in_force(trainer, args, _rate(settings))
    return {"settings": json.dumps(words), "metrics": json.dumps(metrics)}


def _pair(prompt: Sequence[int], chosen: Sequence[int], rejected: Sequence[int]) -> dict[str, Any]:
    """Return a pair as its own data set does."""
    length = len(prompt)
    ids = {"chosen": [*prompt, *chosen], "rejected": [*prompt, *rejected]}
    return {**ids, "chosen_prompt_length": length, "rejected_prompt_length": length}


class _Given:
    """The rows of a case in place of a sampler, and their rewards."""

    def __init__(self, prompts: Any, completions: Any, rewards: Any, group_size: int) -> None:
        self.prompts = [list(prompt) for prompt in prompts]
        self.completions, self.rewards, self.size = completions, rewards, group_size
        self.places: list[int] = []

    def pairs(self) -> list[dict[str, Any]]:
        """Return the pairs of the prompts."""
        return [_pair(prompt, *self.completions[2 * k : 2 * k + 2]) for k, prompt in enumerate(self.prompts)]

    def supervised(self) -> list[tuple[list[int], int]]:
        """Return the rows with the lengths of their prompts, as its data sets do where prompts are masked."""
        rows = zip(self.prompts, self.completions, strict=True)
        return [([*prompt, *completion], len(prompt)) for prompt, completion in rows]

    def generate(self, *, prompt_tokens: Any, **_: Any) -> Any:
        """Return completions, texts, and the prompt of each: what its `generate_grpo` returns."""
        indices, self.places = [], []
        for index, prompt in enumerate(prompt_tokens):
            tokens: Any = prompt.tolist() if isinstance(prompt, mx.array) else list(prompt)
            first = self.prompts.index(tokens) * self.size
            self.places += range(first, first + self.size)
            indices += [index] * self.size
        ids = [mx.array(self.completions[row], dtype=mx.int32) for row in self.places]
        return ids, [str(row) for row in self.places], indices

    def reward(self, *, completions: list[str], **_: Any) -> list[float]:
        """Return the rewards of rows, whose texts are their numbers."""
        return [float(self.rewards[int(text)]) for text in completions]


OPS = {"training_step": training_step, "resolve_config": resolve_config}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    name: {"trainer": TRAINERS, "row_lengths": ("ragged", "equal")} for name in OPS
}
