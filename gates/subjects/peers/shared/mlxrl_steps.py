"""Updates of mlxrl's own training functions on given rows: its configuration's defaults and LoRA, the case's model and data.

Its loop takes one prompt of its own data a step and samples anew; here `batch_from_rollouts` is given the completions of
several, and each update is an `optimizer_step` on that batch.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.optimizers as optim
from mlxrl.algo import GRPOAlgorithm, RLOOAlgorithm
from mlxrl.config import AlgorithmConfig, OptimizerConfig, TrainConfig
from mlxrl.policy.logprobs import pad_token_id_from_tokenizer
from mlxrl.policy.model import LoRAConfig, load_policy_with_lora
from mlxrl.rollout.naive import Completion
from mlxrl.train.grpo import batch_from_rollouts, optimizer_step

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

ALGORITHMS = {"grpo": GRPOAlgorithm, "rloo": RLOOAlgorithm}  # as mlxrl/cli.py:195 makes them
OF_ALGORITHM: dict[str, dict[str, Any]] = {  # README, Import API: "token-mean policy losses: base GRPO, … RLOO"
    "grpo": {
        "algorithm": "grpo",
        "bound": "none",
        "scale": "group",
        "ddof": 0,
        "eps": 1e-8,
        "eps_mode": "inside",
        "baseline": "mean",
    },
    # the loss of REINFORCE, since RLOO's has no KL, and this one has (`kl_beta`)
    "rloo": {"algorithm": "reinforce", "scale": "none", "baseline": "leave-one-out"},
}
FIXED: dict[str, dict[str, Any]] = {"grpo": {}, "rloo": {"kl_in_reward": 0.0}}  # asked, and the only choice


def _config(trainer: str, settings: Mapping[str, Any]) -> TrainConfig:
    """Return the configuration of a user who asks for these settings.

    Raises:
        NotImplementedError: it has no such option.
    """
    chosen: dict[str, Any] = {"algorithm": AlgorithmConfig(name=trainer)}
    for name, value in settings.items():
        if name == "learning_rate":
            chosen["optimizer"] = OptimizerConfig(learning_rate=value)
        elif name == "beta":
            chosen["kl_beta"] = value
        elif name not in FIXED[trainer] or FIXED[trainer][name] != value:
            raise NotImplementedError(f"mlxrl's {trainer} has no {name} {value!r}")
    return TrainConfig(**chosen)


def _in_force(config: TrainConfig) -> dict[str, Any]:
    """Return what a configuration has in force, in the judge's words."""
    trainer = config.algorithm.name
    words = {
        **OF_ALGORITHM[trainer],
        **FIXED[trainer],
        "aggregation": "token-mean",
        "dapo_denominator": "global",
        "beta": config.kl_beta,
        "optimizer": config.optimizer.name,
        "learning_rate": config.optimizer.learning_rate,
        "weight_decay": 0.0,
    }
    return words | ({"kl_estimator": "k3", "kl_ratio": "none"} if config.kl_beta else {})


def resolve_config(*, trainer: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a configuration with these settings has in force."""
    return {"settings": json.dumps(_in_force(_config(trainer, settings)))}


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
    folder: str,  # noqa: ARG001  it writes nothing
) -> dict[str, Any]:
    """Train on these rows, with everything that is not asked at its default."""
    mx.set_default_device(mx.cpu)
    config, algorithm = _config(trainer, settings), ALGORITHMS[trainer]()
    lora = LoRAConfig(rank=config.rank, scale=config.scale, dropout=config.dropout)
    policy, tokenizer, _ = load_policy_with_lora(model_id=model["path"], config=lora)
    optimizer, pad = optim.Adam(learning_rate=config.optimizer.learning_rate), pad_token_id_from_tokenizer(tokenizer)
    unread = {"old_policy_logprobs": (), "text": ""}  # batch_from_rollouts scores the rows itself
    rows = [
        Completion(k // group_size, k % group_size, tuple(prompts[k // group_size]), tuple(row), **unread)
        for k, row in enumerate(completions)
    ]
    batch = batch_from_rollouts(
        model=policy,
        completions=rows,
        rewards=[float(reward) for reward in rewards],
        group_size=group_size,
        pad_token_id=pad,
        algorithm=algorithm,
        compute_reference=config.kl_beta != 0.0,
    )
    micro = micro_batch_rows if micro_batch_rows < len(rows) else config.micro_batch_size
    steps = [
        optimizer_step(policy, optimizer, batch, config.kl_beta, pad, algorithm, micro_batch_size=micro)
        for _ in range(updates)
    ]
    metrics = {"loss": [step.loss for step in steps], "reward": [step.mean_reward for step in steps]}
    return {"settings": json.dumps(_in_force(config)), "metrics": json.dumps(metrics)}


OPS = {"training_step": training_step, "resolve_config": resolve_config}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    name: {"trainer": tuple(ALGORITHMS), "clip": ("none",)} for name in OPS
}
