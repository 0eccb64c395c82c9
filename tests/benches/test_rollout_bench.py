"""The measurement of rollouts: what was promised is there, at identical lengths, and a wrong rollout is not timed."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benches.rollout import peers, rows, work
from benches.versus import run
from gates.results.speed_file import read_speed
from gates.subjects.peers import environments

ROOT = Path(__file__).parents[2]
ELSEWHERE = ("mlxrl", "mlx-lm-lora", "mlx-tune")  # in environments of their own
TINY = work.Work("tiny", 4, 16, 8, early=True)
#: The goals of the plan: model, G, T, prompt, baseline and the least ratio.
PROMISED = [
    *((m, g, t, 8, "bare loop", 1.0) for m in ("tiny", "ten") for g in (4, 16) for t in (64, 256)),
    *(("tiny", g, t, 8, p, 1.4) for g in (4, 16) for t in (64, 256) for p in rows.PEERS),
    *(("ten", g, t, 8, p, 1.25) for g in (4, 16) for t in (64, 256) for p in rows.PEERS),
    *((m, g, 64, 128, p, 2.0) for m in ("tiny", "ten") for g in (4, 16) for p in rows.PEERS),
    *(("narrow", 16, 64, 8, p, 2.0) for p in rows.PEERS),
]


class TestRows:
    """The table of the plan."""

    def test_every_promised_row_is_there(self) -> None:
        """Each model, G, T and prompt against each peer, with its goal, and against forwards alone; nothing else."""
        found = {(row.op, row.shape, row.baseline): row.goal for row in rows.rows()}
        wanted = {}
        for model, samples, tokens, prompt, baseline, goal in PROMISED:
            shape = work.Work(model, samples, tokens, prompt, early=baseline != "bare loop").name
            wanted[f"rollout {model}", shape, baseline] = goal
            if baseline != "bare loop":
                wanted[f"rollout {model}", shape, "bare loop"] = None
        assert found == wanted

    def test_baselines_of_one_shape_are_timed_together(self) -> None:
        """Ours is timed once beside all of them, in twenty-one batches."""
        batches = list(run._together(rows.rows()))
        assert [len(batch) for batch in batches].count(1 + len(rows.PEERS)) == 13
        assert [len(batch) for batch in batches].count(1) == 8
        assert all(len({(row.op, row.shape) for row in batch}) == 1 for batch in batches)

    def test_sizes_of_the_models(self) -> None:
        """About three million parameters, ten times that, and a vocabulary of 151,936 on a narrow model."""
        assert 3e6 < work.parameters("tiny") < 4e6
        assert 9 < work.parameters("ten") / work.parameters("tiny") < 11
        assert work.VOCABULARY["narrow"] == 151_936

    def test_lengths(self) -> None:
        """Geometric with a mean of a third of the limit, never above it; without early ends all of it."""
        many = dataclasses.replace(TINY, samples=20_000, tokens=256).lengths()
        assert many.min() >= 2
        assert many.max() == 256
        assert many.mean() == pytest.approx(256 / 3 * (1 - np.exp(-3)), rel=0.02)  # the tail is cut at the limit
        assert (dataclasses.replace(TINY, early=False).lengths() == 16).all()


class TestProof:
    """Before anything is timed."""

    def test_ours_is_right(self) -> None:
        """The evidence holds for what `run` returns."""
        side = rows._ours(TINY)
        assert all(item.holds for item in side.verify(side.run()))

    @pytest.mark.parametrize("mistake", ["length", "token"])
    def test_a_wrong_rollout_is_refused(self, mistake: str) -> None:
        """A row that is too short and a token that nobody drew are failed measurements."""
        side = rows._ours(TINY)
        got = side.run()
        if mistake == "length":
            got.lengths[0] -= 1
        else:
            row = int(np.argmax(got.lengths))
            got.tokens[row, 0] = (got.tokens[row, 0] + 1) % 512
        assert not all(item.holds for item in side.verify(got))

    @pytest.mark.parametrize("baseline", ["bare_loop", "mlx_lm"])
    def test_a_baseline_has_the_same_lengths(self, baseline: str) -> None:
        """The other side is checked too."""
        side = getattr(peers, baseline)(TINY)
        assert all(item.holds for item in side.verify(side.run()))

    @pytest.mark.parametrize("name", ELSEWHERE)
    def test_absent_peers_are_told(self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A peer without an environment is `baseline absent` with the command that makes it, and the run goes on."""
        monkeypatch.setenv(environments.CACHE_VARIABLE, str(tmp_path))
        row = next(row for row in rows.rows() if row.baseline == name)
        with pytest.raises(run.UnmeasuredError, match=f"`gates peers sync {name}` makes it") as stop:
            run._first_right(row)
        assert stop.value.outcome == "baseline absent"

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ELSEWHERE)
    def test_a_peer_elsewhere_has_the_same_lengths(self, name: str) -> None:
        """Each time it is asked, for one shape after another; a shape that is set up no more is refused."""
        if not environments.environment(name).ready:
            pytest.skip(f"no environment of {name}: `gates peers sync {name}` makes it")
        build = getattr(peers, name.replace("-", "_"))
        first = build(TINY)
        assert environments.environment(name).versions[environments.peers()[name].distribution] in first.note
        for _ in range(2):
            assert all(item.holds for item in first.verify(first.run()))
        second = build(dataclasses.replace(TINY, samples=5))
        assert all(item.holds for item in second.verify(second.run()))
        with pytest.raises(RuntimeError, match=name):
            first.run()
        again = build(TINY)
        assert all(item.holds for item in again.verify(again.run()))

    def test_rows_of_other_lengths_are_refused(self) -> None:
        """A peer that generates less than it should is not timed."""
        lengths = TINY.lengths().tolist()
        (evidence,) = peers._lengths(TINY, "peer", [lengths[0] - 1, *lengths[1:]])
        assert not evidence.holds


class TestProgram:
    """As it is run."""

    @pytest.mark.slow
    def test_quick_runs_through(self, tmp_path: Path) -> None:
        """The smoke test writes a whole speed file; a peer is timed where its environment is there.

        On one thread: beside other tests two of them wait for each other.
        """
        line = [sys.executable, "-m", "benches.rollout", "--quick", "--threads", "1", "--out", str(tmp_path)]
        done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        (file,) = tmp_path.glob("speed-*.jsonl")
        found = read_speed(file)
        assert found.state == "complete"
        outcomes = {row.baseline: row.outcome for row in found.rows}
        assert outcomes["bare loop"] == outcomes["mlx-lm"] == "timed"
        assert set(outcomes.values()) <= {"timed", "baseline absent"}
