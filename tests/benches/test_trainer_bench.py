"""`gates bench trainers`: fixed workloads, rejection of impossible times, and a record for every target."""

import json
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm import utils
from tokenizers import Tokenizer

from benches import header
from benches.trainers import estimates, models, processes, rows, run, screen, targets, workloads
from benches.trainers.estimates import Pass, Step
from benches.trainers.targets import REFERENCE, TARGETS
from benches.trainers.workloads import SETTINGS, SHAPES, WORKLOADS, Workload
from gates.results.read_lines import whole_lines
from gates.results.speed_records import SPEED_LINE, SpeedSummary, TrainerRecord

ROOT = Path(__file__).parents[2]
TINY = SHAPES["tiny"]
#: Append only, since recorded speeds refer to these.
DIGESTS = {
    ("tiny", "no-early-end"): "460917b40acbb36c",
    ("tiny", "geometric"): "0d9ee34a10d1a976",
    ("tiny", "ragged"): "5570b373ddd681ac",
    ("tiny", "long-prompt"): "2175fe1f23921fed",
    ("tiny", "4-bit"): "ad3109d892a87159",
    ("ten", "no-early-end"): "3a4c0330499d7406",
    ("ten", "geometric"): "1e77773f612c36bd",
    ("ten", "ragged"): "c13725f7d227fad8",
    ("ten", "long-prompt"): "ab0ac030b535931a",
    ("ten", "4-bit"): "68e21bce50023da6",
    ("qwen3-0.6b", "no-early-end"): "d3a2930296d9d8bd",
    ("qwen3-0.6b", "geometric"): "395feca24cb650f2",
    ("qwen3-0.6b", "ragged"): "13ff47c915d2d0f5",
    ("qwen3-0.6b", "long-prompt"): "711bde235c28b97d",
    ("qwen3-0.6b", "4-bit"): "cf7f5e9e0f95cd72",
}
WEIGHTS = {"no-early-end": "b7e03100f0bce0e4", "geometric": "aced18b48fc9268e"}
PEAK = 1e10  # operations per second


def on(name: str, shape: str = "tiny") -> Workload:
    return WORKLOADS[name].on(SHAPES[shape])


def steps(lengths: tuple[int, ...], *, rollout_s: float = 1.0, step_s: float = 2.0, count: int = 4) -> Pass:
    return Pass([Step(rollout_s, step_s, lengths, 512)] * count)


class TestWorkloads:
    """Workloads and models are pure functions of their names."""

    def test_workloads_do_not_change(self) -> None:
        assert {(s, w): workloads.digest(s, w) for s in SHAPES for w in WORKLOADS} == DIGESTS

    def test_weights_do_not_change(self) -> None:
        assert {ending: models.digest(TINY, on(ending)) for ending in WEIGHTS} == WEIGHTS

    def test_models_have_the_documented_sizes(self) -> None:
        """3.4 million parameters, ten times that, and Qwen3-0.6B's 596 million."""
        assert [round(shape.parameters() / 1e5) / 10 for shape in SHAPES.values()] == [3.4, 33.1, 596.0]
        assert sum(v.size for _, v in models.weights(TINY, on("no-early-end"))) == TINY.parameters()

    def test_prompts_have_exact_lengths(self) -> None:
        """Each text has exactly its number of tokens, and a step of `ragged` has four different lengths."""
        folder = models.build(TINY, on("ragged"))
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        lengths = [len(tokenizer.encode(text).ids) for text in models.prompts(folder, on("ragged"))]
        assert lengths == [8, 24, 48, 96] * workloads.STEPS_OF_PROMPTS


class TestEndings:
    """The weights decide when rows end."""

    @staticmethod
    def end_probabilities(workload: Workload) -> np.ndarray:
        """Return the probability of the end token at every position of random texts, at the workload's temperature."""
        model, _ = utils.load_model(models.build(TINY, workload))
        ids = np.random.default_rng(0).integers(3, TINY.vocab, (8, 40))
        logits = model(mx.array(ids)).astype(mx.float32) / SETTINGS["temperature"]
        return np.array(mx.softmax(logits, axis=-1))[..., 2]

    def test_geometric_lengths(self) -> None:
        """The end token has nearly the same probability everywhere, 3/T."""
        probabilities = self.end_probabilities(on("geometric"))
        assert probabilities.mean() == pytest.approx(3 / 48, rel=0.1)
        assert probabilities.std() < 0.25 * probabilities.mean()

    @pytest.mark.parametrize("name", ["no-early-end", "4-bit"])
    def test_rows_without_early_end(self, name: str) -> None:
        """The end token has almost no probability, quantised or not."""
        assert self.end_probabilities(on(name)).max() < 1e-9

    def test_mean_length_of_a_truncated_geometric(self) -> None:
        drawn = np.minimum(np.random.default_rng(0).geometric(3 / 48, 200_000), 48)
        assert on("geometric").mean_length() == pytest.approx(drawn.mean(), rel=0.01)
        assert on("no-early-end").mean_length() == 48


class TestRefused:
    """Impossible measurements are rejected with a reason."""

    def reason(self, workload: str, lengths: tuple[int, ...], **times: float) -> str:
        return estimates.refused(TINY, on(workload), [steps(lengths, **times)], PEAK)

    def test_plausible_steps_are_accepted(self) -> None:
        """Steps with possible times and the right tokens are accepted."""
        assert self.reason("no-early-end", (48,) * 4) == ""

    def test_impossibly_fast_steps_are_rejected(self) -> None:
        """The least time is two operations for each weight and token at twice the measured peak."""
        floor, rest = estimates.floors(TINY, Step(0, 0, (48,) * 4, 512), PEAK)
        assert floor == pytest.approx(2 * TINY.products() * 192 / (2 * PEAK))
        assert "generation of a step took" in self.reason("no-early-end", (48,) * 4, rollout_s=0.9 * floor)
        short = {"rollout_s": floor, "step_s": floor + 0.9 * rest}
        assert "the rest of a step took" in self.reason("no-early-end", (48,) * 4, **short)

    @pytest.mark.parametrize(
        ("workload", "lengths", "message"),
        [
            ("no-early-end", (48, 48, 48), "returned 3 completions, must be 4"),
            ("no-early-end", (48, 48, 48, 47), "4 of 16 completions end early"),
            ("no-early-end", (48, 48, 48, 49), "must be 1 to 48"),
            ("geometric", (0, 9, 9, 9), "must be 1 to 48"),
            ("geometric", (48, 48, 48, 48), "on average, must be"),
        ],
    )
    def test_unexpected_token_counts_are_rejected(self, workload: str, lengths: tuple[int, ...], message: str) -> None:
        """Completions must have the workload's lengths."""
        assert message in self.reason(workload, lengths)

    def test_a_pass_without_steps_is_rejected(self) -> None:
        """A pass with warm-up only has no time."""
        assert "no timed step" in estimates.refused(TINY, on("geometric"), [Pass()], PEAK)


class TestInterval:
    """The 10% quantile over passes for equal work, and intervals by a bootstrap over passes."""

    @staticmethod
    def noisy(seed: int, seconds: float, passes: int = 8, lengths: tuple[int, ...] = (10,)) -> list[Pass]:
        """Return passes with contention, which only adds to times."""
        rng = np.random.default_rng(seed)
        return [
            Pass([Step(seconds / 2, seconds / 2 + seconds * (1 + rng.exponential(0.3)) / 2, lengths) for _ in range(6)])
            for _ in range(passes)
        ]

    def test_contention_is_filtered_out(self) -> None:
        """With contention of 15% on average, a step's time is within 5% of the undisturbed one."""
        value, low, high = estimates.interval([self.noisy(1, 2.0)], estimates.step_seconds)
        assert low <= value <= high
        assert 2.0 <= value < 2.1

    def test_ratio_of_disturbed_steps(self) -> None:
        """A threefold time has ratio 3, and the interval of the control includes 1."""
        first, second, slow = self.noisy(1, 1.0), self.noisy(2, 1.0), self.noisy(3, 3.0)
        value, low, high = estimates.ratio(slow, [first, second], generation=False)
        assert low < 3.0 * 1.03
        assert high > 3.0 * 0.97
        assert value == pytest.approx(3.0, rel=0.05)
        _, low, high = estimates.ratio(first, [second], generation=False)
        assert low < 1.02
        assert high > 0.98

    def test_steps_of_other_lengths_are_averaged(self) -> None:
        """If passes draw different lengths, every step counts."""
        passes = [steps((10,), step_s=2.0), steps((12,), step_s=4.0)]
        assert estimates.interval([passes], estimates.step_seconds)[0] == 3.0
        assert estimates.interval([passes], estimates.tokens_per_second)[0] == 11.0

    def test_tokens_are_over_seconds_of_generation(self) -> None:
        """192 tokens in one second."""
        assert estimates.interval([[steps((48,) * 4)]], estimates.tokens_per_second)[0] == 192.0

    def test_one_pass_has_an_unbounded_interval(self) -> None:
        assert estimates.interval([[steps((1,))]], estimates.step_seconds) == (2.0, 0.0, math.inf)


class TestLabels:
    """The label of a comparison follows from the grade of its loss in results/conformance."""

    def test_labels_follow_recorded_grades(self) -> None:
        labels = {name: targets.judged(name) for name in TARGETS}
        assert labels[REFERENCE] == ("same semantics", "")
        assert labels["mlx-lm"] == ("generation only", "")
        assert labels["mlx-tune"] == ("not judged yet", "")
        for name in ("mlxrl", "mlxrl-cli", "mlx-lm-lora", "trl"):
            label, grade = labels[name]
            assert label == targets.LABELS[grade]

    @pytest.mark.parametrize(
        ("grade", "label"),
        [("fragile", "same semantics"), ("departs", "package speed only"), ("wrong", "package speed only")],
    )
    def test_a_label_changes_with_the_grade(self, grade: str, label: str, tmp_path: Path) -> None:
        """Another recorded grade gives another label."""
        lines = (targets.CONFORMANCE / "trl.jsonl").read_text().splitlines()
        edited = [json.loads(line) for line in lines]
        for line in edited:
            if line.get("op") == targets.LOSS and line.get("subject") == "trl":
                line["grade"] = grade
        (tmp_path / "trl.jsonl").write_text("".join(json.dumps(line) + "\n" for line in edited))
        assert targets.judged("trl", tmp_path) == (label, grade)

    def test_without_a_record_there_is_no_label(self, tmp_path: Path) -> None:
        assert targets.judged("trl", tmp_path) == ("not judged yet", "")


Log = list[tuple[str, str]]


class Doubles:
    """Fake processes: the reference takes two seconds a step, all others four."""

    def __init__(self, fails: str = "", interrupted_at: int = 0) -> None:
        self.fails, self.interrupted_at = fails, interrupted_at
        self.workers: list[str] = []

    def __call__(self, python: str, worker: str, job: dict[str, Any], **_: Any) -> Iterator[dict[str, Any]]:
        if worker == "peak.py":
            yield {"event": "peak", "rates": {"all": PEAK}}
            return
        self.workers.append(worker)
        if self.interrupted_at == len(self.workers):
            raise KeyboardInterrupt
        if worker == self.fails:
            raise processes.TargetError("it fell over")
        yield {"event": "settings", "settings": {"samples": job["samples"]}}
        seconds = 2.0 if worker == "reference.py" else 4.0
        for number in range(job["steps"]):
            yield {
                "event": "step",
                "rollout_s": seconds / 2,
                "step_s": seconds * (10 if number < job["warmup"] else 1),
                "lengths": [job["tokens"]] * len(job["rewards"]),
                "forward_tokens": 256,
                "cold": number < job["warmup"],
                "peak_bytes": 1000 + number,
                "resident_bytes": 2000,
            }


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[int, list[Any], list[str]]]:
    """Return a run of `gates bench trainers` on doubles: exit code, records and printed lines."""

    def called(doubles: Doubles, absent: tuple[str, ...] = (), **options: Any) -> tuple[int, list[Any], list[str]]:
        monkeypatch.setattr(header, "RUNS", tmp_path)
        monkeypatch.setattr(header, "busy", lambda _: 0.0)
        monkeypatch.setattr(processes, "messages", doubles)
        monkeypatch.setattr(run, "python", lambda t: "" if t.name in absent else sys.executable)
        printed: list[str] = []
        defaults = {
            "targets": "",
            "workloads": ["no-early-end"],
            "shape": "tiny",
            "passes": 2,
            "steps": 2,
            "threads": 1,
        }
        flags = {"quick": False, "record": False, "as_json": False, "require": (), **options}
        status = run.run(**{**defaults, **flags}, echo=lambda line, **_: printed.append(line))
        (file,) = tmp_path.glob("trainers-*.jsonl") if any(tmp_path.iterdir()) else (None,)
        records = [] if file is None else [SPEED_LINE.validate_json(line) for _, line in whole_lines(file)]
        return status, records, printed

    return called


def rows_of(records: list[Any]) -> dict[str, TrainerRecord]:
    return {record.target: record for record in records if isinstance(record, TrainerRecord)}


class TestRun:
    """The order of processes, and what a run writes."""

    def test_targets_run_in_turns(self, bench: Any) -> None:
        """The reference runs at both ends of a round, and every second round runs backwards."""
        doubles = Doubles()
        bench(doubles, targets="mlxrl,trl")
        forth = ["reference.py", "mlxrl.py", "trl.py", "reference.py"]
        assert doubles.workers == [*forth, *reversed(forth)]

    def test_a_slower_target_has_its_ratio(self, bench: Any) -> None:
        """A target that takes twice as long has ratio 2; warm-up does not count."""
        status, records, printed = bench(Doubles(), targets="mlxrl,mlx-lm")
        rows = rows_of(records)
        assert status == 0
        assert rows["mlxrl"].ratio.value == rows["mlx-lm"].ratio.value == 2.0
        assert rows["mlxrl"].control.value == rows[REFERENCE].control.value == 1.0
        assert (rows[REFERENCE].passes, rows["mlxrl"].passes, rows["mlxrl"].steps) == (4, 2, 4)
        assert (rows["mlxrl"].step_s.value, rows["mlxrl"].gradient_s.value) == (4.0, 2.0)
        assert (rows["mlxrl"].warmup_s, rows["mlxrl"].rollout_tokens_per_s.value) == (80.0, 96.0)
        assert rows["mlx-lm"].gradient_s is rows["mlx-lm"].iterations_per_s is None
        assert (rows["mlxrl"].prompt_tokens, rows["mlxrl"].generated_tokens) == (64, 192)
        assert rows["mlxrl"].settings["threads"] == 1
        assert any("mlxrl" in line and "2.00" in line for line in printed)

    def test_absent_targets_are_counted_and_listed(self, bench: Any) -> None:
        """Each has a record with the remedy, a line on the screen, and its name in the summary."""
        _, records, printed = bench(Doubles(), absent=("trl", "mlx-tune"))
        rows = rows_of(records)
        assert rows["trl"].outcome == rows["mlx-tune"].outcome == "absent"
        assert "gates peers sync trl" in rows["trl"].reason
        assert set(rows) == set(TARGETS)
        assert records[-1].absent == ["mlx-tune", "trl"]
        assert records[-1].counts["absent"] == 2
        assert any("trl: absent" in line for line in printed)

    def test_required_target_that_is_absent_fails(self, bench: Any) -> None:
        doubles = Doubles()
        status, records, printed = bench(doubles, absent=("trl",), require=("all",))
        assert (status, records, doubles.workers) == (1, [], [])
        assert "trl is required" in printed[0]

    def test_unsupported_workload_has_a_reason(self, bench: Any) -> None:
        """The target gets a record but no process."""
        doubles = Doubles()
        _, records, _ = bench(doubles, workloads=["ragged"], targets="mlx-tune")
        assert rows_of(records)["mlx-tune"].outcome == "unsupported"
        assert "one prompt a step" in rows_of(records)["mlx-tune"].reason
        assert "mlx_tune.py" not in doubles.workers

    def test_failure_is_an_error_with_its_reason(self, bench: Any) -> None:
        """The target is not restarted, and the others continue."""
        doubles = Doubles(fails="mlxrl.py")
        status, records, _ = bench(doubles, targets="mlxrl,trl")
        rows = rows_of(records)
        assert (status, rows["mlxrl"].outcome, rows["mlxrl"].reason) == (1, "error", "it fell over")
        assert doubles.workers.count("mlxrl.py") == 1
        assert rows["trl"].outcome == "timed"

    def test_an_interrupted_run_keeps_complete_passes(self, bench: Any) -> None:
        status, records, _ = bench(Doubles(interrupted_at=6), targets="mlxrl", passes=4)
        assert status == 130
        assert rows_of(records)["mlxrl"].outcome == "timed"
        assert not any(isinstance(record, SpeedSummary) for record in records)

    def test_unknown_names_suggest_the_nearest(self) -> None:
        with pytest.raises(run.ConfigurationError, match="mlxrl"):
            run.planned("mlxlr", (), "tiny", None, None, 1, quick=False)
        with pytest.raises(run.ConfigurationError, match="geometric"):
            run.planned("", ("geometrik",), "tiny", None, None, 1, quick=False)

    def test_screen_is_narrow(self) -> None:
        """A row of the table has less than 110 columns."""
        record = rows.without_times(TARGETS["trl"], TINY, on("4-bit"), "unsupported", "no")
        assert screen.lines([record]) == ["4-bit · tiny 4-bit", "  trl: unsupported: no", ""]
