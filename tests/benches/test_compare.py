"""Comparison of two builds by pairs of processes, its errors, and the recorded proof."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benches import compare
from gates.results.speed_file import read_speed

ROOT = Path(__file__).parents[2]
NAME = "token_kl k3 32x512"
PROOF = ROOT / "results" / "statistics" / "comparisons.jsonl"


def gates(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "gates", "bench", "compare", *arguments]
    return subprocess.run(line, cwd=cwd, capture_output=True, text=True, timeout=200, check=False)


@pytest.fixture
def here() -> compare.Build:
    return compare.build(compare.HERE, print)


def test_few_pairs_are_not_recorded() -> None:
    """A report would show them as a smoke test."""
    done = gates("HEAD", ".", "--pairs", "10", "--record")
    assert done.returncode == 2
    assert "--record is given with --pairs 10, must be given with at least 20" in done.stderr


class TestPairs:
    """Processes in the order ABBA."""

    def test_each_pair_has_both_sides(self, here: compare.Build) -> None:
        """A and B have equally many positive times."""
        taken = compare.in_pairs(here, here, [NAME], pairs=4, seconds=0.02)[NAME]
        assert [len(side) for side in taken] == [4, 4]
        assert all(1e-8 < value < 1 for side in taken for value in side)

    @pytest.mark.alone
    def test_a_large_slowdown_is_detected(self, here: compare.Build) -> None:
        """Six pairs detect 50% more work."""
        taken = compare.in_pairs(here, here, [NAME], pairs=6, seconds=0.04, extra=0.5)[NAME]
        ratio, _, verdict = compare.judged(*taken)
        assert verdict == "slower"
        assert 1.3 < ratio.value < 1.8

    def test_the_control_ignores_a_slowdown(self) -> None:
        first = np.ones(20)
        ratio, control, verdict = compare.judged(first, 1.2 * first)
        assert (ratio.value, control.value, verdict) == (pytest.approx(1.2), 1.0, "slower")

    def test_a_process_that_fails_is_an_error(self, here: compare.Build, tmp_path: Path) -> None:
        (tmp_path / "rlkernels.py").write_text("raise ImportError('no such build')")
        with pytest.raises(compare.CompareError, match="no such build"):
            compare.probe(compare.Build("broken", tmp_path), [NAME], 0.02)

    @pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
    @pytest.mark.long
    def test_instructions_are_counted(self, here: compare.Build) -> None:
        """Two counts for 32x512 agree to 0.1%."""
        first, second = (compare.instructions(here, NAME) for _ in range(2))
        assert 16384 < first < 40 * 16384
        assert first == pytest.approx(second, rel=1e-3)


class TestCommand:
    """The command line."""

    @pytest.mark.slow
    def test_a_build_is_not_slower_than_itself(self, tmp_path: Path) -> None:
        """Exit 0, a table of one screen and a speed file with a control."""
        done = gates(".", ".", "--only", NAME, "--pairs", "4", "--seconds", "0.05", "--floor", "0.5")
        assert done.returncode == 0, done.stderr
        assert "nothing is slower in B" in done.stdout
        path = done.stdout.strip().splitlines()[-1].removeprefix("written to ")
        (record,) = read_speed(Path(path)).comparisons
        assert (record.benchmark, record.pairs, record.verdict) == (NAME, 4, "same")
        assert record.control is not None

    def test_unknown_revisions_and_names_are_refused(self) -> None:
        """Exit code 2 and one sentence."""
        for line, message in (
            (("no-such-revision", "."), "git knows no 'no-such-revision'"),
            ((".", ".", "--only", "nothing"), "'nothing' is no benchmark"),
        ):
            done = gates(*line)
            assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1), done.stderr
            assert message in done.stderr


def test_error_rates_of_the_recorded_proof() -> None:
    """None of 300 comparisons of identical builds is decided; at least 95 of 100 slowdowns by 5% are detected."""
    lines = [json.loads(line) for line in PROOF.read_text(encoding="utf-8").splitlines()]
    same = [line for line in lines if not line["planted"]]
    assert sum(line["seconds"] <= 20 for line in same) >= 300
    assert not {"slower", "faster"} & {line["verdict"] for line in same}
    for kernel in {line["kernel"] for line in lines}:
        planted = [line for line in lines if line["planted"] == 0.05 and line["kernel"] == kernel]
        detected = sum(line["verdict"] == "slower" for line in planted)
        assert sum(line["seconds"] <= 20 for line in planted) >= 100
        assert detected >= 0.95 * len(planted)
