"""asv: every kernel of rlkernels on one thread; a few of them on other instruction sets, with more threads, and in memory."""

import rlkernels

from . import checked
from .calls import CALLS

ELEMENTS = 1 << 17  # numbers of a sample: a clock cannot tell the microsecond of one call from what comes before it
VARIED = (
    "group_advantages 1024x32",
    "token_kl k3 256x4096",
    "selective_log_softmax 256x151936-flat",
    "sample_tokens top-p 0.95 16x151936-flat",
    "policy_loss grpo 32x2048 beta 0.04",
)
ISAS = ("avx512", "avx2", "neon", "scalar")
THREADS = (1, 2)
LARGE = (
    "selective_log_softmax 256x151936-flat",
    "selective_log_softmax_backward 16x151936",
    "sample_tokens top-p 0.95 16x151936-flat",
    "policy_loss grpo 32x2048 beta 0.04",
    "pack_sequences best-fit-decreasing 100000",
)


def ready(benchmark, name):
    """Set a benchmark's call, verified, and how often a sample makes it: asv reads `number` after `setup`."""
    benchmark.call, elements = checked.prepared(name)
    benchmark.number = max(1, ELEMENTS // elements)


class Kernels:
    """Time of a call on one thread."""

    param_names = ("call",)
    params = (tuple(CALLS),)

    def setup(self, call):
        """Build the workload and verify the result."""
        rlkernels.set_threads(1)
        ready(self, call)

    def time_call(self, call):
        """One call."""
        self.call()


class Variants:
    """Time of a call on an instruction set and with a number of threads; n/a where the machine has no such set."""

    param_names = ("call", "isa", "threads")
    params = (VARIED, ISAS, THREADS)

    def setup(self, call, isa, threads):
        """Choose the instruction set and the threads, then verify: asv makes a process for each."""
        if isa not in rlkernels.available_isas():
            raise NotImplementedError(f"this machine has no {isa}")
        rlkernels.use_isa(isa)
        rlkernels.set_threads(threads)
        ready(self, call)

    def time_call(self, call, isa, threads):
        """One call."""
        self.call()


class Memory:
    """Peak memory of a process that builds a large workload, verifies the result and makes a call."""

    param_names = ("call",)
    params = (LARGE,)

    def setup(self, call):
        """Build the workload and verify the result."""
        rlkernels.set_threads(1)
        ready(self, call)

    def peakmem_call(self, call):
        """One call."""
        self.call()
