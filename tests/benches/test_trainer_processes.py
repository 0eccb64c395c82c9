"""Processes of the trainer benchmarks: messages, failures, and a real run."""

import subprocess
import sys
from pathlib import Path

import pytest

from benches.trainers import blas, processes, targets
from benches.trainers.run import AGAIN
from benches.trainers.targets import REFERENCE, TARGETS
from benches.trainers.workloads import SHAPES, WORKLOADS, Workload
from gates.results.speed_records import SPEED_LINE, TrainerRecord

ROOT = Path(__file__).parents[2]


def on(name: str, shape: str = "tiny") -> Workload:
    return WORKLOADS[name].on(SHAPES[shape])


class TestProcesses:
    """A misbehaving process ends with a reason instead of a hang."""

    @pytest.mark.parametrize(
        ("code", "message"),
        [
            ("raise ValueError('no such model')", "ValueError: no such model"),
            (
                "import os; print('out of luck', file=__import__('sys').stderr, flush=True); os._exit(3)",
                "status 3.*luck",
            ),
            ("import time; time.sleep(60)", "no message for 0.5 s"),
        ],
    )
    def test_failures_have_a_reason(self, code: str, message: str, tmp_path: Path) -> None:
        """Errors, early ends and silence are distinguished."""
        worker = tmp_path / "worker.py"
        worker.write_text(f"def train(job, probe):\n    {code}\n")
        with pytest.raises(processes.TargetError, match=message):
            list(
                processes.messages(sys.executable, str(worker), {"warmup": 0}, threads=1, preload=False, silence_s=0.5)
            )

    def test_probe_counts_tokens_outside_generation(self, tmp_path: Path) -> None:
        """Steps with new shapes are cold."""
        worker = tmp_path / "worker.py"
        worker.write_text(
            "def train(job, probe):\n"
            "    probe.begin()\n"
            "    for shape in (1, 1, 2, 2):\n"
            "        probe.timed(lambda: probe.passed(5), lengths=lambda _: [3, 4])()\n"
            "        probe.passed(7)\n"
            "        probe.step(shape)\n"
        )
        got = list(processes.messages(sys.executable, str(worker), {"warmup": 1}, threads=1, preload=False))
        sent = [message for message in got if message["event"] == "step"]
        assert [message["cold"] for message in sent] == [True, False, True, False]
        assert all((m["forward_tokens"], m["lengths"]) == (7, [3, 4]) for m in sent)
        assert all(0 <= m["rollout_s"] <= m["step_s"] for m in sent)

    def test_modules_import_no_framework(self) -> None:
        """Asv imports every module of benches/ in an environment without the peers."""
        code = (
            "import importlib, pkgutil, sys, benches.trainers as package\n"
            "for m in pkgutil.walk_packages(package.__path__, 'benches.trainers.'): importlib.import_module(m.name)\n"
            "print(sorted({'torch', 'mlx', 'trl', 'transformers', 'mlx_lm'} & set(sys.modules)))"
        )
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[]"

    @pytest.mark.skipif(not blas.chosen().preload, reason="MLX keeps its own BLAS on this system")
    def test_blas_is_used_by_mlx(self) -> None:
        """If it is loaded first, MLX's matrix product has the bits of NumPy's."""
        code = (
            "import mlx.core as mx, numpy as np; a = np.random.default_rng(0).standard_normal((96, 96)).astype(np.float32);"
            "print(np.array_equal(np.array(mx.array(a) @ mx.array(a)), a @ a))"
        )
        environment = processes.environment(1, preload=True)
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "True"


@pytest.mark.slow
@pytest.mark.alone
def test_the_reference_and_a_peer_are_timed(tmp_path: Path) -> None:
    """The command times the reference trainer and an installed peer, and prints their records."""
    ready = [name for name in ("mlx-lm", "mlxrl", "mlx-lm-lora") if targets.python(TARGETS[name])]
    chosen = ",".join([REFERENCE, *ready[:1]])
    line = [sys.executable, "-m", "gates", "bench", "trainers", "--quick", "--threads", "1", "--json"]
    line += ["--targets", chosen, "--workload", "geometric"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    records = [SPEED_LINE.validate_json(text) for text in done.stdout.splitlines()]
    by_target = {record.target: record for record in records if isinstance(record, TrainerRecord)}
    assert ",".join(by_target) == chosen
    assert all(record.outcome == "timed" for record in by_target.values())
    assert by_target[REFERENCE].forward_tokens > by_target[REFERENCE].generated_tokens
    assert by_target[REFERENCE].settings["loss"] == "grpo"
    assert by_target[REFERENCE].peak_memory_bytes
    assert AGAIN not in by_target
