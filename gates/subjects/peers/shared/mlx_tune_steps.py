"""Updates of mlx-tune's own trainers on given rows: LoRA as its README has it, its defaults, the case's model and data.

Texts are ids in words, and the tokenizer that a trainer is given reads them. GRPO has no place for completions, so the
function that samples them is replaced.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx
from mlx_tune import FastLanguageModel, rl_trainers, sft_trainer  # type: ignore[import-not-found,unused-ignore]
from mlx_tune.chat_templates import train_on_responses_only  # type: ignore[import-not-found,unused-ignore]
from peer_words import Words, text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

KINDS = {
    "grpo": (rl_trainers.GRPOConfig, rl_trainers.GRPOTrainer),
    "dpo": (rl_trainers.DPOConfig, rl_trainers.DPOTrainer),
    "orpo": (rl_trainers.ORPOConfig, rl_trainers.ORPOTrainer),
    "simpo": (rl_trainers.SimPOConfig, rl_trainers.SimPOTrainer),
    "kto": (rl_trainers.KTOConfig, rl_trainers.KTOTrainer),
    "sft": (sft_trainer.SFTConfig, sft_trainer.SFTTrainer),
}
LOSSES = {"dpo": "sigmoid"}  # words of the judge: loss_type
OPTIONS = {  # words of the judge that a config has
    "learning_rate": ("grpo", "dpo", "orpo", "simpo", "kto", "sft"),
    "beta": ("grpo", "dpo", "orpo", "simpo", "kto"),
    "desirable_weight": ("kto",),
    "undesirable_weight": ("kto",),
    "weight_decay": ("sft",),
}
ON_POLICY = {  # of its GRPO, whose comment is "-advantage * log_prob, averaged over generations"
    "ratio": "on-policy",
    "aggregation": "row-sum",
    "epsilon_low": 0.2,
    "epsilon_high": 0.2,
    "scale": "group",
    "ddof": 0,
    "eps": 1e-8,
    "eps_mode": "add",
    "baseline": "mean",
}


def _config(trainer: str, settings: Mapping[str, Any], folder: str, **more: Any) -> Any:
    """Return the config of a user who asks for these settings.

    Raises:
        NotImplementedError: it has no such option.
    """
    asked = dict(settings)
    chosen: dict[str, Any] = {}
    if trainer == "dpo" and "loss" in asked:
        chosen["loss_type"] = LOSSES[asked.pop("loss")]
    if trainer == "simpo" and "margin" in asked:  # losses.py:567: beta * (r_chosen - r_rejected - gamma)
        beta = asked.get("beta", KINDS[trainer][0]().beta)
        chosen["gamma"] = asked.pop("margin") / beta
    for name, value in asked.items():
        if trainer not in OPTIONS.get(name, ()):
            raise NotImplementedError(f"mlx-tune's {trainer} has no {name} {value!r}")
        chosen[name] = value
    return KINDS[trainer][0](output_dir=folder, **chosen, **more)


def _in_force(trainer: str, args: Any) -> dict[str, Any]:
    """Return what a config has in force, in the judge's words. AdamW decays by 0.01, MLX's default."""
    words: dict[str, Any] = {
        "optimizer": "adamw",
        "learning_rate": args.learning_rate,
        "weight_decay": getattr(args, "weight_decay", 0.01),
    }
    if trainer == "sft":
        return words | {"aggregation": "token-mean"}
    words["beta"] = args.beta
    if trainer == "grpo":
        words |= {"algorithm": args.loss_type, **ON_POLICY}
        return words | ({"kl_estimator": "k3", "kl_ratio": "none"} if args.beta else {})
    if trainer == "kto":
        return words | {name: getattr(args, name) for name in ("desirable_weight", "undesirable_weight")}
    own: dict[str, dict[str, Any]] = {
        "dpo": {"loss": "dpo", "label_smoothing": getattr(args, "label_smoothing", 0.0)},
        "orpo": {"loss": "orpo"},
        "simpo": {"loss": "simpo", "margin": args.beta * getattr(args, "gamma", 0.0)},
    }
    return words | own[trainer]


def resolve_config(*, trainer: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a config with these settings has in force."""
    return {"settings": json.dumps(_in_force(trainer, _config(trainer, settings, "unused")))}


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
    mx.set_default_device(mx.cpu)
    pairs = 2 if trainer in {"dpo", "orpo", "simpo"} else 1
    sampled = {"num_generations": group_size, "max_completion_length": max(map(len, completions))}
    args = _config(
        trainer,
        settings,
        str(Path(folder) / "run"),
        max_steps=updates,
        logging_steps=1,
        **(sampled if trainer == "grpo" else {"per_device_train_batch_size": micro_batch_rows // pairs}),
    )
    policy, tokenizer = FastLanguageModel.from_pretrained(model["path"])
    policy = FastLanguageModel.get_peft_model(policy, r=16)
    words = Words(tokenizer.pad_token_id)
    rows = _rows(trainer, prompts, completions, rewards, group_size)
    more: dict[str, Any] = {}
    if trainer == "grpo":
        given = iter([(row, reward) for _ in range(updates) for row, reward in zip(completions, rewards, strict=True)])
        scores = iter([float(reward) for _ in range(updates) for reward in rewards])
        rl_trainers.generate_with_log_probs = lambda _m, _t, prompt, **_: (
            mx.array(prompt.tolist() + list(next(given)[0])),
            None,
        )
        more["reward_fn"] = lambda *_: next(scores)
    made = KINDS[trainer][1](model=policy, train_dataset=rows, tokenizer=words, args=args, **more)
    if trainer == "sft":
        train_on_responses_only(made)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        made.train()
    losses = [float(value) for value in re.findall(r"Loss: (-?[\d.]+)", printed.getvalue())]
    metrics = {"loss": losses[:updates], "digits": {"loss": 4}}
    return {
        "settings": json.dumps(_in_force(trainer, made.args if trainer == "sft" else made.config)),
        "metrics": json.dumps(metrics),
    }


def _rows(trainer: str, prompts: Any, completions: Any, rewards: Any, group_size: int) -> list[dict[str, Any]]:
    """Return the rows as a trainer takes them."""
    names = [{"prompt": text(prompt)} for prompt in prompts]
    if trainer == "grpo":
        return names
    if trainer == "kto":
        labels = [bool(reward > 0) for reward in rewards]
        given = zip(names, completions, labels, strict=True)
        return [{**name, "completion": text(row), "label": label} for name, row, label in given]
    if trainer == "sft":
        return [{**name, "completion": text(row)} for name, row in zip(names, completions, strict=True)]
    sides = zip(names, completions[0::group_size], completions[1::group_size], strict=True)
    return [{**name, "chosen": text(one), "rejected": text(other)} for name, one, other in sides]


OPS = {"training_step": training_step, "resolve_config": resolve_config}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    name: {"trainer": tuple(KINDS), "clip": ("none",), "prompts_per_step": ("one",)} for name in OPS
}
