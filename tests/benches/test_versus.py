"""The measurement against peers: it sees a factor, refuses what is wrong, and has every row that was promised."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlkernels
from benches.versus import __main__ as command
from benches.versus import proof, run, statements, timing
from benches.versus.model import Evidence, Row, Side
from gates.results.speed_file import read_speed

ROOT = Path(__file__).parents[2]
RIGHT, WRONG = Evidence("error", 0.5, "<=", 1.0, "by hand"), Evidence("error", float("nan"), "<=", 1.0, "by hand")
#: The table of the plan, as op words, shape, baseline and goal.
PROMISED = [
    *(("group_advantages", s, "rlox", g) for s, g in (("16x4", 1.3), ("64x8", 1.5), ("256x16", 6), ("1024x32", 8))),
    *(
        ("group_advantages", s, b, 10)
        for s in ("16x4", "64x8", "256x16", "1024x32")
        for b in ("NumPy", "torch", "TRL")
    ),
    *(("k3", s, "rlox", g) for s, g in (("1x128", 2), ("1x2048", 6), ("32x512", 8), ("32x2048", 10))),
    *(
        ("k3", s, b, 2)
        for s in ("1x128", "1x2048", "32x512", "32x2048", "256x4096")
        for b in ("torch", "NumPy")
    ),
    ("selective_log_softmax float32", "256x151936-flat", "TRL", 10),
    ("with entropy", "256x151936-flat", "TRL", 10),
    *(
        (words, f"16x151936-{spread}", peer, 5)
        for words in ("top-p 0.95", "top-k 50")
        for spread in ("peaked", "flat")
        for peer in ("mlx_lm", "transformers", "transformers, then log_softmax")
    ),
    ("policy_loss", "32x2048", "torch", 5),
    ("policy_loss", "32x2048", "MLX", 5),
    ("pack_sequences best-fit", "1000000", "TRL", 5),
    ("pack_sequences first-fit", "1000000", "rlox", 5),
]  # fmt: skip


def options(*arguments: str) -> Any:
    found: list[Any] = []
    original, run.run = run.run, found.append  # type: ignore[assignment]
    try:
        command.main(list(arguments))
    finally:
        run.run = original
    return found[0]


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command sets thread counts; they end with the test."""
    for name in (*command.THREADS, "TRANSFORMERS_VERBOSITY", "HF_HUB_OFFLINE", "RLKERNELS_ISA"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


class TestRows:
    """What is timed."""

    @pytest.mark.parametrize(("words", "shape", "baseline", "goal"), PROMISED)
    def test_every_promised_row_is_there(self, words: str, shape: str, baseline: str, goal: float) -> None:
        """With the goal that was promised."""
        rows = [r for f in run.FAMILIES for r in f.rows()]
        found = [r for r in rows if words in r.op and r.shape == shape and r.baseline == baseline]
        assert found
        assert {r.goal for r in found} == {goal}

    def test_names_are_unique(self) -> None:
        """A row is found by its name."""
        names = [r.name for f in run.FAMILIES for r in f.rows()]
        assert len(set(names)) == len(names)

    def test_the_overhead_of_a_call_has_its_goal(self) -> None:
        """0.4 µs, without a baseline."""
        rows = [r for f in run.FAMILIES for r in f.rows() if not r.baselines]
        assert len(rows) >= 6
        assert {r.goal for r in rows} == {0.4}

    def test_the_log_softmax_has_a_goal_on_the_roofline(self) -> None:
        """0.67, with and without entropy."""
        rows = [r for f in run.FAMILIES for r in f.rows() if "256x151936" in r.shape]
        assert [r.roofline_goal for r in rows] == [0.67, 0.67]

    def test_quick_leaves_the_large_ones_out(self) -> None:
        """A smoke test of every family, nothing above a million values."""
        rows = run.selected(options("--quick"))
        assert {r.op.split()[0] for r in rows} >= {
            "call",
            "group_advantages",
            "token_kl",
            "sample_tokens",
            "policy_loss",
        }
        assert max(r.reads + r.writes for r in rows) < 1 << 20

    def test_rows_are_chosen_by_words(self) -> None:
        """All words of one `--only` must be in the name; several add up."""
        rows = run.selected(options("--only", "k3 rlox", "--only", "pack TRL 1000000"))
        assert {r.baseline for r in rows} == {"rlox", "TRL"}
        assert all("k3" in r.op or r.shape == "1000000" for r in rows)


class TestTiming:
    """Times in turns."""

    def test_a_factor_is_seen(self) -> None:
        """Twenty times the work is more than three times the time, and the other way round; on a busy machine too."""
        names = {"short": range(2_000), "long": range(40_000)}
        short, long = timing.in_turns(
            ["sum(short)", "sum(long)"], [names, names], rounds=15, budget_s=20, fewest=15, sample_s=1e-4
        )
        value, low, high = timing.ratio(long.seconds, short.seconds)
        assert low <= value <= high
        assert value > 3
        assert timing.ratio(short.seconds, long.seconds)[0] < 1 / 3

    def test_rounds_go_on_to_the_least_number(self) -> None:
        """The budget ends a row, but never before `fewest` rounds; both sides have as many."""
        sides = timing.in_turns(["1", "2"], [{}, {}], rounds=50, budget_s=0.0, fewest=4, sample_s=1e-5)
        assert [s.seconds.size for s in sides] == [4, 4]

    @pytest.mark.alone
    def test_a_slow_side_leaves_and_the_others_go_on(self) -> None:
        """Each side has the budget to itself; ours and its control are in every round, and the fewest rounds are kept."""
        names = {"sleep": time.sleep}
        ours, slow, quick, control = timing.in_turns(
            ["1", "sleep(0.1)", "2", "3"], [names] * 4, rounds=40, budget_s=0.2, fewest=2, sample_s=1e-5
        )
        assert 2 <= slow.seconds.size <= 3
        assert quick.seconds.size > slow.seconds.size
        assert ours.seconds.size == control.seconds.size == quick.seconds.size

    def test_a_slow_statement_is_not_called_in_vain(self) -> None:
        """Twice before its rounds, no warming call within them."""
        called: list[float] = []
        names = {"called": called, "sleep": time.sleep, "time": time.perf_counter}
        statement = "called.append(time()); sleep(0.51)"
        timing.in_turns([statement], [names], rounds=2, budget_s=0.0, fewest=2)
        assert len(called) == 4

    def test_a_sample_lasts_long_enough(self) -> None:
        """Quick statements are called many times."""
        (side,) = timing.in_turns(["sum(x)"], [{"x": range(100)}], rounds=5, budget_s=9, fewest=5, sample_s=1e-3)
        assert side.calls > 100

    def test_the_interval_is_reproducible_and_covers_the_truth(self) -> None:
        """Samples around 2 and 1 give 2; the same samples give the same interval."""
        generator = np.random.default_rng(0)
        over, under = 2 + 0.1 * generator.normal(size=50), 1 + 0.05 * generator.normal(size=50)
        value, low, high = timing.ratio(over, under)
        assert low < 2 < high
        assert high - low < 0.2
        assert timing.ratio(over, under) == (value, low, high)

    @pytest.mark.parametrize(
        ("low", "high", "noise", "word"),
        [(2.1, 2.2, 1.0, "met"), (1.8, 1.9, 1.0, "missed"), (1.9, 2.1, 1.0, "undecided"), (2.1, 2.2, 1.1, "undecided")],
        ids=["above", "below", "across", "noisy"],
    )
    def test_a_goal_is_met_by_the_whole_interval(self, low: float, high: float, noise: float, word: str) -> None:
        """The goal is 2; the control's noise widens the interval."""
        assert timing.verdict(low, high, 2.0, noise) == word


class TestProof:
    """What is wrong is seen."""

    @pytest.mark.parametrize(
        "got", [[1.0, 2.1], [1.0, np.nan], [1.0], [1.0, np.inf]], ids=["wrong", "nan", "shape", "infinite"]
    )
    def test_a_wrong_result_does_not_hold(self, got: list[float]) -> None:
        """A wrong value, a NaN, another shape, infinity."""
        assert not proof.within("q", np.array(got), np.array([1.0, 2.0]), 0.01, "by hand").holds

    def test_a_right_result_holds(self) -> None:
        """Half a limit away, and infinities that are equal."""
        found = proof.within("q", np.array([1.005, -np.inf]), np.array([1.0, -np.inf]), 0.01, "by hand")
        assert found.holds
        assert found.observed == pytest.approx(0.5)


def measured(**changes: Any) -> Any:
    facts: dict[str, Any] = {
        "op": "op",
        "shape": "s",
        "baseline": "peer",
        "ours": lambda: Side("1", {}, lambda _: [RIGHT]),
        "baselines": (lambda: Side("sum(x)", {"x": range(2000)}, lambda _: [RIGHT], "a note"),),
        "goal": 2.0,
    }
    (record,) = run._records([Row(**facts | changes)], quick=True, share=1.0)
    return record


class TestRecord:
    """What becomes of a row."""

    def test_two_right_sides_are_timed(self) -> None:
        """With times, ratio, control, evidence of both and the goal."""
        record = measured()
        assert (record.outcome, record.goal_met, record.note) == ("timed", "met", "a note")
        assert record.ratio.value > 2
        assert len(record.evidence) == 2
        assert record.control is not None

    def test_rows_are_timed_together(self) -> None:
        """Our side is built once for all; each row has its own outcome, and its times are those of its own rounds."""
        built = []

        def ours() -> Side:
            built.append(1)
            return Side("1", {}, lambda _: [RIGHT])

        sides = {
            "quick": Side("sum(x)", {"x": range(2000)}, lambda _: [RIGHT]),
            "wrong": Side("1", {}, lambda _: [WRONG]),
            "slow": Side("sum(x)", {"x": range(20_000)}, lambda _: [RIGHT]),
        }
        rows = [Row("op", "s", name, ours, (lambda side=side: side,), together="s") for name, side in sides.items()]
        (batch,) = run._together(rows)
        quick, wrong, slow = run._records(batch, quick=True, share=1.0)
        assert len(built) == 1
        assert (quick.outcome, wrong.outcome, slow.outcome) == ("timed", "baseline wrong", "timed")
        assert slow.theirs.median_us > 3 * quick.theirs.median_us
        for record in (quick, slow):
            assert record.ratio.value == pytest.approx(record.theirs.median_us / record.ours.median_us)

    def test_a_row_by_itself_stays_so(self) -> None:
        """Without the word nothing is timed together, whatever follows."""
        words = ("", "", "a", "a", "b", "")
        rows = [Row("op", "s", "peer", lambda: Side("1", {}, list), together=word) for word in words]
        assert [len(batch) for batch in run._together(rows)] == [1, 1, 2, 1, 1]

    def test_a_wrong_side_of_ours_is_not_timed(self) -> None:
        """NaN satisfies no limit."""
        record = measured(ours=lambda: Side("1", {}, lambda _: [WRONG]))
        assert (record.outcome, record.ours, record.ratio) == ("wrong", None, None)
        assert [item.holds for item in record.evidence] == [False]

    def test_a_wrong_baseline_is_not_timed(self) -> None:
        """Its verdict stands instead of a speed."""
        record = measured(baselines=(lambda: Side("1", {}, lambda _: [WRONG]),))
        assert (record.outcome, record.theirs, record.ratio) == ("baseline wrong", None, None)
        assert "must be <= 1" in record.reason

    def test_the_first_alternative_that_is_right_is_timed(self) -> None:
        """What refuses the documented call stays in the evidence."""
        swapped = Side("2", {}, lambda _: [RIGHT], "arguments swapped")
        record = measured(baselines=(lambda: Side("1", {}, lambda _: [WRONG]), lambda: swapped))
        assert (record.outcome, record.note) == ("timed", "arguments swapped")
        assert [item.holds for item in record.evidence] == [True, False, True]

    @pytest.mark.parametrize(
        ("statement", "outcome"),
        [("no_name", "error"), ("int(unknown=1)", "unsupported"), ("__import__('no_such_peer')", "baseline absent")],
    )
    def test_what_a_peer_raises_is_an_outcome(self, statement: str, outcome: str) -> None:
        """Never the end of the run."""
        record = measured(baselines=(lambda: Side(statement, {"int": _keyword}, list),))
        assert record.outcome == outcome
        assert record.reason

    def test_a_function_that_is_not_there_is_unsupported(self) -> None:
        """And named."""
        record = measured(needs=("no_such_function",))
        assert (record.outcome, record.reason) == ("unsupported", "this rlkernels has no no_such_function")

    def test_other_instruction_sets_owe_half(self) -> None:
        """The goal of a ratio halves; a limit on time does not."""
        row = Row("op", "s", "peer", lambda: Side("1", {}, lambda _: [RIGHT]), needs=("none",), goal=4.0)
        alone = Row("op", "s", "", lambda: Side("1", {}, lambda _: [RIGHT]), needs=("none",), goal=0.4)
        assert [r.goal for r in run._records([row, alone], quick=True, share=0.5)] == [2.0, 0.4]


def _keyword(**_: object) -> None:
    raise TypeError("int() got an unexpected keyword argument 'unknown'")


class TestStatements:
    """Cutting an op out of somebody's method."""

    def test_the_statements_run_by_themselves(self) -> None:
        """From the first to the last, with the module's names."""
        cut = statements.cut(_long, "half =", "scaled =", ("values",), "scaled")
        assert cut([1.0, 3.0]) == [0.5, 1.5]

    def test_another_version_is_told(self) -> None:
        """Statements that are not there are an error, not a guess."""
        with pytest.raises(LookupError, match="another version"):
            statements.cut(_long, "half =", "quarter =", ("values",), "scaled")


def _long(values: list[float]) -> int:
    time.sleep(1000)
    half = 0.5
    scaled = [half * value for value in values]
    return len(scaled) // 0


class TestProcess:
    """The program as it is run."""

    def test_asv_can_import_everything(self) -> None:
        """No module of benches needs a peer or the judge's libraries to be imported."""
        code = """
import importlib, pkgutil, sys
for name in ("torch", "trl", "transformers", "rlox", "mlx", "mlx_lm", "pyarrow", "pydantic", "typer", "rich", "filelock"):
    sys.modules[name] = None
import benches
for module in pkgutil.walk_packages(benches.__path__, "benches."):
    importlib.import_module(module.name)
"""
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def test_a_debug_build_is_refused(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Its times mean nothing."""
        monkeypatch.setattr(rlkernels, "build_info", lambda: {"profile": "debug"})
        assert command.main(["--quick"]) == 2
        assert "must be a release build" in capsys.readouterr().out

    @pytest.mark.slow
    def test_the_peers_compute_the_ops(self, tmp_path: Path) -> None:
        """In the peers' environment, where `make versus` has made it, every baseline is there and right."""
        folder = ROOT / ".gates" / "versus"
        if not (folder / "ready").exists():
            pytest.skip("no environment of peers: `make versus` makes it")
        command_line = [
            (folder / "python").read_text().strip(),
            "-m",
            "benches.versus",
            "--quick",
            "--out",
            str(tmp_path),
        ]
        environment = {**os.environ, "PYTHONPATH": str(folder / "site")}
        done = subprocess.run(
            command_line, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        (file,) = tmp_path.glob("speed-*.jsonl")
        assert {row.outcome for row in read_speed(file).rows} <= {"timed", "unsupported"}

    def test_a_run_without_peers_is_recorded(self, tmp_path: Path) -> None:
        """Here the peers are absent: NumPy is timed, the others are reported as absent, the file is complete."""
        command_line = [sys.executable, "-m", "benches.versus", "--quick", "--only", "group_advantages 16x4"]
        done = subprocess.run(
            [*command_line, "--out", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        (file,) = tmp_path.glob("speed-*.jsonl")
        found = read_speed(file)
        assert found.state == "complete"
        outcomes = {row.baseline: row.outcome for row in found.rows if row.baseline}
        assert outcomes["NumPy"] == "timed"
        assert outcomes["rlox"] == outcomes["TRL"] == "baseline absent"
