"""The preference runs of `learning.py`: DPO on pairs of right and wrong answers, Online DPO on its own samples, and the control.

The measure is the implicit reward margin beta ((policy - reference) of the right answer - (the same) of a wrong one), in nats
summed over tokens (Rafailov et al. 2023, arXiv 2305.18290, section 5), of pairs of sums that no run trains on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gates_reference.sums import Sum
from gates_reference.trainer import model as models
from gates_reference.trainer.config import read
from gates_reference.trainer.loop import evaluate, prepare

CONTROL = "dpo, labels shuffled"
NAMES = ("dpo", "online_dpo", CONTROL)
BETA = 0.1
STEPS = 90
HELD_OUT = 16
"""Sums of the warm-up that are kept for measuring."""
WRONG = 8
"""Wrong answers of each sum, so as many pairs."""
COLUMNS = {"chosen_column": "chosen", "rejected_column": "rejected"}


def pairs(sums: Sequence[Sum], seed: int) -> list[dict[str, Any]]:
    """Return every sum with `WRONG` different wrong answers: right chosen, wrong rejected."""
    generator = np.random.Generator(np.random.Philox(key=seed))
    rows: list[dict[str, Any]] = []
    for problem in sums:
        others = [number for number in range(-98, 199) if number != problem["answer"]]
        chosen = generator.permutation(others)[:WRONG].tolist()
        rows += [{**problem, "chosen": str(problem["answer"]), "rejected": str(wrong)} for wrong in chosen]
    return rows


def shuffled(rows: Sequence[Mapping[str, Any]], seed: int) -> list[dict[str, Any]]:
    """Return the rows with half of every sum's labels swapped, so that the labels carry no information."""
    generator = np.random.Generator(np.random.Philox(key=seed))
    shuffled_rows: list[dict[str, Any]] = []
    for start in range(0, len(rows), WRONG):
        swap = generator.permutation(WRONG) < WRONG // 2
        for row, swapped in zip(rows[start : start + WRONG], swap.tolist(), strict=True):
            labels = {"chosen": row["rejected"], "rejected": row["chosen"]} if swapped else {}
            shuffled_rows.append({**row, **labels})
    return shuffled_rows


def tables(name: str, seed: int, steps: int, folder: Path, model: Path, sums: Sequence[Sum]) -> dict[str, Any]:
    """Return the configuration of one run, whose data is written into the folder."""
    held, trained = sums[:HELD_OUT], sums[HELD_OUT:]
    rows: Sequence[Mapping[str, Any]] = trained if name == "online_dpo" else pairs(trained, seed)
    if name == CONTROL:
        rows = shuffled(rows, seed)
    write(folder / "held-out.jsonl", pairs(held, seed))
    write(folder / "sums.jsonl", rows)
    columns, seeds = ({}, {"seed": seed}) if name == "online_dpo" else (COLUMNS, {})  # pairs need no draws
    return {
        "model": {"path": str(model)},
        "adapter": {"rank": 8, "seed": seed},
        "data": {"kind": "jsonl", "path": str(folder / "sums.jsonl"), "seed": seed, **columns},
        "rollout": {"samples_per_prompt": 2, "max_tokens": 6, **seeds},
        "algorithm": {"name": "dpo" if name == CONTROL else name, "settings": {"beta": BETA}},
        "optimizer": {"learning_rate": 1e-3},
        "loop": {"steps": steps, "prompts_per_step": 48},
        "rewards": {"functions": [{"name": "accuracy"}]},
        "output": {
            "folder": str(folder / "run"),
            "console": False,
            "checkpoint_every_steps": 0,
            "completions_every_steps": 0,
        },
    }


def write(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write one JSON object a line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def margins(run: Mapping[str, Any]) -> Callable[[int], dict[str, float]]:
    """Return a function that scores the held-out pairs with the trained model; `preferred` is the share of margins above 0."""
    path = Path(run["data"]["path"]).with_name("held-out.jsonl")
    rollout = {key: value for key, value in run["rollout"].items() if key != "seed"}
    data = {"kind": "jsonl", "path": str(path), "shuffle": False, **COLUMNS}
    config = read.validate({**run, "rollout": rollout, "data": data})
    loaded = models.load(config.model.spec())
    source = prepare.sources(config, loaded.tokenizer)[0]

    def measure(step: int) -> dict[str, float]:
        samples = evaluate.generations(loaded.model, source, len(source.prompts), step)
        measured = evaluate.margins(loaded.model, samples, config.scoring_temperature())
        return {"margin": BETA * measured["margin_mean"], "preferred": measured["margin_positive_share"]}

    return measure
