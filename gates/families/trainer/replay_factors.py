"""What a run of the trainer has that may hide a mistake, so that the runs that are replayed meet every pair of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any

Inputs = Mapping[str, Any]


def _settings(inputs: Inputs) -> Mapping[str, Any]:
    settings: Mapping[str, Any] = inputs["tables"]["algorithm"].get("settings", {})
    return settings


def _has(section: str, key: str, off: Any = None) -> Callable[[Inputs], bool]:
    return lambda inputs: inputs["tables"][section].get(key, off) not in (None, off)


def _uneven(inputs: Inputs) -> bool:
    tables = inputs["tables"]
    rows = tables["loop"]["prompts_per_step"] * tables["rollout"]["samples_per_prompt"]
    size = tables["loop"].get("micro_batch_rows", 0)
    return bool(size) and rows % size != 0


FACTORS: Mapping[str, Callable[[Inputs], bool]] = {
    "KL": lambda inputs: bool(_settings(inputs).get("beta")),
    "entropy": lambda inputs: bool({"entropy_bonus", "entropy_share"} & set(_settings(inputs))),
    "correction": lambda inputs: "correction" in _settings(inputs),
    "weights of rewards": lambda inputs: any(
        "weight" in each for each in inputs["tables"]["rewards"].get("functions", [])
    ),
    "several updates": lambda inputs: inputs["tables"]["loop"].get("iterations", 1) > 1,
    "minibatches": lambda inputs: inputs["tables"]["loop"].get("minibatches", 1) > 1,
    "uneven micro-batches": _uneven,
    "schedule": _has("optimizer", "schedule", "constant"),
    "warm-up": _has("optimizer", "warmup_steps", 0),
    "norm clip": lambda inputs: inputs["tables"]["optimizer"].get("max_gradient_norm", 1.0) < 1.0,
    "decay": _has("optimizer", "weight_decay", 0.0),
    "filters": lambda inputs: bool({"top_p", "top_k", "min_p", "xtc_probability"} & set(inputs["tables"]["rollout"])),
    "temperature": _has("rollout", "temperature", 1.0),
    "resume": lambda inputs: bool(inputs["stops"]),
    "another family": lambda inputs: "family" in inputs["model"].spec,
}


def unmet(runs: list[Inputs]) -> list[tuple[str, str]]:
    """Return the pairs of factors that no run has together."""
    met = [{name for name, has in FACTORS.items() if has(inputs)} for inputs in runs]
    return [pair for pair in combinations(FACTORS, 2) if not any(set(pair) <= names for names in met)]
