"""asv: the reference trainer over commits, on tiny models that it builds."""

import os

from .against import QUICK
from .trainers import reference

STEPS = 2 if os.environ.get(QUICK) else 6
LIMIT_S = 300.0
WORKLOADS = ("no-early-end", "geometric")


class Trainer:
    """Speed and memory of steps after the first two."""

    param_names = ("workload",)
    params = (WORKLOADS,)
    timeout = LIMIT_S

    def setup_cache(self):
        """Train on each workload once; asv keeps what this returns."""
        return {name: reference.measure(name, STEPS) for name in WORKLOADS}

    setup_cache.timeout = LIMIT_S

    def track_rollout(self, measured, workload):
        """Tokens of completions per second of generation."""
        return measured[workload]["rollout_tokens_per_s"]

    track_rollout.unit = "tokens/s"

    def track_step(self, measured, workload):
        """Seconds of a whole step."""
        return measured[workload]["step_s"]

    track_step.unit = "s"

    def track_peak_memory(self, measured, workload):
        """Bytes, as MLX counts them."""
        return measured[workload]["peak_memory_bytes"]

    track_peak_memory.unit = "bytes"
