"""The kernels without a file of their own here: one workload each, of 131,072 numbers where they take as many."""

from functools import partial

import numpy as np

from gates import registry
from gates.families.isa import gates as isa
from reference.kernels import KERNELS

from . import candidates, inputs

STEP, LOGITS = "32x2048", "16x151936-flat"


def rewards():
    """Three rewards of each completion, to be normalised one by one."""
    values, group_size = inputs.rewards("1024x32")
    eps = {"group_ddof": 1, "group_eps": 1e-4, "batch_ddof": 1, "batch_eps": 1e-4}
    several = np.stack([values, np.roll(values, 1), np.roll(values, 2)], axis=1)
    return {"rewards": several, "weights": np.array([1.0, 0.5, 0.25]), "group_size": group_size, **eps}


def distributions():
    """Log-probs of two policies over a vocabulary."""
    logits, _, _ = inputs.logits(LOGITS)
    pair = logits[:8].astype(np.float64), logits[8:].astype(np.float64)
    first, second = (x - np.log(np.exp(x).sum(axis=1, keepdims=True)) for x in pair)
    return {"policy_logprobs": first.astype(np.float32), "reference_logprobs": second.astype(np.float32)}


def upstream():
    """Logits, and what is handed back to them."""
    logits, ids, uniforms = inputs.logits(LOGITS)
    gradient = uniforms.astype(np.float32)
    return {"logits": logits, "ids": ids, "temperature": 1.0, "grad_logprobs": gradient, "grad_entropy": gradient}


def tokens(*names):
    """Log-probs of a step under these names, and its mask."""
    step = inputs.step(STEP)
    return {**dict(zip(names, (step["policy"], step["old"]), strict=True)), "mask": step["mask"], "lengths": None}


def draws():
    """Prompt, completion and position of each token."""
    places = np.arange(1 << 17)
    sample, rounds = places // 512 % 8, np.full(places.shape, 3)
    return {"seed": 7, "round_": rounds, "prompt": places // 4096, "sample": sample, "token": places % 512}


WORKLOADS = {
    "normalise_then_sum": rewards,
    "full_kl": distributions,
    "selective_log_softmax_backward": upstream,
    "philox4x32_10": lambda: {
        "counter": np.arange(1 << 17, dtype=np.uint32).reshape(-1, 4),
        "key": np.array([1, 2], np.uint32),
    },
    "uniforms": draws,
    "xtc_coins": draws,
    "importance_ratio": lambda: {**tokens("policy", "old"), "level": "token"},
    "importance_weights": lambda: {
        **tokens("old", "sampling"),
        "correction": "tis",
        "level": "token",
        "c_min": None,
        "c_max": 2.0,
    },
    "ratio_statistics": lambda: {
        **tokens("policy", "behaviour"),
        "epsilon_low": 0.2,
        "epsilon_high": 0.2,
        "advantages": inputs.step(STEP)["advantages"],
    },
}

for _kernel, _, _make in isa.KERNELS.values():  # any other: the inputs on which its bits are compared
    if KERNELS[_kernel].bench == "kernels:Kernels":
        WORKLOADS.setdefault(_kernel, partial(_make, np.random.default_rng(1), "float32"))


@candidates.once
def prepared(kernel):
    """The call to be timed, verified against the oracle."""
    keywords, function = WORKLOADS[kernel](), candidates.function("rlkernels", kernel)
    op = next(op for gate in registry.load().gates.values() for op in gate.ops if op.name == kernel)

    def call():
        return function(**keywords)

    got, want = call(), op.oracle(**keywords)
    want = want.values if kernel == "ratio_statistics" else want  # beside them the oracle returns their scales
    for found, expected in zip(*(_numbers(x) for x in (got, want)), strict=True):
        candidates.verify(found, expected, 1e-5 * max(1.0, float(np.max(np.abs(expected)))))
    return call


def _numbers(found):
    """A kernel's result as float64 arrays: several by name, or one."""
    values = [found[name] for name in sorted(found)] if isinstance(found, dict) else [found]
    return [np.asarray(value, np.float64) for value in values]


class Kernels:
    """Time of one call; rlkernels alone."""

    param_names = ("kernel",)
    params = (tuple(WORKLOADS),)

    def setup(self, kernel):
        """Build the workload and verify."""
        self.call = prepared(kernel)

    def time_kernel(self, kernel):
        """One call."""
        self.call()
