"""Run by a target's own Python as `process.py FILE`: one job, then the process ends.

FILE defines `train(job, probe)`, which calls the package's public entry point and reports to `probe`. The job is
the first line of standard input, a JSON object (see `benches/trainers/run.py`). Each answer is a line of standard output,
a JSON object: `settings` once, `step` for each step, `done`, or `failed` with a reason. What the package prints goes to
standard error. Only the standard library is imported here, before the package.
"""

import contextlib
import ctypes
import json
import os
import runpy
import signal
import sys
import time
import traceback
from pathlib import Path

BLAS = ("blas", "cblas", "openblas", "scipy_openblas", "mkl", "blis")  # prefixes of BLAS file names


def resident_bytes():
    """Return the peak resident memory of this program, without its parent's before exec."""
    try:
        with Path("/proc/self/status").open() as lines:
            return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak << 10


def blas_libraries():
    """Return the file names of the BLAS libraries loaded in this process, if the system lists them."""
    try:
        with Path("/proc/self/maps").open() as lines:
            paths = {line.split(maxsplit=5)[5].strip() for line in lines if line.count("/")}
    except OSError:
        return []
    return sorted(name for name in map(os.path.basename, paths) if name.removeprefix("lib").startswith(BLAS))


class Probe:
    """Takes times at synchronised boundaries and counts tokens, without changing the computation."""

    def __init__(self, job, answers):
        self.job, self.answers = job, answers
        self.start_bytes = resident_bytes()
        self.settle = lambda: None  # waits for the device
        self.peak = lambda: None  # peak bytes of the framework
        self.reset_peak = lambda: None
        self.number = 0
        self.shapes = set()
        self._depth = 0
        self._clear()

    def _clear(self):
        self.rollout_s, self.forward, self.lengths, self.inputs = 0.0, 0, [], 0

    def send(self, event, **more):
        """Send one answer."""
        print(json.dumps({"event": event, **more}), file=self.answers, flush=True)

    def use_mlx(self):
        """Take boundaries and peaks from MLX, and count the tokens of Qwen3's forward passes outside generation."""
        import mlx.core as mx
        from mlx_lm.models import qwen3

        self.settle, self.peak, self.reset_peak = mx.synchronize, mx.get_peak_memory, mx.reset_peak_memory
        plain = qwen3.Qwen3Model.__call__

        def counted(model, inputs, *rest, **named):
            self.passed(inputs.size)
            return plain(model, inputs, *rest, **named)

        qwen3.Qwen3Model.__call__ = counted

    def passed(self, tokens):
        """Count the tokens of a forward pass outside generation, including padding."""
        if not self._depth:
            self.forward += tokens

    def begin(self):
        """Start the clock of the first step."""
        self.settle()
        self.began = time.perf_counter()

    @contextlib.contextmanager
    def generating(self):
        """Add the time of the context to the rollout of this step."""
        self.settle()
        start = time.perf_counter()
        self._depth += 1
        try:
            yield
            self.settle()
        finally:
            self._depth -= 1
            self.rollout_s += time.perf_counter() - start

    def timed(self, function, lengths=None, evaluate=None):
        """Return the function with its calls timed as generation.

        Args:
            function: generates, or prepares it.
            lengths: from its result to the tokens of each completion.
            evaluate: evaluates a lazy result.
        """

        def wrapped(*rest, **named):
            with self.generating():
                result = function(*rest, **named)
                if evaluate is not None:
                    evaluate(result)
            if lengths is not None:
                self.lengths += lengths(result)
            return result

        return wrapped

    def step(self, shape=None):
        """Send the times of the step that ends here; it is cold if its shape is new, since it may have been compiled."""
        self.settle()
        now = time.perf_counter()
        cold = shape is not None and shape not in self.shapes
        self.shapes.add(shape)
        self.number += 1
        self.send(
            "step",
            number=self.number,
            rollout_s=self.rollout_s,
            step_s=now - self.began,
            lengths=self.lengths,
            forward_tokens=self.forward,
            cold=cold or self.number <= self.job["warmup"],
            peak_bytes=self.peak(),
            resident_bytes=resident_bytes() - self.start_bytes,
        )
        if self.number == 1:
            self.send("libraries", blas=blas_libraries())
        if self.number == self.job["warmup"]:
            self.reset_peak()
        self._clear()
        self.began = time.perf_counter()


def main():
    """Run the job; a failure is sent with its reason."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: end with the parent
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # other prints go to stderr
    job = json.loads(sys.stdin.readline())
    probe = Probe(job, answers)
    try:
        train = runpy.run_path(sys.argv[1])["train"]
        train(job, probe)
    except Exception as error:  # noqa: BLE001  a package may raise anything, which is reported
        traceback.print_exc()
        frame = traceback.extract_tb(error.__traceback__)[-1]
        name = "/".join(frame.filename.split("/")[-2:])
        probe.send("failed", reason=f"{type(error).__name__}: {error} ({name}:{frame.lineno})"[:600])
        return 1
    probe.send("done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
