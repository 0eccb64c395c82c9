# ruff: noqa: SLF001  the steps of trainers are private
"""TRL's trainers made without `__init__`: no model, no data set; generation and forward passes give what a case holds."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from accelerate import Accelerator
from peer_torch import tensor
from trl import GRPOTrainer

if TYPE_CHECKING:
    from collections.abc import Callable

    Array = np.ndarray[Any, Any]

LOGS = ("prompt", "completion", "advantages", "images", "rewards", "extra")


def made(kind: Any, config: Any, **attributes: Any) -> Any:
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


def scored(trainer: Any, completions: list[list[int]], **x: Any) -> dict[str, Any]:
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
        _get_per_token_logps_and_entropies=lambda model, *_, **__: (
            torch.zeros(()) if logprobs[id(model)] is None else tensor(logprobs[id(model)]).clone(),
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


def completions_of(mask: Array) -> list[list[int]]:
    """Return completions as wide as the mask, without an EOS."""
    return [[3] * mask.shape[1]] * len(mask)
