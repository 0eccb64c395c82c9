"""The trainer's own updates on given rows: everything is `gates trainer train`'s but the rollout, which the case replaces."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from gates_reference.trainer.algorithms import protocol
from gates_reference.trainer.config import algorithm, read
from gates_reference.trainer.data.prompts import Prompt
from gates_reference.trainer.engine.rollout import Generation
from gates_reference.trainer.loop import run as loop_run
from gates_reference.trainer.metrics import numbers

Array = np.ndarray[Any, Any]
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    name: {"trainer": ("grpo",)} for name in ("training_step", "resolve_config")
}
NAMES = {  # words of the judge: those of [algorithm.settings]
    "epsilon_low": "epsilon_low",
    "epsilon_high": "epsilon_high",
    "delta": "delta",
    "kl_ratio": "kl_ratio",
    "beta": "beta",
    "scale": "advantage_scale",
    "ddof": "advantage_ddof",
    "eps": "advantage_epsilon",
    "eps_mode": "advantage_epsilon_mode",
    "baseline": "advantage_baseline",
}
OF_OPTIMIZER = {"optimizer": "name", "learning_rate": "learning_rate", "weight_decay": "weight_decay"}
TOKEN_MEANS = ("global", "group", "trl")


def _config(trainer: str, settings: Mapping[str, Any], folder: str, **sections: Mapping[str, Any]) -> read.Config:
    """Return the configuration of a user who asks for these settings."""
    name = settings.get("algorithm", trainer)
    chosen = {NAMES[word]: value for word, value in settings.items() if word in NAMES}
    if "kl_in_reward" in settings:
        chosen["beta"] = settings["kl_in_reward"]
    optimizer = {OF_OPTIMIZER[word]: value for word, value in settings.items() if word in OF_OPTIMIZER}
    if "gradient_clip" in settings:
        optimizer["max_gradient_norm"] = settings["gradient_clip"]
    tables = {
        "model": {"tiny": {}},
        "algorithm": {"name": name, "settings": chosen},
        "optimizer": optimizer,
        "rewards": {"functions": [{"name": "accuracy"}]},
        "output": {"folder": folder, "checkpoint_every_steps": 0, "completions_every_steps": 0, "console": False},
        **sections,
    }
    return read.validate(tables)


def _in_force(config: read.Config) -> dict[str, Any]:
    """Return what is in force, in the judge's words."""
    made = algorithm.create(config)
    settings = asdict(made.settings)
    words = {word: settings[name] for word, name in NAMES.items() if name in settings}
    mean = settings["aggregation"]
    words["aggregation"] = "token-mean" if mean in TOKEN_MEANS else mean
    words["dapo_denominator"] = mean if mean in TOKEN_MEANS else None
    in_reward = settings["kl_in_reward"]
    words |= (
        {"kl_in_reward": settings["beta"], "beta": 0.0} if in_reward else {"kl_estimator": settings["kl_estimator"]}
    )
    if words["scale"] == "none":
        words |= {"ddof": None, "eps": None, "eps_mode": None}
    if not words["beta"]:
        words |= {"kl_estimator": None, "kl_ratio": None}
    optimizer = config.optimizer
    limit = optimizer.max_gradient_norm
    return {
        "algorithm": made.name,
        **words,
        "optimizer": optimizer.name,
        "learning_rate": optimizer.learning_rate,
        "weight_decay": optimizer.weight_decay,
        "gradient_clip": None if limit == "off" else limit,
        "temperature": config.scoring_temperature(),
    }


def resolve_config(*, trainer: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What a configuration with these settings resolves to."""
    return {"settings": json.dumps(_in_force(_config(trainer, settings, "unused")))}


def training_step(  # noqa: PLR0913  the inputs of the op
    *,
    model: Mapping[str, Any],
    trainer: str,
    settings: Mapping[str, Any],
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    rewards: Array,
    group_size: int,
    updates: int,
    micro_batch_rows: int,
    folder: str,
) -> dict[str, Any]:
    """One generation of these rows and its updates, by the engine of a run."""
    lengths = np.array([len(row) for row in completions])
    config = _config(
        trainer,
        settings,
        str(Path(folder) / "run"),
        model={"path": model["path"]},
        data={"count": len(prompts)},
        rollout={"samples_per_prompt": group_size, "max_tokens": int(lengths.max())},
        loop={
            "steps": 1,
            "prompts_per_step": len(prompts),
            "iterations": updates,
            "micro_batch_rows": micro_batch_rows,
        },
    )
    run = loop_run.Run(config, algorithm.create(config), resume=False)
    try:
        tokens = np.full((len(completions), int(lengths.max())), -1, np.int32)
        for row, completion in enumerate(completions):
            tokens[row, : len(completion)] = completion
        made = generation(prompts, tokens, lengths, rewards, group_size, run.source.eos_ids)
        learned = run.engine.learn(made, 1, config.optimizer.learning_rate)
        step = numbers.of_step(made, learned, ["case"], config.optimizer.learning_rate, run.engine.algorithm)
    finally:
        run.close()
    metrics = {
        "loss": [update.loss for update in learned.updates],
        "gradient_norm": [update.gradient_norm for update in learned.updates],
        "learning_rate": [step["learning_rate"]] * len(learned.updates),
        "reward": [step["reward_mean"]],
        "length": [step["length_mean"]],
    }
    return {"settings": json.dumps(_in_force(config)), "metrics": json.dumps(metrics)}


def generation(
    prompts: Sequence[Sequence[int]] | Sequence[Array],
    tokens: Array,
    lengths: Array,
    rewards: Array,
    group_size: int,
    ends: Sequence[int] = (),
) -> Generation:
    """Return completions (R, T) of prompts as a rollout has them, -1 past their lengths (R,)."""
    live = np.arange(tokens.shape[1]) < lengths[:, None]
    unread = np.zeros(tokens.shape)
    return Generation(
        prompts=[Prompt(index, "", np.array(ids, np.int32), None, {}) for index, ids in enumerate(prompts)],
        samples=[],
        rewards=protocol.Rewards(np.asarray(rewards, np.float64)[:, None], np.ones(1), group_size, lengths),
        tokens=np.where(live, tokens, -1).astype(np.int32),
        lengths=np.asarray(lengths, np.int64),
        ended=np.array([row[length - 1] in ends for row, length in zip(tokens, lengths, strict=True)]),
        model=unread,
        temperature_scaled=unread,
        behaviour=unread,
        taken=len(prompts),
    )


OPS: dict[str, Callable[..., dict[str, Any]]] = {"training_step": training_step, "resolve_config": resolve_config}
