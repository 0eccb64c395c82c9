"""Updates of mlx-lm's own training loop on given rows: its supervised loss and optimizer, all weights trained, no sampling to replace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.optimizers as optim
import mlx_lm
from mlx_lm.lora import CONFIG_DEFAULTS
from mlx_lm.tuner.trainer import TrainingArgs, train

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TRAINERS = ("sft",)
OPTIMIZER = "adam"  # CONFIG_DEFAULTS["optimizer"]


class Losses:
    """The callback that the loop reports to."""

    def __init__(self) -> None:
        self.reports: list[Mapping[str, Any]] = []

    def on_train_loss_report(self, report: Mapping[str, Any]) -> None:
        """Keep a report."""
        self.reports.append(report)

    def on_val_loss_report(self, report: Mapping[str, Any]) -> None:
        """Keep nothing: there is no validation."""


def _in_force(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is in force, in the judge's words.

    Raises:
        NotImplementedError: it has no such option, or another optimizer by default.
    """
    unknown = sorted(set(settings) - {"learning_rate"})
    if unknown or CONFIG_DEFAULTS["optimizer"] != OPTIMIZER:
        raise NotImplementedError(f"mlx-lm has no {', '.join(unknown) or OPTIMIZER} here")
    rate = float(settings.get("learning_rate", CONFIG_DEFAULTS["learning_rate"]))
    return {"optimizer": OPTIMIZER, "learning_rate": rate, "weight_decay": 0.0, "aggregation": "token-mean"}


def resolve_config(*, trainer: str, settings: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG001  the inputs of the op
    """Return what a configuration with these settings has in force."""
    return {"settings": json.dumps(_in_force(settings))}


def training_step(
    *,
    model: Mapping[str, Any],
    settings: Mapping[str, Any],
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    updates: int,
    micro_batch_rows: int,
    folder: str,
    **_: Any,
) -> dict[str, Any]:
    """Train on these rows, whose prompts are masked, with everything that is not asked at its default."""
    mx.set_default_device(mx.cpu)
    words = _in_force(settings)
    parts = len(completions) // micro_batch_rows
    policy, _tokenizer = mlx_lm.load(model["path"])
    rows = [([*prompt, *completion], len(prompt)) for prompt, completion in zip(prompts, completions, strict=True)]
    args = TrainingArgs(
        batch_size=micro_batch_rows,
        iters=updates * parts,
        steps_per_report=parts,
        grad_accumulation_steps=parts,
        adapter_file=str(Path(folder) / "adapters.safetensors"),
    )
    reports = Losses()
    train(policy, optim.Adam(words["learning_rate"]), rows, args=args, training_callback=reports)
    names = {"loss": "train_loss", "learning_rate": "learning_rate"}
    metrics = {word: [float(report[name]) for report in reports.reports] for word, name in names.items()}
    return {"settings": json.dumps(words), "metrics": json.dumps(metrics)}


OPS = {"training_step": training_step, "resolve_config": resolve_config}
CONVENTIONS = {name: {"trainer": TRAINERS} for name in OPS}
