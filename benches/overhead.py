"""asv: what a call costs when there is next to nothing to compute; four values in, keywords at their defaults."""

import numpy as np

import rlkernels

from . import timing

POLICY, REFERENCE = (np.log(np.array(p, np.float32)) for p in ([0.5, 0.25, 0.125, 0.125], [0.25, 0.25, 0.25, 0.25]))
NAMES = {
    "policy": POLICY,
    "reference": REFERENCE,
    "out": np.empty_like(POLICY),
    "rewards": np.array([1.0, 0.0, 0.5, 2.0]),
    "lengths": np.array([3, 5, 2, 4]),
    "logits": np.array([[1.0, 2.0, 0.5, -1.0]], np.float32),
    "ids": np.array([1]),
    "rows": (POLICY[None], REFERENCE[None]),
}
K3 = np.exp(REFERENCE.astype(float) - POLICY) - (REFERENCE.astype(float) - POLICY) - 1
KL = [float(np.sum(np.exp(POLICY.astype(float)) * (POLICY.astype(float) - REFERENCE)))]
REWARDS = NAMES["rewards"]
#: Statements, as users write them, and what each returns, by hand.
CALLS = {
    "group_advantages(rewards, 4)": (REWARDS - REWARDS.mean()) / (REWARDS.std(ddof=1) + 1e-4),
    'token_kl(policy, reference, estimator="k3")': K3,
    'token_kl(policy, reference, estimator="k3", out=out)': K3,
    "full_kl(policy, reference)": KL[0],
    'importance_ratio(*rows, level="token")': np.exp(POLICY.astype(float) - REFERENCE)[None],
    "selective_log_softmax(logits, ids)": [2.0 - np.log(np.exp(NAMES["logits"].astype(float)).sum())],
    "pack_sequences(lengths, 8)[0]": [1, 0, 3, 2],
}

TIMES = 10_000


class Overhead:
    """Time of ten thousand calls."""

    param_names = ("call",)
    params = (tuple(CALLS),)

    def setup(self, call):
        """Verify the result, then make a function of the statement, so that no wrapper is timed with it."""
        names = {**vars(rlkernels), **NAMES, "turns": [None] * TIMES}
        got = np.asarray(eval(call, names), float)  # noqa: S307  our own statement
        timing.require([timing.within(call, got, np.asarray(CALLS[call]), 1e-6, "float32, by hand")])
        exec(f"def calls():\n    for _ in turns:\n        {call}", names)  # noqa: S102  our own statement
        self.calls = names["calls"]

    def time_calls(self, call):
        """All calls."""
        self.calls()
