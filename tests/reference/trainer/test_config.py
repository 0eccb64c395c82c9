"""The configuration: what is refused and how it is said, overrides, and the round trip through TOML."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from gates_reference.trainer.config import algorithm, read, unused, write
from gates_reference.trainer.config.errors import ConfigurationError

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("*.toml"))


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"lop": {}}, "the configuration has no 'lop', did you mean 'loop'; legal are adapter, algorithm, data"),
        ({"loop": {"setps": 3}}, "section [loop] has no 'setps', did you mean 'steps'; legal are"),
        ({"optimizer": {"lr": 1.0}}, "section [optimizer] has no 'lr'"),
        (
            {"rewards": {"functions": [{"name": "regex", "pattern": "a", "limit": 1}]}},
            "section [rewards.functions.0.regex] has no 'limit', did you mean 'limit_seconds'; legal are limit_seconds, name",
        ),
        (
            {"rewards": {"functions": [{"name": "acuracy"}]}},
            "rewards.functions.0.name has no 'acuracy', did you mean 'accuracy'; legal are accuracy, diversity, format",
        ),
        ({"algorithm": {"beta": 0.1}}, "an algorithm's own settings, such as beta, go into algorithm.settings"),
        ({"rewards": {"functions": []}}, "rewards.functions: List should have at least 1 item"),
        ({"loop": {"steps": "3"}}, "loop.steps: Input should be a valid integer, found '3'"),
        ({"loop": {"steps": 0}}, "loop.steps: Input should be greater than or equal to 1, found 0"),
        ({"loop": {"steps": True}}, "loop.steps: Input should be a valid integer"),
        ({"rollout": {"top_p": 0.0}}, "rollout.top_p"),
        ({"rollout": {"kv_bits": 5}}, "rollout.kv_bits"),
        ({"data": {"kind": "json"}}, "data of kind 'json' needs a path"),
        ({"data": {"path": "x"}}, "data of kind 'sums' has no path"),
        ({"data": {"system_prompt": "x"}}, "system_prompt needs chat = true"),
        ({"data": {"chat_options": {"enable_thinking": False}}}, "chat_options needs chat = true"),
        ({"model": {"path": "a/b", "tiny": {"hidden": 8}}}, "both name a model"),
        ({"model": {"path": "a/b", "warmup": {}}}, "'warmup' makes a tiny model; remove it, or 'path'"),
        ({"model": {"warmup": {"step": 3}}}, "section [model.warmup] has no 'step', did you mean 'steps'"),
        ({"model": {"warmup": {"wrong": 1.0}}}, "model.warmup.wrong: Input should be less than 1, found 1.0"),
        ({"loop": {"head_rows": -1}}, "loop.head_rows: Input should be greater than or equal to 0, found -1"),
        (
            {"optimizer": {"max_gradient_norm": float("inf")}},
            "optimizer.max_gradient_norm: must be a finite number > 0, or 'off' for no limit, found inf",
        ),
        ({"optimizer": {"max_gradient_norm": 0.0}}, "or 'off' for no limit, found 0.0"),
        ({"optimizer": {"max_gradient_norm": "of"}}, "or 'off' for no limit, found 'of'"),
        ({"optimizer": {"max_gradient_norm": True}}, "or 'off' for no limit, found True"),
        ({"optimizer": {"learning_rate": float("inf")}}, "learning_rate: Input should be a finite number, found inf"),
        ({"optimizer": {"betas": [1.0, 0.9]}}, "optimizer.betas.0: Input should be less than 1, found 1.0"),
        ({"optimizer": {"betas": [0.9, 1.0]}}, "optimizer.betas.1: Input should be less than 1, found 1.0"),
        (
            {"rewards": {"functions": [{"name": "accuracy", "weight": float("nan")}]}},
            "weight: Input should be a finite number, found nan",
        ),
        ({"loop": {"minibatches": 9}}, "loop.minibatches is 9, must be at most loop.prompts_per_step = 4"),
        ({"loop": {"evaluate_every_steps": 2}}, "needs data.validation_rows >= 1"),
        (
            {"algorithm": {"old_logprobs": "stored", "scoring_temperature": 0.5}},
            "the sampler stores log-probs at 1 and at rollout.temperature = 1.0",
        ),
        (
            {"rollout": {"temperature": 0.0}},
            "rollout.temperature is 0 and rollout.samples_per_prompt 4: the completions of a prompt would all be the same",
        ),
        (
            {"algorithm": {"old_logprobs": "stored"}, "rollout": {"temperature": 0.0, "samples_per_prompt": 1}},
            "needs rollout.temperature > 0",
        ),
        ({"algorithm": {"old_logprobs": "stored"}, "rollout": {"kv_bits": 8}}, "remove rollout.kv_bits"),
        ({"rollout": {"kv_bits": 8, "path": "batched"}}, "one of auto, cached, prefix, found 'batched'"),
        (
            {"optimizer": {"weight_decay": 0.1}},
            "optimizer.weight_decay is 0.1 and nothing reads it; remove it, or set optimizer.name = 'adamw'",
        ),
        ({"optimizer": {"momentum": 0.9}}, "set optimizer.name = 'sgd' or 'muon'"),
        ({"optimizer": {"name": "sgd", "betas": [0.5, 0.9]}}, "optimizer.betas is (0.5, 0.9) and nothing reads it"),
        ({"optimizer": {"name": "muon", "epsilon": 1e-3}}, "optimizer.epsilon is 0.001 and nothing reads it"),
        ({"optimizer": {"final_share": 0.1}}, "set optimizer.schedule = 'linear' or 'cosine'"),
        ({"data": {"kind": "jsonl", "path": "x", "style": "worded"}}, "set data.kind = 'sums'"),
        ({"data": {"kind": "jsonl", "path": "x", "sums_seed": 1}}, "data.sums_seed is 1 and nothing reads it"),
        ({"data": {"split": "test"}}, "set data.kind = 'datasets'"),
        ({"rollout": {"xtc_threshold": 0.2}}, "set rollout.xtc_probability > 0"),
        ({"algorithm": {"sampling_logprobs": "behaviour"}}, "set algorithm.settings.correction"),
        ({"output": {"completions_every_steps": 0, "completions_rows": 9}}, "set output.completions_every_steps >= 1"),
        ({"output": {"wandb_project": "mine"}}, "set output.wandb = true"),
    ],
    ids=lambda value: str(value)[:50] if isinstance(value, dict) else "",
)
def test_a_mistake_is_a_sentence(raw: dict[str, Any], words: str) -> None:
    """It names the place, what was found and what is legal."""
    with pytest.raises(ConfigurationError) as error:
        read.validate(raw)
    assert words in str(error.value)


def test_key_is_unused_only_beside_certain_others() -> None:
    """With what reads them all of these are right; a default that is written out, as --dry-run does, is no mistake."""
    read.validate({"optimizer": {"name": "adamw", "weight_decay": 0.1, "momentum": 0.0}})
    read.validate({"optimizer": {"schedule": "linear", "final_share": 0.1}, "data": {"shuffle": False, "seed": 0}})
    dapo = {"name": "dapo", "settings": {"dynamic_sampling": "accuracy"}, "max_resamples": 2}
    assert algorithm.create(read.validate({"algorithm": dapo})).name == "dapo"


def test_all_mistakes_are_reported_at_once() -> None:
    with pytest.raises(ConfigurationError) as error:
        read.validate({"loop": {"steps": 0}, "data": {"shufle": True}})
    assert len(str(error.value).splitlines()) == 2


@pytest.mark.parametrize(
    ("setting", "place", "value"),
    [
        ("loop.steps=7", ("loop", "steps"), 7),
        ("optimizer.learning_rate=1e-3", ("optimizer", "learning_rate"), 1e-3),
        ("algorithm.name=dapo", ("algorithm", "name"), "dapo"),
        ('algorithm.name="dapo"', ("algorithm", "name"), "dapo"),
        ("data.shuffle=false", ("data", "shuffle"), False),
        ("rollout.stop_ids=[1, 2]", ("rollout", "stop_ids"), [1, 2]),
        ("rewards.functions.0.weight=2.0", ("rewards", "functions", 0, "weight"), 2.0),
        ("output.folder=a=b", ("output", "folder"), "a=b"),
    ],
)
def test_overrides(setting: str, place: tuple[Any, ...], value: object) -> None:
    """Values are TOML where they can be and text where not; dots go into tables, numbers into lists."""
    raw = read.override({"rewards": {"functions": [{"name": "accuracy"}]}}, [setting])
    here: Any = raw
    for step in place:
        here = here[step]
    assert here == value
    assert type(here) is type(value)


@pytest.mark.parametrize(
    "setting", ["loop.steps", "=3", "loop..steps=3", "loop.steps.x=3", "rewards.functions.5.weight=1"]
)
def test_wrong_overrides(setting: str) -> None:
    raw = {"loop": {"steps": 1}, "rewards": {"functions": [{"name": "accuracy"}]}}
    with pytest.raises(ConfigurationError) as error:
        read.override(raw, [setting])
    assert f"--set {setting}" in str(error.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"[loop\n", "is no TOML"), (b"\xff\xfe", "cannot be read"), (None, "cannot be read")],
    ids=["torn", "binary", "missing"],
)
def test_files_that_are_no_configuration(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "x.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=words):
        read.read(path)


OWN = {"name": "user", "function": "x:y", "unscored": True}
PAIR = {"algorithm": {"name": "online_dpo", "max_resamples": 2}, "rollout": {"samples_per_prompt": 2}}


@pytest.mark.parametrize(
    "raw",
    [
        {**PAIR, "rewards": {"functions": [OWN]}},
        {"algorithm": {"name": "best_of_n"}, "rollout": {"samples_per_prompt": 1}},
    ],
    ids=["unscored-pairs", "all-are-the-best"],
)
def test_max_resamples_and_group_size_are_accepted_where_they_matter(raw: dict[str, Any]) -> None:
    """Online DPO drops pairs that nothing scored, so that others may be drawn; the best of one is that one."""
    assert algorithm.create(read.validate(raw)).name == raw["algorithm"]["name"]


def test_no_limit_of_the_gradient_can_be_written() -> None:
    """TOML has no null: "off" is what None becomes, and it stands in the file that --dry-run writes."""
    for value in ("off", None):
        config = read.validate({"optimizer": {"max_gradient_norm": value}})
        text = write.toml(config.model_dump(mode="json"))
        assert 'max_gradient_norm = "off"' in text
        assert read.validate(tomllib.loads(text)) == config


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"algorithm": {"name": "online_dpo"}}, "group_size is 4, must be 2"),
        ({"algorithm": {"name": "rloo"}, "rollout": {"samples_per_prompt": 1}}, "group_size"),
        (
            {
                "algorithm": {"name": "dapo", "settings": {"dynamic_sampling": "accuracy"}},
                "rewards": {"functions": [{"name": "regex", "pattern": "a"}]},
            },
            "dynamic_sampling is 'accuracy'",
        ),
        ({"algorithm": {"name": "grpo", "max_resamples": 2}}, "'grpo' keeps every group"),
        ({**PAIR, "rewards": {"functions": [OWN, {"name": "accuracy"}]}}, "'online_dpo' keeps every group of these"),
        ({"rollout": {"samples_per_prompt": 1}}, "'grpo' compares the completions of a prompt; set it to 2 or more"),
        (
            {
                "algorithm": {"name": "grpo", "settings": {"advantage": "normalise-then-sum"}},
                "rollout": {"samples_per_prompt": 1},
            },
            r"rollout\.samples_per_prompt is 1, so that every advantage is 0",
        ),
    ],
    ids=["pairs", "others", "accuracy", "resamples", "always-scored", "alone", "alone-by-function"],
)
def test_algorithms_are_tried_on_the_shape_of_the_rewards(raw: dict[str, Any], words: str) -> None:
    """A group size or a reward function that the algorithm cannot do with is told before a model loads."""
    with pytest.raises(ConfigurationError, match=words):
        algorithm.create(read.validate(raw))


@pytest.mark.parametrize("correction", ["tis", "mis"])
@pytest.mark.parametrize(
    ("drawn", "scored", "against", "right"),
    [
        (0.8, 0.5, "tempered", False),
        (1.0, 0.5, "tempered", False),
        (0.8, None, "tempered", True),
        (0.8, 1.0, "tempered", True),
        (0.8, 0.8, "tempered", True),
        (0.8, 0.5, "behaviour", True),
        (1.0, 0.5, "behaviour", True),
    ],
)
def test_a_correction_is_against_log_probs_that_are_recorded(
    correction: str, drawn: float, scored: float | None, against: str, right: bool
) -> None:
    """The sampler's unfiltered log-probs are there at 1 and at its own temperature; those of its draws at no other."""
    section = {"settings": {"correction": correction}, "scoring_temperature": scored, "sampling_logprobs": against}
    raw = {"rollout": {"temperature": drawn}, "algorithm": section}
    if right:
        assert algorithm.create(read.validate(raw)).needs_sampling
        return
    with pytest.raises(ConfigurationError) as error:
        read.validate(raw)
    assert f"settings.correction is '{correction}' and algorithm.scoring_temperature {scored}" in str(error.value)
    assert f"at 1 and at rollout.temperature = {drawn}" in str(error.value)


STORED = '[algorithm]\nold_logprobs = "stored"\n'
PAIRED = '[data]\nkind = "jsonl"\npath = "x"\nchosen_column = "a"\nrejected_column = "b"\n'
GREEDY = ["rollout.temperature=0", "rollout.samples_per_prompt=1"]


class TestLookingAtARun:
    """`gates trainer evaluate` and `gates trainer generate` compute neither advantages nor old log-probs, so they need not be possible."""

    @pytest.mark.parametrize(
        ("text", "asked", "words"),
        [
            ('[algorithm]\nname = "rloo"\n', GREEDY, "must be at least 2"),
            ('[algorithm]\nname = "online_dpo"\n[rollout]\nsamples_per_prompt = 2\n', GREEDY, "must be 2"),
            (STORED, GREEDY, "needs rollout.temperature > 0"),
            (STORED, ["rollout.kv_bits=8"], "remove rollout.kv_bits"),
            (
                STORED + "scoring_temperature = 0.7\n[rollout]\ntemperature = 0.7\n",
                ["rollout.temperature=1.5"],
                "stores",
            ),
            ("[loop]\nminibatches = 2\n", ["loop.prompts_per_step=1"], "loop.minibatches is 2"),
            (
                "[data]\nvalidation_rows = 9\n[loop]\nevaluate_every_steps = 5\n",
                ["data.validation_rows=0"],
                "needs data.validation_rows",
            ),
            (
                '[algorithm.settings]\ncorrection = "tis"\n[algorithm]\nsampling_logprobs = "behaviour"\n[rollout]\ntop_k = 5\n',
                ["rollout.top_k=0"],
                "algorithm.sampling_logprobs is 'behaviour' and nothing reads it",
            ),
            (
                'rewards.functions = [{name = "regex", pattern = "a"}]\n[algorithm]\nname = "dapo"\n',
                ["algorithm.settings.dynamic_sampling=accuracy"],
                "Rewards.accuracy is None",
            ),
        ],
        ids=[
            "rloo",
            "online-dpo",
            "greedy",
            "quantised",
            "tempered",
            "minibatches",
            "no-rows",
            "unfiltered",
            "accuracy",
        ],
    )
    @pytest.mark.parametrize("verb", ["evaluate", "generate"])
    def test_it_takes_what_training_refuses(
        self, tmp_path: Path, verb: unused.Verb, text: str, asked: list[str], words: str
    ) -> None:
        """The documented greedy evaluation of any run among them."""
        path = tmp_path / "run.toml"
        path.write_text(text)
        assert algorithm.create(read.read(path, asked, verb), verb).name
        with pytest.raises(ConfigurationError) as error:
            algorithm.create(read.read(path, asked))
        assert words in str(error.value)

    @pytest.mark.parametrize("verb", ["evaluate", "generate"])
    def test_it_refuses_what_no_command_can_do(self, tmp_path: Path, verb: unused.Verb) -> None:
        """An algorithm, or a setting, that there is not; draws with caches that the path has not."""
        path = tmp_path / "run.toml"
        path.write_text("")
        for setting in ("algorithm.name=grop", "algorithm.settings.epsilon=0.1"):
            with pytest.raises(ConfigurationError, match="did you mean"):
                algorithm.create(read.read(path, [setting], verb), verb)
        with pytest.raises(ConfigurationError, match="no quantised caches"):
            read.read(path, ["rollout.kv_bits=8", "rollout.path=batched"], verb)

    def test_pairs_are_pairs_where_they_are_read(self, tmp_path: Path) -> None:
        """`gates trainer evaluate` scores the two completions of the data, `gates trainer generate` draws as many as it is asked for."""
        path = tmp_path / "run.toml"
        path.write_text(PAIRED + '[rollout]\nsamples_per_prompt = 2\n[algorithm]\nname = "dpo"\n')
        asked = ["rollout.samples_per_prompt=5"]
        assert read.read(path, asked, "generate").rollout.samples_per_prompt == 5
        with pytest.raises(ConfigurationError, match=r"set rollout\.samples_per_prompt = 2, found 5"):
            read.read(path, asked, "evaluate")


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"name": "grop"}, "did you mean 'grpo'"),
        ({"name": "grpo", "settings": {"epsilon": 0.1}}, "grpo.epsilon is unknown"),
        ({"name": "grpo", "settings": {"beta": -1.0}}, "grpo.beta"),
        ({"name": "grpo", "settings": {"kl_estimator": "k1"}}, r"kl_estimator is 'k1' and .* set settings\.beta"),
        ({"name": "grpo", "settings": {"correction_low": 0.5}}, r"correction_low is 0\.5 .* settings\.correction"),
        ({"name": "dapo", "settings": {"overlong_buffer": 9}}, r"overlong_buffer is 9 .* settings\.overlong_limit"),
    ],
    ids=["name", "key", "value", "kl", "correction", "overlong"],
)
def test_algorithms_are_checked_before_a_model_loads(section: dict[str, Any], words: str) -> None:
    """The registry's own sentence, under the section's name."""
    with pytest.raises(ConfigurationError, match=words) as error:
        algorithm.create(read.validate({"algorithm": section}))
    assert str(error.value).startswith("[algorithm]")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_valid_and_survive_writing(path: Path) -> None:
    """Each example is a whole configuration with a known algorithm; written out in full and read again it is the same."""
    config = read.read(path)
    assert algorithm.create(config).name == config.algorithm.name
    again = read.validate(tomllib.loads(write.toml(config.model_dump(mode="json"))))
    assert again == config


def test_there_are_examples() -> None:
    assert [path.stem for path in EXAMPLES] == ["own-data", "qwen3-0.6b-4bit", "qwen3.5-9b-checkpointed", "tiny"]
