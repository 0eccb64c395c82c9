"""Time the reference trainer in this process, for asv."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from benches.trainers import estimates, rows
from benches.trainers.estimates import Pass
from benches.trainers.workers import process
from benches.trainers.workers import reference as worker
from benches.trainers.workloads import SHAPES, WORKLOADS


class _Collected(process.Probe):
    """A probe that collects its messages and counts no forward passes, since MLX is not patched here."""

    def __init__(self, job, into):
        super().__init__(job, None)
        self.into = into

    def send(self, event, **more):
        """Keep a message."""
        self.into.take({"event": event, **more})

    def use_mlx(self):
        """Take boundaries and peaks from MLX."""
        import mlx.core as mx

        self.settle, self.peak, self.reset_peak = mx.synchronize, mx.get_peak_memory, mx.reset_peak_memory


def measure(workload: str, steps: int, shape: str = "tiny", warmup: int = 2, threads: int = 1) -> dict[str, float]:
    """Train with the reference trainer in this process and return means over the timed steps.

    Args:
        workload: a name of `workloads.WORKLOADS`.
        steps: timed steps.
        shape: a name of `workloads.SHAPES`.
        warmup: untimed steps before them.
        threads: for the record only, since libraries read theirs when they are imported.

    Returns:
        `rollout_tokens_per_s`, `step_s`, `gradient_s` and `peak_memory_bytes`.
    """
    from gates_reference.trainer import rollout

    measured, on = Pass(), WORKLOADS[workload].on(SHAPES[shape])
    plain = rollout.run
    with tempfile.TemporaryDirectory(prefix="gates-bench-") as scratch:
        job = {**rows.job(SHAPES[shape], on, steps, warmup, threads), "scratch": str(Path(scratch)), "root": ""}
        try:
            worker.train(job, _Collected(job, measured))
        finally:
            rollout.run = plain
    total = estimates.sums([measured], np.zeros((1, 1), int))[0]
    return {
        "rollout_tokens_per_s": float(estimates.tokens_per_second(total)),
        "step_s": float(estimates.step_seconds(total)),
        "gradient_s": float(estimates.rest_seconds(total)),
        "peak_memory_bytes": float(measured.peak_bytes or 0),
    }
