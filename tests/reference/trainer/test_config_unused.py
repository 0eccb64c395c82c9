"""Keys beside which nothing reads them: refused, and rightly, for the run would end with the same bytes without them."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import runs

from gates_reference.trainer.config import algorithm, read, sections, unused
from gates_reference.trainer.config.errors import ConfigurationError
from gates_reference.trainer.loop import evaluate, generate

Tables = Mapping[str, Mapping[str, Any]]
SHALLOW = {"tiny": {"hidden": 32, "layers": 1}}  # a third faster than two layers, of which no key here asks
LOOP = {"steps": 2, "prompts_per_step": 2, "evaluate_every_steps": 2}
DEFAULT_REWARDS = {"functions": [{"name": "accuracy"}]}
PAIRS: Tables = {
    "data": {"kind": "jsonl", "path": "PAIRS", "chosen_column": "chosen", "rejected_column": "rejected"},
    "rollout": {"samples_per_prompt": 2, "path": "auto"},
    "algorithm": {"name": "dpo", "settings": {}},
    "rewards": DEFAULT_REWARDS,
}
GREEDY: Tables = {
    "rollout": {"temperature": 0.0, "samples_per_prompt": 1},
    "algorithm": {"name": "best_of_n", "settings": {}},
}
SAVED: Tables = {"model": {"adapter_path": "SAVED"}, "adapter": {"b_std": 0.0}}
TIS: Tables = {"algorithm": {"settings": {"correction": "tis", "correction_high": 1.0}}}
STORED: Tables = {"algorithm": {"old_logprobs": "stored", "settings": {}}, "loop": {"iterations": 2}}


def _settings(name: str, **settings: Any) -> Tables:
    return {"algorithm": {"name": name, "settings": settings}}


def _over(left: Tables, right: Tables) -> Tables:
    """The tables with the keys of `right` put over them, and those of an algorithm's settings too."""
    joined = {name: {**left.get(name, {}), **right.get(name, {})} for name in {**left, **right}}
    both = [tables.get("algorithm", {}).get("settings", {}) for tables in (left, right)]
    if any(both):
        joined["algorithm"]["settings"] = {**both[0], **both[1]}
    return joined


@dataclass(frozen=True)
class Key:
    """A key, a value, and tables beside which nothing reads it; test_config_keys.py shows that something else does."""

    name: str
    value: Any
    idle: Tables


KEYS: tuple[Key, ...] = (
    *(  # a filter is idle for pairs of the data, and where the likeliest token is taken
        Key(f"rollout.{name}", value, idle)
        for name, value in (("top_p", 0.5), ("top_k", 3), ("min_p", 0.3), ("seed", 1))
        for idle in (PAIRS, GREEDY)
    ),
    Key("rollout.xtc_probability", 1.0, PAIRS),
    Key("rollout.xtc_probability", 1.0, GREEDY),
    Key("rollout.xtc_threshold", 0.02, {}),
    Key("rollout.order", "mlx-lm", PAIRS),
    Key("rollout.order", "mlx-lm", GREEDY),
    Key("rollout.order", "mlx-lm", {"rollout": {"top_p": 0.5}}),
    Key("rollout.order", "mlx-lm", {"rollout": {"top_p": 0.5, "min_p": 0.01}}),
    Key("rollout.order", "mlx-lm", {"rollout": {"min_p": 0.1, "top_k": 9}}),
    Key("rollout.order", "mlx-lm", {"rollout": {"top_k": 9, "temperature": 0.7, "repetition_penalty": 1.3}}),
    Key("rollout.order", "mlx-lm", {"rollout": {"xtc_probability": 1.0, "top_p": 0.9}}),
    Key("rollout.repetition_penalty", 5.0, PAIRS),
    Key("rollout.stop_ids", list(range(3, 160)), PAIRS),
    Key("rollout.path", "naive", PAIRS),
    Key("rollout.kv_bits", 8, PAIRS),
    Key("rollout.temperature", 0.5, _over(PAIRS, {"algorithm": {"scoring_temperature": 2.0}})),
    Key("rollout.temperature", 0.0, PAIRS),
    Key("rewards.functions", [{"name": "regex", "pattern": "[aeiou]"}], PAIRS),
    Key("algorithm.max_resamples", 2, _over(PAIRS, _settings("dapo"))),
    Key("algorithm.settings.correction", "tis", _over(PAIRS, _settings("grpo"))),
    Key("algorithm.settings.correction", "mis", STORED),
    Key("algorithm.sampling_logprobs", "behaviour", TIS),
    Key("algorithm.sampling_logprobs", "behaviour", {"rollout": {"top_k": 5}}),
    Key("adapter.seed", 1, SAVED),
    Key("adapter.b_std", 0.2, SAVED),
    Key("optimizer.betas", [0.5, 0.9], {"optimizer": {"name": "sgd"}}),
    Key("optimizer.epsilon", 0.1, {"optimizer": {"name": "muon"}}),
    Key("optimizer.weight_decay", 0.5, {}),
    Key("optimizer.momentum", 0.9, {}),
    Key("optimizer.final_share", 0.5, {}),
    Key("data.style", "worded", PAIRS),
    Key("data.sums_seed", 1, PAIRS),
    Key("data.split", "test", {}),
    Key("output.completions_rows", 1, {"output": {"completions_every_steps": 0}}),
    Key("output.keep_checkpoints", 1, {"output": {"checkpoint_every_steps": 0}}),
    Key("output.dequantize", True, {}),
    Key("output.wandb_project", "mine", {}),
    Key("algorithm.settings.kl_estimator", "k2", _settings("dapo")),
    Key("algorithm.settings.kl_ratio", "token", _settings("dapo")),
    Key("algorithm.settings.advantage_ddof", 0, _settings("dr_grpo")),
    Key("algorithm.settings.advantage_ddof", 0, _settings("rloo")),
    Key("algorithm.settings.advantage_epsilon", 0.5, _settings("dr_grpo")),
    Key("algorithm.settings.advantage_epsilon_mode", "inside", _settings("dr_grpo")),
    Key("algorithm.settings.advantage_epsilon_mode", "inside", _settings("grpo", advantage_epsilon=0.0)),
    Key("algorithm.settings.advantage_epsilon_mode", "threshold", _settings("grpo", advantage_epsilon=0.0)),
    Key("algorithm.settings.advantage_scale", "batch", _settings("grpo", advantage="normalise-then-sum")),
    Key("algorithm.settings.advantage_baseline", "leave-one-out", _settings("grpo", advantage="normalise-then-sum")),
    Key("algorithm.settings.overlong_buffer", 4, _settings("dapo")),
    Key("algorithm.settings.overlong_weight", 0.5, _settings("dapo")),
)


def _set(tables: Tables, path: list[str], value: Any) -> Tables:
    """The tables with this value at this path."""
    first, *rest = path
    inside: Any = tables.get(first, {})
    return {**tables, first: _set(inside, rest, value) if rest else value}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pairs of completions and adapters of an earlier run lie."""
    made = tmp_path_factory.mktemp("inert")
    rows = [{"prompt": f"{n}+1=", "chosen": str(n + 1), "rejected": "no"} for n in range(12)]
    (made / "pairs.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    runs.train(runs.config(made / "saved", model=SHALLOW, loop={"steps": 1, "evaluate_every_steps": 0}))
    return made


Make = Callable[[Tables], dict[str, Any]]


@pytest.fixture(scope="module")
def tables(folder: Path) -> Make:
    """The tables of a small run with others put over them, in a folder of its own."""
    names = {"PAIRS": str(folder / "pairs.jsonl"), "SAVED": str(folder / "saved" / "checkpoints" / "step-00000001")}

    def make(changed: Tables) -> dict[str, Any]:
        small = runs.tables(folder / f"run-{len(list(folder.iterdir()))}", model=SHALLOW, loop=LOOP)
        joined = dict(_over(small, changed))
        if changed.get("algorithm", {}).get("name"):
            joined["algorithm"] = dict(changed["algorithm"])  # other algorithms have other settings
        for section in ("data", "model"):
            joined[section] = {k: names.get(str(v), v) for k, v in joined[section].items()}
        return joined

    return make


@pytest.fixture(scope="module")
def end(tables: Make) -> Callable[[Tables], dict[str, str]]:
    """The digests of what a run leaves; each is made once."""
    made: dict[str, dict[str, str]] = {}

    def digests(changed: Tables) -> dict[str, str]:
        name = json.dumps(changed, sort_keys=True)
        if name not in made:
            config = read.validate(tables(changed))
            runs.train(config)
            made[name] = runs.digests(Path(config.output.folder))
        return made[name]

    return digests


@pytest.fixture
def lenient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is refused for being read by nothing."""
    monkeypatch.setattr(unused, "sentences", lambda *_: [])
    monkeypatch.setattr(unused, "settings", lambda *_: [])
    yield
    monkeypatch.undo()


def _refused(raw: dict[str, Any]) -> str:
    """What is said of a configuration that is refused, and "" of another."""
    try:
        algorithm.create(read.validate(raw))
    except ConfigurationError as error:
        return str(error)
    return ""


def _id(key: Key) -> str:
    return f"{key.name}={key.value}"[:50]


@pytest.mark.parametrize("key", KEYS, ids=_id)
def test_unused_key_is_refused_with_a_remedy(tables: Make, key: Key) -> None:
    """The key is named with its value, and how it would be read; the rest of the configuration stands without it."""
    said = _refused(tables(_set(key.idle, key.name.split("."), key.value)))
    name = key.name.removeprefix("algorithm.") if ".settings." in key.name else key.name
    shown = {"functions": "set", "stop_ids": "set", "betas": "(0.5, 0.9)"}.get(name.rpartition(".")[2], repr(key.value))
    assert f"{name} is {shown} and nothing reads it; remove it, or " in said
    assert said.count("nothing reads it") == 1
    assert _refused(tables(key.idle)) == ""


IN_RUNS = [
    key for key in KEYS if key.name not in {"data.style", "data.sums_seed", "data.split", "output.wandb_project"}
]
"""Those are no business of a run's, but of what it reads and whom it tells."""


@pytest.mark.parametrize("key", IN_RUNS, ids=_id)
@pytest.mark.usefixtures("lenient")
def test_unused_key_does_not_change_the_run(end: Callable[[Tables], dict[str, str]], key: Key) -> None:
    """Were it not refused, the run would end with the same metrics, completions, adapters and optimizer."""
    assert end(_set(key.idle, key.name.split("."), key.value)) == end(key.idle)


READ: tuple[tuple[str, Any, Tables], ...] = (
    ("rollout.order", "mlx-lm", {"rollout": {"top_p": 0.3, "top_k": 40}}),
    ("rollout.order", "mlx-lm", {"rollout": {"min_p": 0.05, "temperature": 2.0}}),
    ("rollout.order", "mlx-lm", {"rollout": {"xtc_probability": 1.0, "xtc_threshold": 0.02, "top_k": 5}}),
    ("rollout.repetition_penalty", 5.0, GREEDY),
    ("rollout.stop_ids", list(range(3, 160)), GREEDY),
    ("rollout.temperature", 0.5, PAIRS),
    ("adapter.seed", 1, _over(SAVED, {"adapter": {"dropout": 0.3}})),
    ("algorithm.settings.correction", "mis", {"loop": {"iterations": 2}}),
    (
        "algorithm.sampling_logprobs",
        "behaviour",
        _over(TIS, {"rollout": {"temperature": 0.5}, "algorithm": {"scoring_temperature": 1.0}}),
    ),
    ("algorithm.settings.advantage_ddof", 0, _settings("rloo", advantage_scale="batch")),
)
"""Keys of the table above beside what reads them after all; test_config_keys.py has the keys that something always reads."""


@pytest.mark.parametrize(("name", "value", "beside"), READ)
def test_used_key_changes_the_run(
    end: Callable[[Tables], dict[str, str]], name: str, value: Any, beside: Tables
) -> None:
    """It is not refused for good: beside other keys it is accepted, and the run ends in another way."""
    assert end(_set(beside, name.split("."), value)) != end(beside)


MUTUAL: tuple[tuple[str, Tables, Tables], ...] = (
    ("rollout.xtc_probability", {"rollout": {"xtc_probability": 1.0, "xtc_threshold": 0.5}}, {}),
    ("settings.overlong_limit", _settings("dapo", overlong_limit=6, overlong_weight=0.0), _settings("dapo")),
)
"""Two keys of which each is nothing without the other, and that undo each other."""


@pytest.mark.parametrize(("name", "both", "neither"), MUTUAL, ids=["xtc", "overlong"])
def test_keys_that_cancel_each_other_are_refused(tables: Make, name: str, both: Tables, neither: Tables) -> None:
    """XTC at a threshold that two tokens cannot pass; a penalty of weight 0."""
    assert f"{name} is " in (said := _refused(tables(both)))
    assert said.count("nothing reads it") == 1
    assert _refused(tables(neither)) == ""


@pytest.mark.parametrize(("name", "both", "neither"), MUTUAL, ids=["xtc", "overlong"])
@pytest.mark.usefixtures("lenient")
def test_keys_that_cancel_each_other_do_not_change_the_run(
    end: Callable[[Tables], dict[str, str]], name: str, both: Tables, neither: Tables
) -> None:
    """The completions and adapters of the run without them; of the metrics, XTC moves the last digits of log-probs."""
    del name
    with_, without = ({k: v for k, v in end(one).items() if k != "metrics.jsonl"} for one in (both, neither))
    assert with_ == without


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"data": {"seed": 3, "shuffle": False, "validation_rows": 0}, "loop": {"evaluate_every_steps": 0}},
            "data.seed",
        ),
        ({"optimizer": {"schedule": "linear", "warmup_steps": 1}}, "no step after optimizer.warmup_steps = 1"),
        (
            {"rewards": {"functions": [{"name": "length", "max_tokens": 9, "margin_tokens": 3}]}},
            "rewards.functions.0 ('length') is 0 up to 6 tokens, and rollout.max_tokens is 6",
        ),
        (_settings("dapo", overlong_limit=9, overlong_buffer=3), "settings.overlong_limit is 9"),
        (_settings("grpo", epsilon_high=0.28), "settings.epsilon_high is 0.28 and each rollout gets one update"),
        (_settings("grpo", delta=3.0), "settings.delta is 3.0"),
        (_settings("cispo", epsilon_high=0.1), "settings.epsilon_high is 0.1"),
    ],
    ids=["seed", "schedule", "length", "overlong", "clip", "delta", "cispo"],
)
def test_key_without_effect_at_these_lengths_is_noted(tables: Make, changed: Tables, words: str) -> None:
    """It is no slip: a short run of a long one's configuration is accepted, and not in silence."""
    config = read.validate(tables(changed))
    (said,) = unused.notes(config, algorithm.create(config).settings)
    assert words in said


@pytest.mark.parametrize(
    "changed",
    [
        {"data": {"seed": 3, "shuffle": False}},
        {"optimizer": {"schedule": "linear"}},
        {"rewards": {"functions": [{"name": "length", "max_tokens": 8, "margin_tokens": 3}]}},
        _settings("dapo", overlong_limit=8, overlong_buffer=3),
        {**_settings("grpo", epsilon_high=0.28), "loop": {"minibatches": 2}},
        {"algorithm": {"name": "grpo", "settings": {"epsilon_high": 0.28}, "old_logprobs": "stored"}},
        _settings("cispo", epsilon_high=0.1, bound="absolute"),
        _settings("best_of_n"),
    ],
    ids=["seed", "schedule", "length", "overlong", "minibatches", "stored", "cispo", "nothing"],
)
def test_key_with_effect_is_not_noted(tables: Make, changed: Tables) -> None:
    config = read.validate(tables(changed))
    assert unused.notes(config, algorithm.create(config).settings) == []


def test_evaluate_and_generate_accept_a_runs_configuration(tmp_path: Path) -> None:
    """`gates trainer evaluate` and `gates trainer generate` refuse keys of the command line that they would not read, and tell of the file's."""
    path = tmp_path / "run.toml"
    path.write_text("[rollout]\ntop_p = 0.9\nseed = 7\n")
    greedy = ["rollout.temperature=0", "rollout.samples_per_prompt=1"]
    with pytest.raises(ConfigurationError, match=r"rollout\.top_p is 0\.9 and nothing reads it"):
        read.read(path, greedy)
    for verb in ("evaluate", "generate"):
        config = read.read(path, greedy, verb)
        said = unused.notes(config, None, read.reader(verb, greedy))
        assert [line.partition(" ")[0] for line in said] == ["rollout.top_p", "rollout.seed"]
        with pytest.raises(ConfigurationError) as error:
            read.read(path, [*greedy, "rollout.seed=8"], verb)
        assert str(error.value).count("nothing reads it") == 1
        assert "rollout.seed is 8" in str(error.value)


def test_generate_samples_with_a_configuration_for_pairs(tmp_path: Path) -> None:
    """A run on given pairs samples nothing; completions of its model are drawn as the command line says."""
    path = tmp_path / "run.toml"
    pairs = 'kind = "jsonl"\npath = "x.jsonl"\nchosen_column = "a"\nrejected_column = "b"'
    path.write_text(f'[data]\n{pairs}\n[rollout]\nsamples_per_prompt = 2\n[algorithm]\nname = "dpo"\n')
    asked = ["rollout.top_p=0.9"]
    for verb in ("train", "evaluate"):
        with pytest.raises(ConfigurationError, match=r"rollout\.top_p is 0\.9 and nothing reads it"):
            read.read(path, asked, verb)
    assert read.read(path, asked, "generate").rollout.top_p == 0.9


@pytest.mark.parametrize(
    ("verb", "unread"),
    [
        ("evaluate", ["algorithm.name", "loop.steps", "optimizer.learning_rate"]),
        ("generate", ["algorithm.name", "data.seed", "loop.prompts_per_step", "loop.steps", "optimizer.learning_rate"]),
    ],
)
def test_overridden_key_that_the_command_does_not_read_is_noted(
    tmp_path: Path, verb: unused.Verb, unread: list[str]
) -> None:
    """The settings that a run was started with may be repeated, to look at that run; none of them is taken in silence."""
    path = tmp_path / "run.toml"
    path.write_text("")
    keys = ["optimizer.learning_rate", "loop.steps", "loop.prompts_per_step", "data.seed", "rollout.max_tokens"]
    asked = ["algorithm.name=dapo", "output.folder=x", *(f"{key}=1" for key in keys)]
    config = read.read(path, asked, verb)
    said = unused.notes(config, None, read.reader(verb, asked))
    assert said == [f"{key} is set and `gates trainer {verb}` does not read it" for key in unread]


@pytest.mark.parametrize("verb", ["evaluate", "generate"])
def test_read_lists_exactly_the_keys_that_a_command_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: unused.Verb
) -> None:
    """Every field that the command looks at is of `READ`, and each of `READ` is looked at, of samples or of pairs."""
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text(json.dumps({"prompt": "1+1=", "chosen": "2", "rejected": "3"}) + "\n")
    situations: list[dict[str, Any]] = [
        {"data": {"count": 2, "validation_rows": 0}, "loop": {"evaluate_every_steps": 0}}
    ]
    if verb == "evaluate":
        own = {"data": {**PAIRS["data"], "path": str(pairs), "count": None, "validation_rows": 0}}
        situations.append({**PAIRS, **own, "loop": {"evaluate_every_steps": 0}})
    configs = [runs.config(tmp_path / str(number), **tables) for number, tables in enumerate(situations)]
    names = {id(getattr(config, name)): name for config in configs for name in read.Config.model_fields}
    looked: set[str] = set()
    plain = sections.Section.__getattribute__

    def spy(self: Any, name: str) -> Any:
        if id(self) in names and name in type(self).model_fields:
            looked.add(f"{names[id(self)]}.{name}")
        return plain(self, name)

    monkeypatch.setattr(sections.Section, "__getattribute__", spy)
    for config in configs:
        if verb == "evaluate":
            evaluate.run(config, None, base=True)
            evaluate.run(config, None, base=False)
        else:
            generate.run(config, ["1+1="], None, base=False)
    told = unused.READ[verb]
    assert {key for key in looked if not any(key == one or key.startswith(f"{one}.") for one in told)} == set()
    assert {one for one in told if not any(key == one or key.startswith(f"{one}.") for key in looked)} == set()
