"""Updates of rlox's own trainers on given rows of one length: it has no mask. The completions are not sampled.

Its trainers take any module with `forward(ids)` and `generate(ids, max_new_tokens)`, and its environment has none that reads
a model folder: a GRU of the tiny model's vocabulary stands for the model, and its `generate` returns the case's rows.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import torch  # type: ignore[import-not-found,unused-ignore]
from rlox.algorithms.dpo import DPO  # type: ignore[import-not-found]
from rlox.algorithms.grpo import GRPO  # type: ignore[import-not-found]
from rlox.algorithms.online_dpo import OnlineDPO  # type: ignore[import-not-found]

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VOCABULARY = 320  # of the tiny models
KINDS = {"grpo": GRPO, "dpo": DPO, "online_dpo": OnlineDPO}
BETA = {"grpo": "kl_coef", "dpo": "beta", "online_dpo": "beta"}
FIXED: dict[str, dict[str, Any]] = {
    "grpo": {},
    "dpo": {"loss": "dpo"},
    "online_dpo": {"loss": "dpo"},
}  # the only choice
GRPO_WORDS = {  # as its page and its comments write: a row sum without a ratio, and policy - reference as the KL
    "algorithm": "grpo",
    "ratio": "on-policy",
    "aggregation": "row-sum",
    "epsilon_low": 0.2,
    "epsilon_high": 0.2,
    "kl_estimator": "k1",
    "kl_ratio": "none",
    "scale": "group",
    "ddof": 0,
    "eps": 1e-8,
    "eps_mode": "threshold",
    "baseline": "mean",
}


class _Model(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    """A language model whose completions are given."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tokens = torch.nn.Embedding(VOCABULARY, 32)
        self.body = torch.nn.GRU(32, 32, batch_first=True)
        self.head = torch.nn.Linear(32, VOCABULARY)
        self.given: list[torch.Tensor] = []

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        return self.head(self.body(self.tokens(ids))[0])

    def generate(self, _ids: torch.Tensor, **_: Any) -> torch.Tensor:
        """Return the next rows, prompts included."""
        return self.given.pop(0)


def _made(trainer: str, settings: Mapping[str, Any], *models: _Model, **more: Any) -> Any:
    """Return the trainer of a user who asks for these settings.

    Raises:
        NotImplementedError: it has no such option.
    """
    names, fixed = {"learning_rate": "learning_rate", "beta": BETA[trainer]}, FIXED[trainer]
    chosen: dict[str, Any] = {}
    for name, value in settings.items():
        if name in names:
            chosen[names[name]] = value
        elif name not in fixed or fixed[name] != value:
            raise NotImplementedError(f"rlox's {trainer} has no {name} {value!r}")
    return KINDS[trainer](*models, **more, **chosen)


def _in_force(trainer: str, made: Any) -> dict[str, Any]:
    """Return what a trainer has in force, in the judge's words."""
    (group,) = made.optimizer.param_groups
    words = {
        "optimizer": "adam",
        "learning_rate": group["lr"],
        "weight_decay": group["weight_decay"],
        "gradient_clip": made.max_grad_norm,
    }
    if trainer == "grpo":
        return {**words, **GRPO_WORDS, "beta": made.kl_coef}
    return {**words, "loss": "dpo", "beta": made.beta, "label_smoothing": 0.0}


def _callback(trainer: str, rewards: Any) -> dict[str, Any]:
    """Return the function that a trainer asks for rewards or preferences."""
    if trainer == "grpo":
        return {"reward_fn": lambda *_: [float(reward) for reward in rewards]}
    first = [0 if one >= other else 1 for one, other in np.reshape(rewards, (-1, 2))] if trainer == "online_dpo" else []
    return {"preference_fn": lambda _pairs: first} if trainer == "online_dpo" else {}


def resolve_config(*, trainer: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a trainer with these settings has in force."""
    made = _made(trainer, settings, _Model(), _Model(), **_callback(trainer, ()))
    return {"settings": json.dumps(_in_force(trainer, made))}


def training_step(
    *,
    trainer: str,
    settings: Mapping[str, Any],
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    rewards: np.ndarray[Any, Any] | None,
    group_size: int,
    updates: int,
    **_: Any,
) -> dict[str, Any]:
    """Train on these rows, with everything that is not asked at its default."""
    policy, reference = _Model(), _Model()
    rows = torch.tensor([[*prompts[k // group_size], *row] for k, row in enumerate(completions)])
    before, after = torch.tensor(prompts), torch.tensor(completions)
    more = _callback(trainer, rewards) | ({"group_size": group_size} if trainer == "grpo" else {})
    made = _made(trainer, settings, policy, reference, **more)
    steps = []
    for _update in range(updates):
        policy.given = [rows] if trainer == "grpo" else list(rows.split(group_size))
        steps.append(made.train_step(before, after[0::2], after[1::2]) if trainer == "dpo" else made.train_step(before))
    metrics: dict[str, Any] = {"loss": [step["loss"] for step in steps]}
    if trainer == "grpo":
        metrics["reward"] = [step["mean_reward"] for step in steps]
    return {"settings": json.dumps(_in_force(trainer, made)), "metrics": json.dumps(metrics)}


OPS = {"training_step": training_step, "resolve_config": resolve_config}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    name: {"trainer": tuple(KINDS), "clip": ("none",), "row_lengths": ("equal",)} for name in OPS
}
