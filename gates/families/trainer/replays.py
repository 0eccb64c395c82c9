"""Runs of the trainer that are replayed: their settings, which together meet every pair that hides mistakes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from gates.families.trainer.op import TRACED_RUN
from gates.families.trainer.steps import _built
from gates.model import Array, Case, Recipe, Trial
from gates.replay.run import Run, load_run

STEPS = 4
COUNT = 11  # prompts: 7 train and 4 are held out, so that steps and epochs divide nothing evenly
PATTERN = {"name": "regex", "pattern": "[a-m]"}
DIVERSITY = {"name": "diversity", "words": 1, "weight": 0.7}
LENGTH = {"name": "length", "max_tokens": 8, "margin_tokens": 5, "weight": 0.4}
BASE: Mapping[str, Mapping[str, Any]] = {
    "adapter": {"rank": 4},
    "data": {"count": COUNT, "validation_rows": 4},
    "rollout": {"samples_per_prompt": 4, "max_tokens": 8},
    "algorithm": {"name": "grpo"},
    "optimizer": {"learning_rate": 1e-2},
    "loop": {"steps": STEPS, "prompts_per_step": 3, "evaluate_every_steps": 2},
    "rewards": {"functions": [PATTERN, DIVERSITY]},
    "output": {"checkpoint_every_steps": 2, "completions_every_steps": 2, "console": False},
}
Tables = Mapping[str, Mapping[str, Any]]
ENDS = [1, 2, *range(21, 272, 20)]  # ids of the tiny tokenizer, whose own end token is 2


def tables(changes: Tables, seed: int) -> dict[str, dict[str, Any]]:
    """Return the sections of a run: the base with these changes, and seeds of data and draws."""
    seeds = {"data": {"sums_seed": seed, "seed": seed}, "rollout": {"seed": seed}}
    if "path" in changes.get("data", {}):  # pairs of completions: nothing is generated and nothing sampled
        seeds = {"data": {"seed": seed}}
    merged = {section: {**keys, **seeds.get(section, {}), **changes.get(section, {})} for section, keys in BASE.items()}
    return {
        section: {name: value for name, value in keys.items() if value is not None} for section, keys in merged.items()
    }


def _make(
    rng: np.random.Generator, *, model: Mapping[str, Any], changes: Tables, stops: tuple[int, ...]
) -> dict[str, Any]:
    return {
        "model": Recipe("model", model),
        "tables": tables(changes, int(rng.integers(1, 2**31))),
        "stops": list(stops),
    }


def replayed(t: Trial) -> Run:
    """Train the case's run, once for all gates, and return it with its model.

    Raises:
        SubjectFaultError: the run ended in an error.
    """
    inputs = dict(t.inputs)
    recipe = inputs["model"]
    spec = dict(recipe.spec) if isinstance(recipe, Recipe) else dict(recipe)
    built: Path | None = None
    for name in (name for name in VARIANTS if spec.get(name)):  # of a model that is built here, not by the trainer
        plain = {key: value for key, value in spec.items() if key not in VARIANTS}
        built = VARIANTS[name](built or Path(_built(json.dumps(plain))), t.folder / name)
    sections = _with_files(inputs["tables"], t.folder)
    given = {"model": {"path": str(built)} if built else spec, "tables": sections, "stops": inputs["stops"]}
    instead = {"model": spec, "tables": inputs["tables"], "folder": "run"}
    answer = t.got_once(TRACED_RUN, instead=instead, **given, folder=str(t.folder / "run"))
    folder = t.folder / "read"
    for name, data in answer["files"].items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(np.asarray(data, np.uint8).tobytes())
    data = inputs["tables"]["data"]
    run = load_run(folder, built or Path(str(answer["model"])))
    return replace(run, users=USERS, rows=rows(data["seed"]) if "path" in data else None)


def _with_files(sections: Tables, folder: Path) -> dict[str, dict[str, Any]]:
    """Return the sections with the paths of files that they name, which are written here: data, and a reward function."""
    made = {section: dict(keys) for section, keys in sections.items()}
    if "path" in made["data"]:
        path = folder / made["data"]["path"]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows(made["data"]["seed"])), encoding="utf-8")
        made["data"]["path"] = str(path)
    functions = made["rewards"].get("functions", [])
    if any(function["name"] == "user" for function in functions):
        path = folder / "rewards.py"
        path.write_text(PROGRAM, encoding="utf-8")
        own = [{**f, "function": f"{path}:{f['function']}"} if f["name"] == "user" else f for f in functions]
        made["rewards"]["functions"] = own
    return made


def rows(seed: int) -> list[dict[str, Any]]:
    """Return rows of data: questions of which some are long, an answer, a word, and two completions."""
    rng = np.random.default_rng(seed)
    words = ("three", "red", "12", "apples", "no", "a", "lake", "7")
    made = []
    for number in range(COUNT):
        chosen, rejected = (" ".join(rng.choice(words, size)) for size in rng.integers(1, 4, 2))
        question = f"{rng.integers(1, 99)}+{rng.integers(1, 99)}="
        made.append(
            {
                "prompt": f"{question} or {question} or {question}" if number in LONG else question,
                "answer": (7, 72, 2, 4)[rng.integers(0, 4)],  # what the model with large digits says now and then
                "word": "acegikmoqsuw"[number],
                "chosen": chosen,
                "rejected": rejected if rejected != chosen else f"{rejected}!",
            }
        )
    return made


def _copied(built: Path, folder: Path, name: str, change: Callable[[dict[str, Any]], None]) -> Path:
    """Return a copy of a model in which one JSON file is changed."""
    if not folder.exists():
        shutil.copytree(built, folder)
    content = json.loads((folder / name).read_text(encoding="utf-8"))
    change(content)
    (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return folder


def _several_ends(built: Path, folder: Path) -> Path:
    """Return a model whose generation_config.json names three end tokens."""
    return _copied(built, folder, "generation_config.json", lambda content: content.update(eos_token_id=ENDS))


def _prepended(built: Path, folder: Path) -> Path:
    """Return a model whose tokenizer puts its first special token before every text."""

    def change(content: dict[str, Any]) -> None:
        token = content["added_tokens"][0]
        special = {token["content"]: {"id": token["content"], "ids": [token["id"]], "tokens": [token["content"]]}}
        one, two = (
            [{"SpecialToken": {"id": token["content"], "type_id": 0}}, {"Sequence": {"id": name, "type_id": 0}}]
            for name in "AB"
        )
        content["post_processor"] = {
            "type": "TemplateProcessing",
            "single": one,
            "pair": [*one, *two],
            "special_tokens": special,
        }

    return _copied(built, folder, "tokenizer.json", change)


def _digits(built: Path, folder: Path) -> Path:
    """Return a model whose logits of digits are three times as large, so that it answers questions now and then."""
    shutil.copytree(built, folder)
    (file,) = folder.glob("*.safetensors")
    weights = load_file(file)
    vocabulary = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    weights["lm_head.weight"][[vocabulary[digit] for digit in "0123456789"]] *= 3.0
    save_file(weights, file, metadata={"format": "mlx"})
    return folder


VARIANTS: Mapping[str, Callable[[Path, Path], Path]] = {
    "ends": _several_ends,
    "prepended": _prepended,
    "digits": _digits,
}
LONG = (2, 5)  # rows with a long question
PROGRAM = '''"""Reward functions of a user."""


def marked(completions, word):
    return [None if len(text) % 7 == 3 else float(one in text) for text, one in zip(completions, word)]
'''
USERS = {"marked": lambda text, row: float("nan") if len(text) % 7 == 3 else float(row["word"] in text)}
MARKED = {"name": "user", "function": "marked", "unscored": True}
ROWS = {"count": None, "kind": "jsonl", "path": "rows.jsonl"}
SMALL: Mapping[str, Any] = {"seed": 11, "vocab": 272, "hidden": 16, "head_dim": 8, "heads": 2, "kv_heads": 1}


def _case(
    name: str, changes: Tables, *, stops: tuple[int, ...] = (), quick: bool = False, label: str = "", **model: Any
) -> Case:
    spec = SMALL if not model else {"seed": 11, "vocab": 272, **model}
    make = partial(_make, model=spec, changes=changes, stops=stops)
    return Case(name, make, quick=quick, proof=True, sample=f"replay {name}", limit_s=120, model=label)


def _algorithm(name: str, settings: Mapping[str, Any] | None = None, **others: Any) -> dict[str, Any]:
    return {"name": name, "settings": dict(settings or {}), **others}


CASES = (
    _case(
        "grpo-kl-resumed",
        {
            "algorithm": _algorithm("grpo", {"beta": 0.2, "epsilon_low": 0.05, "epsilon_high": 0.05}),
            "optimizer": {"schedule": "cosine", "warmup_steps": 2, "max_gradient_norm": 0.05},
            "loop": {"iterations": 2, "micro_batch_rows": 5},
        },
        stops=(3,),
        quick=True,
    ),
    _case(
        "dapo-resampled",
        {
            "algorithm": _algorithm(
                "dapo",
                {"entropy_bonus": 0.02, "overlong_limit": 8, "overlong_buffer": 4, "dynamic_sampling": "accuracy"},
                max_resamples=2,
            ),
            "data": ROWS,
            "rollout": {"samples_per_prompt": 6},
            "rewards": {"functions": [{"name": "accuracy", "weight": 0.5}, {**PATTERN, "pattern": "[02468]$"}]},
            "loop": {"minibatches": 2, "micro_batch_rows": 4},
        },
        stops=(1, 3),
        ends=True,
        digits=True,
        **SMALL,
    ),
    _case(
        "rloo-llama",
        {
            "algorithm": _algorithm("rloo", {"beta": 0.3, "mask_truncated_completions": True}),
            "rollout": {"top_p": 0.9, "temperature": 0.8, "order": "mlx-lm"},
            "optimizer": {"name": "sgd", "momentum": 0.9, "weight_decay": 0.1, "learning_rate": 0.1},
            "loop": {"micro_batch_rows": 5},
        },
        family="llama",
        ends=True,
        label="llama",
    ),
    _case(
        "gspo-truncated",
        {
            "algorithm": _algorithm("gspo", {"mask_truncated_completions": True}),
            "rollout": {"max_tokens": 5},
            "optimizer": {"name": "adamw", "weight_decay": 0.1, "schedule": "linear", "final_share": 0.2},
            "loop": {"iterations": 2, "minibatches": 2},
        },
        stops=(2,),
        ends=True,
        **SMALL,
    ),
    _case(
        "dr-grpo-4-bit",
        {
            "algorithm": _algorithm(
                "dr_grpo", {"correction": "tis", "correction_high": 1.5}, sampling_logprobs="behaviour"
            ),
            "rollout": {"top_k": 9, "min_p": 0.02},
            "loop": {"iterations": 2, "micro_batch_rows": 7},
        },
        bits=4,
        label="4-bit",
    ),
    _case(
        "cispo-experts",
        {
            "adapter": {"embeddings": True},
            "algorithm": _algorithm("cispo", {"epsilon_low": 0.1, "beta": 0.1}),
            "loop": {"iterations": 2, "micro_batch_rows": 4},
            "rollout": {"xtc_probability": 0.5, "xtc_threshold": 0.05},
        },
        family="qwen3_moe",
        label="experts",
    ),
    _case(
        "sapo-hybrid",
        {
            "algorithm": _algorithm("sapo", {"entropy_share": 0.5}),
            "loop": {"iterations": 2, "micro_batch_rows": 5},
            "rollout": {"temperature": 1.3},
        },
        family="qwen3_next",
        label="hybrid",
    ),
    _case(
        "gmpo-soft-cap",
        {
            "algorithm": _algorithm("gmpo", {"beta": 0.1, "kl_estimator": "k2"}),
            "data": {**ROWS, "max_prompt_tokens": 12, "too_long": "drop", "validation_rows": 2},
            "rewards": {"functions": [LENGTH, {**MARKED, "weight": 2.0}, DIVERSITY]},
            "loop": {"iterations": 2},
            "optimizer": {"max_gradient_norm": 0.02},
        },
        stops=(3,),
        family="gemma2",
        label="soft-cap",
    ),
    _case(
        "luspo-logit-scale",
        {
            "algorithm": _algorithm(
                "luspo",
                {"advantage": "normalise-then-sum", "beta": 0.1, "correction": "tis", "correction_level": "seq_sum"},
                sampling_logprobs="behaviour",
            ),
            "rollout": {"repetition_penalty": 1.3, "temperature": 0.9, "top_p": 0.95},
            "optimizer": {
                "name": "adamw",
                "weight_decay": 0.05,
                "schedule": "linear",
                "warmup_steps": 1,
                "max_gradient_norm": 0.05,
            },
            "loop": {"minibatches": 3},
        },
        family="cohere",
        label="logit-scale",
    ),
    _case(
        "reinforce-stored",
        {
            "algorithm": _algorithm(
                "reinforce++",
                {"entropy_bonus": 0.05, "beta": 0.1, "correction": "mis", "correction_high": 1.2},
                old_logprobs="stored",
                sampling_logprobs="behaviour",
            ),
            "rollout": {"samples_per_prompt": 1, "temperature": 0.8, "top_p": 0.9},
            "optimizer": {
                "name": "adamw",
                "weight_decay": 0.1,
                "schedule": "cosine",
                "warmup_steps": 1,
                "max_gradient_norm": 0.05,
            },
            "data": {"validation_rows": 0},
            "loop": {"prompts_per_step": 5, "micro_batch_rows": 2, "evaluate_every_steps": 0},
        },
        stops=(3,),
        prepended=True,
        **SMALL,
    ),
    _case(
        "ppo-dora",
        {
            "adapter": {"kind": "dora"},
            "algorithm": _algorithm("ppo", {"beta": 0.1}),
            "optimizer": {"name": "muon", "momentum": 0.9, "learning_rate": 3e-3},
            "loop": {"iterations": 2, "micro_batch_rows": 5},
        },
        stops=(2,),
        **SMALL,
    ),
    _case(
        "dpo",
        {
            "algorithm": _algorithm("dpo", {"beta": 0.5, "label_smoothing": 0.2}),
            "data": {**ROWS, "chosen_column": "chosen", "rejected_column": "rejected"},
            "rollout": {"samples_per_prompt": 2, "max_tokens": 24},
            "rewards": {"functions": None},
            "loop": {"iterations": 2, "micro_batch_rows": 3},
        },
        stops=(3,),
        ends=True,
        **SMALL,
    ),
    _case(
        "online-dpo-tied",
        {
            "algorithm": _algorithm("online_dpo", {"loss": "ipo", "ipo_lengths": "mean"}, scoring_temperature=0.7),
            "rollout": {"samples_per_prompt": 2},
            "loop": {"iterations": 2, "minibatches": 2},
        },
        ends=True,
        family="gemma3_text",
        label="tied",
    ),
    _case(
        "best-of-n-dropout",
        {
            "adapter": {"dropout": 0.3},
            "algorithm": _algorithm("best_of_n"),
            "loop": {"micro_batch_rows": 5, "iterations": 2},
            "data": ROWS,
            "rewards": {"functions": [MARKED]},
        },
        stops=(1,),
    ),
)


def rng(t: Trial) -> np.random.Generator:
    """Return a generator of the directions, a function of the case's draws."""
    return np.random.default_rng(t.inputs["tables"]["data"]["seed"])


__all__ = ["CASES", "Array", "replayed", "rng", "tables"]
