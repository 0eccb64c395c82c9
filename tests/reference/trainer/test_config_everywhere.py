"""A key is refused exactly where it changes nothing: every key of every section and of every algorithm, beside many others."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
import runs
import test_config_keys

from gates_reference.trainer.algorithms import registry
from gates_reference.trainer.config import algorithm, read, unused
from gates_reference.trainer.config.errors import ConfigurationError
from gates_reference.trainer.data.rows import DataError

Tables = dict[str, dict[str, Any]]
pytestmark = pytest.mark.slow

SETTINGS: Mapping[str, tuple[Any, ...]] = {
    "aggregation": ("row-sum", "constant", "width", "global", "group"),
    "beta": (0.3,),
    "kl_estimator": ("k1", "k2", "k3"),
    "kl_ratio": ("token", "sequence"),
    "kl_in_reward": (True,),
    "advantage": ("normalise-then-sum",),
    "advantage_scale": ("group", "batch", "none"),
    "advantage_ddof": (0,),
    "advantage_epsilon": (0.5,),
    "advantage_epsilon_mode": ("inside", "threshold"),
    "advantage_baseline": ("mean", "leave-one-out", "batch"),
    "correction": ("tis", "mis"),
    "correction_level": ("token", "seq_sum"),
    "correction_low": (1.0,),
    "correction_high": (0.99,),
    "entropy_share": (0.5,),
    "entropy_bonus": (0.1,),
    "mask_truncated_completions": (True,),
    "epsilon_low": (1e-6,),
    "epsilon_high": (1e-6,),
    "delta": (),  # no ratio comes so far in three updates; test_algorithms_options.py has one that does
    "bound": ("absolute",),
    "k_positive": (1.0,),
    "lambda_positive": (1.0,),
    "k_negative": (1.0,),
    "lambda_negative": (1.0,),
    "temperature_positive": (2.0,),
    "temperature_negative": (2.0,),
    "dynamic_sampling": ("accuracy",),
    "overlong_limit": (5,),
    "overlong_buffer": (4,),
    "overlong_weight": (0.5,),
    "loss": ("hinge", "ipo"),
    "label_smoothing": (0.2,),
    "ipo_lengths": ("mean",),
    "reference_free": (True,),
}
BESIDE: Mapping[str, Mapping[str, Any]] = {
    "nothing": {},
    "kl": {"beta": 0.1},
    "unscaled": {"advantage_scale": "none"},
    "scaled": {"advantage_scale": "group", "advantage_epsilon": 0.1},
    "each-function": {"advantage": "normalise-then-sum"},
    "corrected": {"correction": "tis", "correction_level": "seq_sum", "correction_high": 1.0},
    "overlong": {"overlong_limit": 5, "overlong_buffer": 3},
}
PAIRS: Tables = {
    "data": {"kind": "jsonl", "path": "PAIRS", "chosen_column": "chosen", "rejected_column": "rejected"},
    "rollout": {"samples_per_prompt": 2, "path": "auto"},
    "algorithm": {"name": "dpo", "settings": {}},
    "rewards": {"functions": [{"name": "accuracy"}]},
}
ALONGSIDE: Mapping[str, Tables] = {
    "rollouts": {},
    "pairs": PAIRS,
    "pairs-scored-elsewhere": {**PAIRS, "algorithm": {**PAIRS["algorithm"], "scoring_temperature": 2.0}},
    "greedy": {
        "rollout": {"temperature": 0.0, "samples_per_prompt": 1},
        "algorithm": {"name": "best_of_n", "settings": {}},
    },
    "stored": {"algorithm": {"settings": {}, "old_logprobs": "stored"}},
    "best-of-n": {"algorithm": {"name": "best_of_n", "settings": {}}},
}
OFTEN = {"grpo", "dpo"}
"""Algorithms that `make test` tries, one that samples and one of pairs; test_algorithms_options.py has all of them without a run."""
MORE = {"grpo", "rloo", "dapo"}
"""Algorithms whose settings are tried beside others too; their rules are those of all."""
SAMPLE = {("grpo", "kl")}
"""Of these, what `make test` tries; `make record` tries all."""
Look = Callable[[Tables], Any]


@pytest.fixture(scope="module")
def look(tmp_path_factory: pytest.TempPathFactory) -> Look:
    """What a user can see of a run with these tables, nothing refused for being read by nothing; each is made once."""
    folder = tmp_path_factory.mktemp("everywhere")
    rows = [{"prompt": f"{n}+1=", "chosen": str(n + 1), "rejected": "never"} for n in range(12)]
    (folder / "pairs.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    made: dict[str, Any] = {}

    def seen(changed: Tables) -> Any:
        name = json.dumps(changed, sort_keys=True)
        if name not in made:
            there = folder / str(len(made)) / "run"
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(unused, "sentences", lambda *_: [])
                patch.setattr(unused, "settings", lambda *_: [])
                try:
                    runs.train(read.validate(_tables(there, changed)))
                except DataError as error:  # a completion of the data that has too many tokens
                    return made.setdefault(name, str(error))
            used = json.loads((there / "used.json").read_text())
            listed = sorted(path.relative_to(there).as_posix() for path in there.rglob("*") if path.is_dir())
            made[name] = (runs.digests(there), listed, used["rollout_paths"], used["head_calls"])
        return made[name]

    return seen


LAYERS = "adapter.layers"
DEEP: Tables = {"model": {"tiny": {"hidden": 32, "layers": 2}}}  # elsewhere one layer is enough, and a third faster


def _tables(there: Path, changed: Tables) -> Tables:
    small: Tables = {
        "model": {"tiny": {"hidden": 32, "layers": 1}},
        "loop": {"steps": 1, "iterations": 3, "prompts_per_step": 2, "evaluate_every_steps": 1},
    }
    joined = {name: {**small.get(name, {}), **changed.get(name, {})} for name in {**small, **changed}}
    tables = runs.tables(there, **joined)
    if tables["data"].get("path") == "PAIRS":
        tables["data"]["path"] = str(there.parents[1] / "pairs.jsonl")
    return tables


def _judged(tables: Tables) -> str:
    """What is said of a configuration: "" if nothing, otherwise the whole message."""
    try:
        algorithm.create(read.validate(tables))
    except ConfigurationError as error:
        return str(error)
    return ""


def _mistakes(look: Look, folder: Path, before: Tables, changes: Iterator[tuple[str, Tables]]) -> list[str]:
    """The keys that are refused and would do something, and those that are accepted and do nothing.

    A change that is refused for another key, or for another reason, is no mistake of either kind.
    """
    found: list[str] = []
    there = folder / "0" / "run"
    for name, after in changes:
        said = _judged(_tables(there, after))
        inert_here = re.search(rf"{re.escape(name)} is .* nothing reads it", said) is not None
        if (said and not inert_here) or _tables(there, after) == _tables(there, before):
            continue
        moves = look(after) != look(before)
        if moves == inert_here:
            found.append(f"{name}: {'refused, and does something' if moves else 'accepted, and does nothing'}")
    return found


SAME = {("dynamic_sampling", "accuracy"), ("bnpo-trl", "aggregation"), ("aggregation", "width")}
"""Coincidences of this small run (a model without a right answer; micro-batches with as many tokens; a longest completion of
`max_tokens`, so that the width is Dr. GRPO's constant): test_algorithms_options.py has all three."""


def _algorithm(name: str, settings: Mapping[str, Any]) -> Tables:
    functions = [{"name": "accuracy"}, {"name": "diversity"}, {"name": "regex", "pattern": "[a-m]"}]
    size = 2 if name in {"dpo", "online_dpo"} else 4
    return {
        "algorithm": {"name": name, "settings": dict(settings)},
        "rollout": {"samples_per_prompt": size, "top_k": 40, "stop_ids": list(range(3, 40))},
        "rewards": {"functions": functions},
        "optimizer": {"learning_rate": 5e-2},  # so that ratios come to every other bound
        "loop": {"micro_batch_rows": 4},  # so that means of parts are not those of the step
    }


@pytest.mark.parametrize(
    ("name", "beside"),
    [
        pytest.param(
            name,
            beside,
            marks=() if (beside == "nothing" and name in OFTEN) or (name, beside) in SAMPLE else pytest.mark.long,
        )
        for name in registry.ALGORITHMS
        for beside in BESIDE
        if beside == "nothing" or name in MORE
    ],
)
def test_settings_of_an_algorithm(look: Look, tmp_path: Path, name: str, beside: str) -> None:
    """Every other value of every setting, beside some that are set."""
    kind = registry.settings_of(name)
    usual = {one.name: one.default for one in fields(kind) if one.default is not MISSING}
    if set(BESIDE[beside]) - set(usual):
        pytest.skip("the algorithm has no such setting")
    base = {key: value for key, value in BESIDE[beside].items() if usual[key] != value}
    before = _algorithm(name, base)
    if _judged(_tables(tmp_path / "0" / "run", before)):
        pytest.skip("refused for another reason")

    def changes() -> Iterator[tuple[str, Tables]]:
        for key, default in usual.items():
            for value in SETTINGS[key]:
                if value not in {base.get(key, default), default} and not SAME & {(key, value), (name, key)}:
                    yield f"settings.{key}", _algorithm(name, {**base, key: value})

    found = _mistakes(look, tmp_path, before, changes())
    assert not found, "; ".join(found)


@pytest.mark.parametrize(
    "alongside",
    [pytest.param(name, marks=() if name in {"rollouts", "pairs"} else pytest.mark.long) for name in ALONGSIDE],
)
def test_keys_of_the_sections(look: Look, tmp_path: Path, alongside: str) -> None:
    before = ALONGSIDE[alongside]

    def put(tables: Tables, path: list[str], value: Any) -> Tables:
        first, *rest = path
        return {**tables, first: put(tables.get(first, {}), rest, value) if rest else value}

    def changes(start: Tables, *, of_layers: bool) -> Iterator[tuple[str, Tables]]:
        for key in test_config_keys.KEYS:
            if not key.with_ and (key.name == LAYERS) is of_layers:
                yield key.name, put(start, key.name.split("."), key.value)

    found = _mistakes(look, tmp_path, before, changes(before, of_layers=False))
    deep = {**before, **DEEP}
    found += _mistakes(look, tmp_path, deep, changes(deep, of_layers=True))
    assert not found, "; ".join(found)
