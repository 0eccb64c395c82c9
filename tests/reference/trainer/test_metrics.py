"""Metrics: what the numbers of a step are, and where they go."""

import io
import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import runs

from gates_reference.oracle import ratio as oracle
from gates_reference.trainer.algorithms import protocol, registry
from gates_reference.trainer.config import sections
from gates_reference.trainer.config.errors import ConfigurationError
from gates_reference.trainer.data.prompts import Prompt
from gates_reference.trainer.engine.rollout import Generation
from gates_reference.trainer.engine.step import Clock, Learned, Update
from gates_reference.trainer.metrics import callbacks, numbers, progress
from gates_reference.trainer.rewards.samples import Sample

NAN = float("nan")


def _generation(values: list[list[float]], lengths: list[int], ended: list[bool]) -> Generation:
    """Two prompts with two completions each, rewards by two functions of weights 1 and 2."""
    prompts = [Prompt(n, "p", np.array([1], np.int32), None, {}) for n in range(2)]
    tempered = -np.arange(1.0, 13.0).reshape(4, 3) / 10
    return Generation(
        prompts=prompts,
        samples=[Sample("p", "c", n, None, row // 2, {}) for row, n in enumerate(lengths)],
        rewards=protocol.Rewards(np.array(values), np.array([1.0, 2.0]), 2, np.array(lengths)),
        tokens=np.zeros((4, 3), np.int32),
        lengths=np.array(lengths),
        ended=np.array(ended),
        model=tempered,
        temperature_scaled=tempered,
        behaviour=tempered,
        rounds=3,
        taken=6,
        dropped=4,
    )


GENERATION = _generation([[1, 0], [0, 0.5], [1, NAN], [NAN, NAN]], [3, 1, 2, 3], [True, True, False, False])


def test_the_numbers_by_hand() -> None:
    """Rewards 1, 1, 1 and unscored: mean 1, one group without a spread, and so on, all written out."""
    learned = Learned(np.array([1, -1, 0.5, 0], np.float32))
    learned.updates = [
        Update(1, 2, 3, 4, 5, skipped=False),
        Update(3, 2, 1, 0, 1, skipped=False),
        Update(NAN, 0, 0, 0, 0, skipped=True),
    ]
    found = numbers.of_step(GENERATION, learned, ["a", "b"], 0.1, registry.create("grpo", {}))
    expected = {
        "learning_rate": 0.1,
        "loss": 2,
        "loss_policy": 2,
        "loss_kl": 2,
        "loss_entropy": 2,
        "gradient_norm": 3,
        "updates": 2,
        "updates_skipped": 1,
        "reward_mean": 1,
        "reward_std": 0,
        "unscored_share": 0.25,
        "reward_a_mean": 2 / 3,
        "reward_b_mean": 0.25,
        "reward_b_std": 0.25,
        "zero_variance_groups": 2,
        "signal_share": 0,
        "advantage_mean": 0.125,
        "advantage_max_abs": 1,
        "tokens": 9,
        "length_mean": 2.25,
        "length_min": 1,
        "length_max": 3,
        "truncated_share": 0.5,
        "rollouts": 3,
        "groups_kept": 2,
        "groups_dropped": 4,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert "ratio_mean" not in found


def test_signal_share_counts_groups_that_differ_of_those_wanted() -> None:
    """One of two groups differs, of four that one rollout was to give: dynamic sampling dropped the other two."""
    differing = _generation([[1, 0], [0, 0], [1, 0], [1, 0]], [1, 1, 1, 1], [True] * 4)
    one_rollout = replace(differing, rounds=1, taken=4, dropped=2)
    found = numbers.of_step(one_rollout, Learned(np.zeros(4, np.float32)), ["a", "b"], 0.1, registry.create("grpo", {}))
    assert found["zero_variance_groups"] == 1
    assert found["signal_share"] == 0.25


def test_kl_is_the_mean_k3_to_the_reference_without_beta() -> None:
    """exp(d) - d - 1 of d = reference - policy, averaged over the nine completion tokens; absent without a reference."""
    rng = np.random.default_rng(1)
    policy = rng.normal(-2, 1, (4, 3)).astype(np.float32)
    reference = policy + rng.normal(0, 0.5, (4, 3)).astype(np.float32)
    learned = Learned(np.ones(4, np.float32), policy=policy, old=policy, reference=reference)
    found = numbers.of_step(GENERATION, learned, ["a", "b"], 0.1, registry.create("grpo", {}))
    d = (reference.astype(np.float64) - policy)[np.arange(3) < np.array([3, 1, 2, 3])[:, None]]
    assert found["kl"] == pytest.approx(float((np.exp(d) - d - 1).mean()), rel=1e-12)
    learned.reference = None
    assert "kl" not in numbers.of_step(GENERATION, learned, ["a", "b"], 0.1, registry.create("grpo", {}))


def test_ratios_are_the_oracles() -> None:
    """The statistics of policy against old, on completion tokens only, are the oracle's; padding may hold anything."""
    rng = np.random.default_rng(0)
    old = rng.normal(-2, 1, (4, 3)).astype(np.float32)
    policy = old + rng.normal(0, 0.3, (4, 3)).astype(np.float32)
    policy[1, 1:] = np.nan
    learned = Learned(np.array([1, -1, 1, -1], np.float32), policy=policy, old=old)
    found = numbers.of_step(GENERATION, learned, ["a", "b"], 0.1, registry.create("grpo", {"epsilon_high": 0.3}))
    mask = np.arange(3) < np.array([3, 1, 2, 3])[:, None]
    d = (policy.astype(np.float64) - old)[mask]
    assert found["ratio_mean"] == pytest.approx(float(np.exp(d).mean()))
    assert found["ratio_max_abs"] == pytest.approx(float(np.abs(d).max()))
    assert found["ratio_outside_high"] == pytest.approx(float((np.exp(d) > 1.3).mean()))
    gains = np.repeat([1, -1, 1, -1], [3, 1, 2, 3])
    assert found["ratio_clipped_high"] == pytest.approx(float(((np.exp(d) > 1.3) & (gains > 0)).mean()))
    assert found["entropy_sampled"] == pytest.approx(-float(GENERATION.temperature_scaled[mask].mean()))
    assert oracle.__name__.endswith("ratio")


@pytest.mark.parametrize(
    ("name", "widths", "level"),
    [
        ("grpo", (0.2, 0.2), "token"),
        ("gspo", (3e-4, 4e-4), "seq_mean"),
        ("gspo-token", (3e-4, 4e-4), "seq_mean"),
        ("luspo", (3e-4, 4e-4), "seq_mean"),
        ("gmpo", (1 - math.exp(-0.4), math.exp(0.4) - 1), "token"),
        ("cispo", (1.0, 0.28), "token"),
        ("rloo", (0.2, 0.2), "token"),
        ("dpo", (0.2, 0.2), "token"),
    ],
)
def test_the_clip_of_an_algorithm(name: str, widths: tuple[float, float], level: str) -> None:
    """Shares are counted with the widths of the loss and at its level; GMPO's are in nats, CISPO has a cap only, RLOO nothing and gets 0.2."""
    algorithm = registry.create(name, {})
    assert algorithm.clip_widths == pytest.approx(widths)
    assert algorithm.clip_level == level


def test_a_clip_of_completions_counts_their_mean_ratio() -> None:
    """Log-ratios +1 and -1 in a row: its mean ratio is 1, so no clip acts; a row of +0.4 and 0 has exp(0.2), outside 10%."""
    old = np.full((4, 3), -2.0, np.float32)
    moved = np.array([[1, -1, 0], [0, 0, 0], [0.4, 0, 0], [0, 0, 0]], np.float32)
    learned = Learned(np.array([1, -1, 1, -1], np.float32), policy=old + moved, old=old)
    narrow = {"epsilon_low": 0.1, "epsilon_high": 0.1}
    by_token = numbers.of_step(GENERATION, learned, ["a", "b"], 0.1, registry.create("grpo", narrow))
    by_row = numbers.of_step(GENERATION, learned, ["a", "b"], 0.1, registry.create("gspo", narrow))
    # rows have 3, 1, 2 and 3 tokens
    assert by_token["ratio_outside_high"] == pytest.approx(2 / 9)
    assert by_token["ratio_outside_low"] == pytest.approx(1 / 9)
    assert by_row["ratio_outside_high"] == pytest.approx(2 / 9)
    assert by_row["ratio_clipped_high"] == pytest.approx(2 / 9)
    assert by_row["ratio_outside_low"] == 0
    assert by_row["ratio_mean"] == by_token["ratio_mean"]


def _preferred(advantages: list[float], reference: np.ndarray[Any, Any] | None) -> dict[str, float]:
    """The numbers of margins of a policy that is at -1 everywhere; rows have 3, 1, 2 and 3 tokens."""
    policy = np.full((4, 3), -1.0, np.float32)
    learned = Learned(np.array(advantages, np.float32), policy=policy, old=policy, reference=reference)
    found = numbers.of_step(GENERATION, learned, ["a", "b"], 0.1, registry.create("dpo", {}))
    return {name: value for name, value in found.items() if name.startswith("margin")}


class TestMargins:
    """How far what was chosen is preferred: of algorithms that learn from pairs, and of signed pairs."""

    def test_by_hand(self) -> None:
        """Over a reference at -2 rows have moved by 3, 1, 2 and 3: 3 - 1 in the first pair, and 3 - 2 in the other."""
        reference = np.full((4, 3), -2.0, np.float32)
        expected = {"margin_mean": 1.5, "margin_positive_share": 1.0}
        assert _preferred([1, -1, -1, 1], reference) == pytest.approx(expected)
        assert _preferred([-1, 1, 0, 0], reference) == {"margin_mean": -2.0, "margin_positive_share": 0.0}

    def test_without_a_reference_the_policy_stands_alone(self) -> None:
        """Its log-probs sum to -3, -1, -2 and -3, as the reference-free loss takes them."""
        assert _preferred([1, -1, 1, -1], None) == {"margin_mean": -0.5, "margin_positive_share": 0.5}

    def test_nothing_is_said_of_no_pair(self) -> None:
        assert _preferred([0, 0, 0, 0], np.zeros((4, 3), np.float32)) == {}

    @pytest.mark.parametrize("name", registry.ALGORITHMS)
    def test_who_learns_from_pairs(self, name: str) -> None:
        """The algorithm says it; nobody else's advantages are taken for preferences."""
        assert registry.create(name, {}).pairs == (name in {"dpo", "online_dpo"})

    @pytest.mark.parametrize(
        ("name", "size", "reward"),
        [("grpo", 4, "[0.5] * len(completions)"), ("rloo", 2, "[n % 2 for n in range(len(completions))]")],
        ids=["no-signal", "two-of-a-group"],
    )
    def test_advantages_that_look_like_preferences_are_none(
        self, tmp_path: Path, name: str, size: int, reward: str
    ) -> None:
        """GRPO where all rewards are equal has advantages 0, RLOO of 0 and 1 has -1 and +1; both report rewards."""
        config = runs.config(
            tmp_path / "run",
            adapter={"b_std": 0.0},  # so that the KL in RLOO's reward is 0
            rollout={"samples_per_prompt": size},
            algorithm={"name": name},
            loop={"steps": 1, "evaluate_every_steps": 0},
        )
        (tmp_path / "reward.py").write_text(f"def low(completions):\n    return {reward}\n")
        runs.train(config)
        (line,) = runs.lines(tmp_path / "run")
        assert line["reward_mean"] == 0.5
        assert not [key for key in line if key.startswith("margin")]


def test_a_clock_adds_up_and_starts_again() -> None:
    """Two blocks of one phase are one number; reading sets it back."""
    clock = Clock()
    for _ in range(2):
        with clock("a"):
            pass
    with clock("b"):
        pass
    first = clock.read()
    assert set(first) == {"a", "b"}
    assert all(value >= 0 for value in first.values())
    assert clock.read() == {}


def test_every_line_is_valid_json_with_every_number(tmp_path: Path) -> None:
    """A step's line has the numbers that the issue names, and no NaN or Infinity outside a string."""
    runs.train(runs.config(tmp_path / "run", loop={"steps": 1, "evaluate_every_steps": 1}))
    text = (tmp_path / "run" / "metrics.jsonl").read_text()

    def refuse(word: str) -> None:
        raise AssertionError(word)

    (line,) = [json.loads(one, parse_constant=refuse) for one in text.splitlines()]
    wanted = {"loss", "loss_policy", "loss_kl", "reward_mean", "reward_std", "reward_low_mean", "reward_low_std"}
    wanted |= {
        "advantage_mean",
        "ratio_mean",
        "ratio_p99_abs",
        "ratio_clipped_low",
        "ratio_clipped_high",
        "entropy_sampled",
    }
    wanted |= {"length_mean", "truncated_share", "zero_variance_groups", "sampler_mult_err", "ratio_max_sequence_ratio"}
    assert wanted <= set(line)
    (times,) = runs.lines(tmp_path / "run", "timings")
    assert {"seconds_rollout", "seconds_scoring", "seconds_updates", "tokens_per_second", "peak_device_bytes"} <= set(
        times
    )


def test_entropy_where_the_algorithm_needs_it(tmp_path: Path) -> None:
    """With an entropy bonus the exact entropy is there, near its estimate from the samples; without, it is not."""
    settings = {"entropy_bonus": 0.01}
    config = runs.config(tmp_path / "a", algorithm={"settings": settings}, loop={"steps": 1, "evaluate_every_steps": 0})
    runs.train(config)
    (line,) = runs.lines(tmp_path / "a")
    assert line["entropy"] == pytest.approx(line["entropy_sampled"], rel=0.3)
    assert line["loss_entropy"] != 0


class TestSinks:
    """Where the numbers go."""

    def test_tensorboard(self, tmp_path: Path) -> None:
        """The event file holds every number of every step under its step, and the evaluations of theirs."""
        events = pytest.importorskip("tensorboardX.proto.event_pb2")
        config = runs.config(
            tmp_path / "run", loop={"steps": 2, "evaluate_every_steps": 2}, output={"tensorboard": True}
        )
        runs.train(config)
        (file,) = (tmp_path / "run" / "tensorboard").glob("events*")
        content, found = file.read_bytes(), {}
        while content:  # each record: its length in 8 bytes, 4 of a checksum, the event, 4 of a checksum
            length = int.from_bytes(content[:8], "little")
            event = events.Event.FromString(content[12 : 12 + length])
            found |= {(one.tag, event.step): one.simple_value for one in event.summary.value}
            content = content[16 + length :]
        for line in runs.lines(tmp_path / "run"):
            for name in set(line) - {"step"}:
                assert found[name, line["step"]] == pytest.approx(float(line[name]), rel=1e-6, nan_ok=True), name
        (evaluation,) = runs.lines(tmp_path / "run", "evaluations")
        assert found["validation/reward_mean", 2] == pytest.approx(evaluation["reward_mean"])
        assert {step for tag, step in found if tag == "tokens_per_second"} == {1, 2}

    @pytest.mark.parametrize(
        ("key", "module", "remedy"),
        [("tensorboard", "tensorboardX", r"pip install '.\[log\]'"), ("wandb", "wandb", "pip install wandb")],
    )
    def test_a_missing_library_is_told_with_its_remedy(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, key: str, module: str, remedy: str
    ) -> None:
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(ConfigurationError, match=remedy):
            callbacks.configured(sections.Output.model_validate({"folder": str(tmp_path), key: True}), {})

    def test_wandb_is_offline(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """The run is started in offline mode in the run's folder, and gets every number (by a stand-in for the library)."""
        calls: list[tuple[str, Any]] = []

        class Fake:
            def init(self, **options: Any) -> "Fake":
                calls.append(("init", options))
                return self

            def log(self, values: Any, step: int) -> None:
                calls.append(("log", (step, values)))

            def finish(self) -> None:
                calls.append(("finish", None))

        monkeypatch.setitem(sys.modules, "wandb", Fake())
        output = sections.Output.model_validate({"folder": str(tmp_path), "wandb": True, "console": False})
        (sink,) = callbacks.configured(output, {"a": 1})
        with callbacks.started([sink], 0, 1):
            sink.step(1, {"loss": 2.0}, {"seconds": 3.0})
            sink.evaluation(1, {"reward_mean": 0.5})
        assert calls[0][1]["mode"] == "offline"
        assert calls[0][1]["dir"] == str(tmp_path)
        assert calls[1:] == [
            ("log", (1, {"loss": 2.0, "seconds": 3.0})),
            ("log", (1, {"validation/reward_mean": 0.5})),
            ("finish", None),
        ]

    def test_wandb_itself(self, tmp_path: Path) -> None:
        """Where the library is installed, a run leaves an offline run beside its metrics, and none other."""
        pytest.importorskip("wandb")
        config = runs.config(tmp_path / "run", loop={"steps": 2, "evaluate_every_steps": 0}, output={"wandb": True})
        runs.train(config)
        (offline,) = (tmp_path / "run" / "wandb").glob("offline-run-*")
        assert list(offline.glob("*.wandb"))

    def test_a_log_has_a_line_now_and_then(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Without a terminal: the first step, the last, and one every ten seconds; on stderr, and printable ASCII throughout."""
        now = iter([100.0, 102.0, 111.9, 112.0, 121.9, 123.0, 124.0])
        sink = callbacks.Console(clock=lambda: next(now))
        with callbacks.started([sink], 4, 10):
            for step in range(5, 11):
                numbers_ = {"loss": 0.01234567, "reward_mean": 0.54321, "signal_share": 0.75}
                sink.step(step, numbers_, {"tokens_per_second": 1234.4})
                sink.completions(step, [{"prompt": "a", "completion": "\x1b[31mb", "reward": 1.0}])
        shown, said = capsys.readouterr()
        assert said.splitlines() == [
            "step 5 of 10: reward 0.5432, signal in 75% of groups, 1234 tokens/s, 0:00:10 left",
            "step 7 of 10: reward 0.5432, signal in 75% of groups, 1234 tokens/s, 0:00:12 left",
            "step 9 of 10: reward 0.5432, signal in 75% of groups, 1234 tokens/s, 0:00:05 left",
            "step 10 of 10: reward 0.5432, signal in 75% of groups, 1234 tokens/s, took 0:00:24",
        ]
        assert not shown
        assert said.replace("\n", "").isascii()
        assert said.replace("\n", "").isprintable()

    @pytest.mark.parametrize(
        ("last", "rewards", "cause"),
        [
            ({}, [0.0] * 10, "Every reward was 0: the task is too hard or too easy"),
            ({"truncated_share": 1.0}, [0.0] * 10, "Every completion was cut off at rollout.max_tokens"),
            ({"unscored_share": 1.0}, [NAN] * 10, "No completion was scored"),
            ({"groups_kept": 0, "unscored_share": NAN}, [NAN] * 10, "Dynamic sampling dropped every group"),
            ({}, [0.1, 0.2] * 5, "The completions of a prompt are alike: raise rollout.temperature"),
        ],
        ids=["equal", "truncated", "unscored", "dropped", "alike"],
    )
    def test_ten_steps_without_a_signal_are_warned_of_once(
        self, capsys: pytest.CaptureFixture[str], last: dict[str, float], rewards: list[float], cause: str
    ) -> None:
        """After the tenth in a row, with the likely cause; a step with a signal starts the count again."""
        sink = callbacks.Console(clock=lambda: 0.0)
        with callbacks.started([sink], 0, 100):
            for share in (*[0.0] * 9, 0.5):
                sink.step(1, {"reward_mean": 0.0, "signal_share": share}, {})
            assert "warning" not in capsys.readouterr().err
            for _ in range(2):
                for reward in rewards:
                    sink.step(2, {"reward_mean": reward, "signal_share": 0.0, **last}, {})
        (said,) = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
        assert said.startswith("warning: in 10 steps no group had two different rewards")
        assert cause in said

    def test_a_line_says_what_is_there(self) -> None:
        """Preferences by their margin; what was not measured, or is no number, as such."""
        assert progress.measures({"loss": NAN, "margin_mean": -1.5, "reward_mean": 0.5, "signal_share": 1.0}, {}) == [
            "margin -1.5",
            "loss nan",
            "nan tokens/s",
        ]
        assert progress.measures({}, {}) == ["reward nan", "nan tokens/s"]

    def test_a_log_that_is_gone_stops_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A pipe whose reader has left raises at every write; the run goes on."""

        class Gone(io.StringIO):
            def write(self, text: str) -> int:
                raise BrokenPipeError(text)

        sink = callbacks.Console()
        monkeypatch.setattr(sys, "stderr", Gone())
        with callbacks.started([sink], 0, 1):
            sink.step(1, {"loss": 1.0}, {})

    def test_the_console_shows_completions_as_they_are(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """On a terminal, what looks like markup is text."""
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm")
        sink = callbacks.Console()
        with callbacks.started([sink], 0, 1):
            sink.step(1, {"loss": 1.0}, {})
            sink.completions(1, [{"prompt": "a", "completion": "[red]b", "reward": 1.0}])
        assert "[red]b" in capsys.readouterr().err

    def test_the_bar_fits_a_terminal_of_80_columns(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The step, the time left and the main numbers are there, with numbers as long as they get."""
        for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "80", "NO_COLOR": "1"}.items():
            monkeypatch.setenv(name, value)
        sink = callbacks.Console()
        numbers_ = {"reward_mean": -0.7875, "signal_share": 0.9375, "gradient_norm": 12.345, "length_mean": 123.4}
        with callbacks.started([sink], 0, 1000):
            sink.step(200, numbers_, {"tokens_per_second": 1234.5})
        shown = capsys.readouterr().err
        assert " 200/1000" in shown
        assert "reward -0.787 signal 0.938 gradient 12.3" in shown

    def test_callbacks_end_whatever_happens(self) -> None:
        """A run that stops in the middle still closes what was opened."""
        ended: list[int] = []

        class Ending(callbacks.Callback):
            def end(self) -> None:
                ended.append(1)

        with pytest.raises(KeyError), callbacks.started([Ending(), Ending()], 0, 1):
            raise KeyError
        assert ended == [1, 1]
