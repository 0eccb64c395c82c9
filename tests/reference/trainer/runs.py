"""Small runs of the trainer for tests: a configuration that learns something in a second, and its digests."""

import hashlib
import json
from pathlib import Path
from typing import Any

from gates_reference.trainer.algorithms import protocol
from gates_reference.trainer.config import algorithm as algorithms
from gates_reference.trainer.config import read
from gates_reference.trainer.loop import run
from gates_reference.trainer.metrics import callbacks

REWARD = """
def low(prompts, completions, **rest):
    return [sum(ord(c) % 7 < 3 for c in text) / max(len(text), 1) for text in completions]
"""
SAME_BYTES = ("metrics.jsonl", "evaluations.jsonl", "completions.jsonl")


def tables(folder: Path, **sections: dict[str, Any]) -> dict[str, Any]:
    """The tables of a small configuration, each section changed by a keyword of its name; rewards differ within groups."""
    folder.mkdir(parents=True, exist_ok=True)
    function = folder.parent / "reward.py"
    function.write_text(REWARD)
    small: dict[str, dict[str, Any]] = {
        "model": {"tiny": {"hidden": 32}},
        "adapter": {"rank": 2, "b_std": 0.05},
        "data": {"count": 12, "validation_rows": 2},
        "rollout": {"max_tokens": 6, "samples_per_prompt": 4, "path": "batched"},
        "algorithm": {"name": "grpo", "settings": {"beta": 0.04}},
        "optimizer": {"learning_rate": 5e-3},
        "loop": {"steps": 6, "prompts_per_step": 2, "evaluate_every_steps": 3},
        "rewards": {"functions": [{"name": "user", "function": f"{function}:low"}]},
        "output": {"folder": str(folder), "checkpoint_every_steps": 2, "completions_every_steps": 2, "console": False},
    }
    return {name: {**small.get(name, {}), **sections.get(name, {})} for name in small.keys() | sections.keys()}


def config(folder: Path, **sections: dict[str, Any]) -> read.Config:
    """The validated small configuration."""
    return read.validate(tables(folder, **sections))


def train(
    chosen: read.Config,
    algorithm: protocol.Algorithm | None = None,
    *,
    resume: bool = False,
    told: list[callbacks.Callback] | None = None,
) -> run.Summary:
    """Train it here and now."""
    return run.train(chosen, algorithm or algorithms.create(chosen), resume=resume, callbacks=told or [])


def lines(folder: Path, name: str = "metrics") -> list[dict[str, Any]]:
    """The lines of one of a run's files."""
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


def digests(folder: Path) -> dict[str, str]:
    """What must be the same however a run came to its end: metrics and the last checkpoint's adapters, optimizer and state."""
    newest = max((folder / "checkpoints").glob("step-*[0-9]"))
    files = [folder / name for name in SAME_BYTES]
    files += [newest / name for name in ("adapters.safetensors", "optimizer.safetensors")]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
