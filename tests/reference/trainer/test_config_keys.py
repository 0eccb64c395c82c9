"""Every key of the configuration has an effect: changed alone, something that a user can see is different."""

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import pytest
import runs
from pydantic import BaseModel

from gates_reference.trainer.config import functions, read, sections
from gates_reference.trainer.config.errors import ConfigurationError, TrainerError
from gates_reference.trainer.metrics import callbacks

ONE = {"loop": {"steps": 1, "evaluate_every_steps": 0}}


@dataclass(frozen=True)
class Key:
    """A key, another value of it, what else must be set for it to matter, and what is looked at."""

    name: str
    value: Any
    seen: str = "metrics"
    with_: dict[str, dict[str, Any]] = field(default_factory=dict)


def _metrics(folder: Path) -> Any:
    return [{k: v for k, v in line.items() if k != "step"} for line in runs.lines(folder)]


SEEN: dict[str, Callable[[Path], Any]] = {
    "metrics": _metrics,
    "steps": lambda folder: len(runs.lines(folder)),
    "evaluations": lambda folder: runs.lines(folder, "evaluations"),
    "completions": lambda folder: runs.lines(folder, "completions"),
    "files": lambda folder: sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_dir()),
    "paths": lambda folder: json.loads((folder / "used.json").read_text())["rollout_paths"],
    "targets": lambda folder: json.loads((folder / "used.json").read_text())["adapter"]["targets"],
    "adapters": lambda folder: json.loads((folder / "used.json").read_text())["end"]["adapter_digest"],
    "start": lambda folder: json.loads((folder / "used.json").read_text())["adapter"]["start_digest"],
    "base": lambda folder: json.loads((folder / "used.json").read_text())["model"]["base_digest"],
    "head": lambda folder: json.loads((folder / "used.json").read_text())["head_calls"],
}
MORE = {"loop": {"steps": 3, "evaluate_every_steps": 0}}
WARMED = {"model": {"warmup": {"problems": 6, "steps": 2, "rows": 3}}}
KEYS = [
    Key("model.tiny", {"hidden": 32, "seed": 1}),
    Key("model.warmup", {"problems": 6, "steps": 2, "rows": 3}, "base"),
    Key("model.warmup.problems", 7, "base", with_=WARMED),
    Key("model.warmup.steps", 3, "base", with_=WARMED),
    Key("model.warmup.rows", 4, "base", with_=WARMED),
    Key("model.warmup.learning_rate", 1e-3, "base", with_=WARMED),
    Key("model.warmup.wrong", 0.0, "base", with_=WARMED),
    Key("model.warmup.seed", 1, "base", with_=WARMED),
    Key("model.warmup.data_seed", 1, "base", with_=WARMED),
    Key("adapter.kind", "dora", "targets_kind"),
    Key("adapter.rank", 3),
    Key("adapter.scale", 3.0),
    Key("adapter.seed", 1),
    Key("adapter.b_std", 0.1),
    Key("adapter.dropout", 0.3),
    Key("adapter.targets", ["q_proj"], "targets"),
    Key("adapter.embeddings", True, "targets"),
    Key("adapter.layers", 1, "targets"),
    Key("data.style", "worded"),
    Key("data.count", 6),
    Key("data.sums_seed", 1),
    Key("data.chat", True),
    Key("data.system_prompt", "Be brief.", with_={"data": {"chat": True}}),
    Key("data.shuffle", False),
    Key("data.seed", 1),
    Key("data.validation_rows", 5),
    Key("rollout.samples_per_prompt", 3),
    Key("rollout.max_tokens", 4),
    Key("rollout.temperature", 0.5),
    Key("rollout.top_p", 0.5),
    Key("rollout.top_k", 3),
    Key("rollout.min_p", 0.3),
    Key("rollout.xtc_probability", 1.0),
    Key("rollout.xtc_threshold", 0.02, with_={"rollout": {"xtc_probability": 1.0}}),
    Key("rollout.repetition_penalty", 5.0),
    Key("rollout.order", "mlx-lm", with_={"rollout": {"top_p": 0.5, "temperature": 2.0}}),
    Key("rollout.seed", 1),
    Key("rollout.path", "cached", "paths"),
    Key("rollout.stop_ids", list(range(3, 160))),
    Key("rollout.kv_bits", 8, with_={"rollout": {"path": "cached"}, "model": {"tiny": {"hidden": 64, "head_dim": 64}}}),
    Key("algorithm.name", "rloo"),
    Key("algorithm.settings", {"beta": 0.5}),
    Key("algorithm.old_logprobs", "stored"),
    Key(
        "algorithm.sampling_logprobs",
        "behaviour",
        with_={"rollout": {"top_k": 5}, "algorithm": {"settings": {"correction": "tis"}}},
    ),
    Key("algorithm.scoring_temperature", 0.5),
    Key(
        "algorithm.max_resamples",
        1,
        with_={
            "algorithm": {"name": "dapo", "settings": {"dynamic_sampling": "accuracy"}},
            "rewards": {"functions": [{"name": "accuracy"}]},
        },
    ),
    Key("optimizer.name", "sgd", "adapters"),
    Key("optimizer.learning_rate", 1e-3, "adapters"),
    Key("optimizer.schedule", "linear", with_=MORE),
    Key("optimizer.warmup_steps", 2),
    Key("optimizer.final_share", 0.5, with_={"optimizer": {"schedule": "linear"}, **MORE}),
    Key("optimizer.betas", [0.5, 0.999], "adapters", with_=MORE),
    Key("optimizer.epsilon", 1e-2, "adapters"),
    Key("optimizer.weight_decay", 0.5, "adapters", with_={"optimizer": {"name": "adamw"}}),
    Key("optimizer.momentum", 0.9, "adapters", with_={"optimizer": {"name": "sgd"}, **MORE}),
    Key("optimizer.max_gradient_norm", 1e-3, "adapters", with_={"optimizer": {"name": "sgd"}}),
    Key(
        "optimizer.max_gradient_norm",
        "off",
        "adapters",
        with_={"optimizer": {"name": "sgd", "max_gradient_norm": 1e-3}},
    ),
    Key("loop.steps", 2, "steps"),
    Key("loop.prompts_per_step", 3),
    Key("loop.iterations", 2),
    Key("loop.minibatches", 2),
    Key("loop.head_rows", 5, "head"),
    Key("loop.evaluate_every_steps", 1, "evaluations"),
    Key("rewards.functions", [{"name": "regex", "pattern": "[aeiou]"}]),
    Key("output.checkpoint_every_steps", 3, "files", with_=MORE),
    Key("output.keep_checkpoints", 1, "files", with_={"output": {"checkpoint_every_steps": 1}, **MORE}),
    Key("output.completions_every_steps", 1, "completions"),
    Key("output.completions_rows", 2, "completions", with_={"output": {"completions_every_steps": 1}}),
    Key("output.fused", True, "files"),
    Key("output.trace", True, "files"),
]
ELSEWHERE = {
    "model.path": "tests/gates/cli/test_cli.py, and below",
    "model.adapter_path": "below",
    "model.checkpoint_layers": "below: the same numbers, less memory",
    "adapter.routers": "test_adapters.py: a mixture of experts",
    "data.kind": "test_data.py",
    "data.path": "test_data.py",
    "data.split": "test_data.py",
    "data.prompt_column": "test_data.py",
    "data.answer_column": "test_data.py",
    "data.chat_options": "test_data.py",
    "data.chosen_column": "test_loop_pairs.py",
    "data.rejected_column": "test_loop_pairs.py",
    "data.max_prompt_tokens": "test_data.py",
    "data.too_long": "test_data.py",
    "loop.micro_batch_rows": "test_loop.py: the sums of the parts",
    "loop.nonfinite": "test_loop_updates.py",
    "output.dequantize": "test_export.py",
    "output.folder": "every test here",
    "output.console": "test_metrics.py",
    "output.tensorboard": "test_metrics.py",
    "output.wandb": "test_metrics.py",
    "output.wandb_project": "below",
}
SEEN["targets_kind"] = SEEN["start"]


def _run(folder: Path, extra: dict[str, dict[str, Any]]) -> None:
    """One step of the small run, changed; each section of `extra` is put over the small run's."""
    joined = {name: {**ONE.get(name, {}), **extra.get(name, {})} for name in ONE | extra}
    runs.train(runs.config(folder, **joined))


def _set(tables: dict[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    """The tables with this value at this path, everything beside it kept."""
    name, *rest = path
    return {**tables, name: _set(tables.get(name, {}), rest, value) if rest else value}


def _keys(section: type[BaseModel], prefix: str) -> set[str]:
    """Every key of a section and, after another dot, of the sections inside it."""
    found: set[str] = set()
    for key, info in section.model_fields.items():
        found.add(f"{prefix}.{key}")
        for kind in (info.annotation, *get_args(info.annotation)):
            if isinstance(kind, type) and issubclass(kind, sections.Section):
                found |= _keys(kind, f"{prefix}.{key}")
    return found


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Callable[[dict[str, dict[str, Any]]], Path]:
    """The folder of the unchanged run with what else must be set; each is made once."""
    made: dict[str, Path] = {}

    def folder(extra: dict[str, dict[str, Any]]) -> Path:
        name = hashlib.sha256(json.dumps(extra, sort_keys=True).encode()).hexdigest()[:8]
        if name not in made:
            made[name] = tmp_path_factory.mktemp(name) / "run"
            _run(made[name], extra)
        return made[name]

    return folder


@pytest.mark.parametrize("key", [key for key in KEYS if key.with_], ids=lambda key: key.name)
def test_a_key_has_an_effect(tmp_path: Path, plain: Callable[..., Path], key: Key) -> None:
    """The same run with this key alone changed shows something else; the others are tried by test_config_everywhere.py."""
    _run(tmp_path / "run", _set(key.with_, key.name.split("."), key.value))
    before, after = SEEN[key.seen](plain(key.with_)), SEEN[key.seen](tmp_path / "run")
    assert before != after


def test_no_key_is_forgotten() -> None:
    """Every key of every section is in the table above, or its test is named; and no entry is stale."""
    every: set[str] = set()
    for name, info in read.Config.model_fields.items():
        assert isinstance(info.annotation, type)
        assert issubclass(info.annotation, sections.Section)
        every |= _keys(info.annotation, name)
    assert every == {key.name for key in KEYS} | set(ELSEWHERE)
    assert issubclass(functions.Rewards, sections.Section)


def test_adapters_can_be_started_from(tmp_path: Path) -> None:
    """`model.adapter_path` starts from another run's adapters."""
    _run(tmp_path / "a", {})
    first = tmp_path / "a" / "checkpoints" / "step-00000001"
    saved = {"model": {"adapter_path": str(first)}, "adapter": {"b_std": 0.0}}  # saved values need no spread
    _run(tmp_path / "b", saved)
    assert SEEN["start"](tmp_path / "b") == SEEN["adapters"](tmp_path / "a") != SEEN["start"](tmp_path / "a")
    with pytest.raises(TrainerError, match="holds no adapters"):
        _run(tmp_path / "c", {**saved, "model": {"adapter_path": str(tmp_path / "none")}})


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("rank", 4, r"adapters of rank 2, and adapter\.rank is 4; set adapter\.rank = 2"),
        ("scale", 5.0, r"adapters of scale 2\.0, and adapter\.scale is 5\.0; set adapter\.scale = 2\.0"),
        ("kind", "dora", r"adapters of kind 'lora', and adapter\.kind is 'dora'; set adapter\.kind = \"lora\""),
        ("layers", 1, r"adapters in blocks \[0, 1\], and adapter\.layers = 1 puts them into \[1\]"),
    ],
)
def test_adapters_of_other_settings_are_refused(
    tmp_path: Path, plain: Callable[..., Path], key: str, value: Any, words: str
) -> None:
    """The values of a folder are those of one scale, rank, kind and number of layers; another one would be another policy."""
    first = plain({}) / "checkpoints" / "step-00000001"
    tables = {"model": {"adapter_path": str(first)}, "adapter": {"b_std": 0.0, key: value}}
    with pytest.raises(ConfigurationError, match=words):
        _run(tmp_path / "run", tables)


def test_adapters_without_their_settings_are_refused(tmp_path: Path, plain: Callable[..., Path]) -> None:
    """Without adapter_config.json nobody knows the scale."""
    shutil.copytree(plain({}) / "checkpoints" / "step-00000001", tmp_path / "saved")
    tables = {"model": {"adapter_path": str(tmp_path / "saved")}, "adapter": {"b_std": 0.0}}
    (tmp_path / "saved" / "adapter_config.json").write_text('{"lora_parameters": {"rank": 2}}')
    with pytest.raises(ConfigurationError, match=r"adapter_config\.json names no scale"):
        _run(tmp_path / "run", tables)
    (tmp_path / "saved" / "adapter_config.json").unlink()
    with pytest.raises(ConfigurationError, match=r"has no adapter_config\.json"):
        _run(tmp_path / "run", tables)


def test_checkpointing_changes_no_number(tmp_path: Path, plain: Callable[..., Path]) -> None:
    """Layers computed twice give the gradient of layers computed once, to rounding; and both trained."""
    _run(tmp_path / "run", {"model": {"checkpoint_layers": True}})
    (once,), (twice,) = runs.lines(plain({})), runs.lines(tmp_path / "run")
    assert once["gradient_norm"] == pytest.approx(twice["gradient_norm"], rel=1e-4)
    assert once["gradient_norm"] > 1e-4


def test_a_head_in_pieces_changes_no_number(tmp_path: Path, plain: Callable[..., Path]) -> None:
    """Five scored tokens at a time, the last piece shorter: the loss and its gradient to rounding, in so many calls."""
    _run(tmp_path / "run", {"loop": {"head_rows": 5}})
    (whole,), (pieces,) = runs.lines(plain({})), runs.lines(tmp_path / "run")
    for name in ("loss", "gradient_norm", "loss_kl"):
        assert pieces[name] == pytest.approx(whole[name], rel=1e-4, abs=1e-7), name
    tokens = round(whole["length_mean"] * 8)  # two prompts, four completions each
    assert SEEN["head"](plain({})) == 1
    assert SEEN["head"](tmp_path / "run") == -(-tokens // 5)


def test_the_project_of_wandb_is_passed_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: dict[str, Any] = {}

    class Fake:
        def init(self, **options: Any) -> "Fake":
            asked.update(options)
            return self

    monkeypatch.setitem(__import__("sys").modules, "wandb", Fake())
    output = {"folder": str(tmp_path), "wandb": True, "console": False, "wandb_project": "mine"}
    (sink,) = callbacks.configured(sections.Output.model_validate(output), {})
    sink.start(0, 1)
    assert asked["project"] == "mine"
