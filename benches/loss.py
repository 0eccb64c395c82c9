"""The GRPO loss of a step with its gradient, float32, with and without KL."""

import math

import numpy as np

from reference.oracle import losses as oracle

from . import candidates, inputs

BETAS = (0.0, 0.04)
CONVENTION = {
    "algorithm": "grpo",
    "epsilon_low": 0.2,
    "epsilon_high": 0.2,
    "delta": None,
    "kl_estimator": "k3",
    "kl_ratio": "none",
}
ROUNDED = ("epsilon_low", "epsilon_high", "beta")  # once, to the type of the data; the oracle gets the rounded value


@candidates.once
def prepared(shape, beta, name):
    """The call to be timed, verified against the oracle."""
    step, keywords = inputs.step(shape), CONVENTION | {"beta": beta}
    function = candidates.function(name, "policy_loss")

    def call():
        return function(**step, **keywords)

    loss, gradient = candidates.results(call(), "loss", "gradient")
    want = oracle.policy_loss(**step, **{k: float(np.float32(v)) if k in ROUNDED else v for k, v in keywords.items()})
    unit = 4 * 2 * 2.0**-24
    candidates.verify(np.float64(loss), np.float64(want.loss), unit * want.loss_scale + want.branch_slack)
    other = np.abs(gradient - want.gradient_other) < np.abs(gradient - want.gradient)
    nearer = np.where(want.near_branch & other, want.gradient_other, want.gradient)
    candidates.verify(gradient, nearer, unit * want.gradient_scale + np.spacing(np.abs(want.gradient)))
    return call


class PolicyLoss:
    """Time of 131,072 tokens, padding among them, in as many calls as that takes."""

    param_names = ("shape", "beta", "candidate")
    params = (tuple(inputs.STEPS), BETAS, candidates.NAMES)

    def setup(self, shape, beta, candidate):
        """Build the workload and verify the candidate."""
        self.calls = candidates.sample(prepared(shape, beta, candidate), math.prod(inputs.STEPS[shape]))

    def time_policy_loss(self, shape, beta, candidate):
        """All calls, each with loss and gradient."""
        self.calls()


class PolicyLossRatio:
    """rlkernels over NumPy; below 1 is faster."""

    param_names = ("shape", "beta")
    params = (tuple(inputs.STEPS), BETAS)
    unit = "rlkernels / numpy"

    def setup(self, shape, beta):
        """Verify both."""
        self.calls = [prepared(shape, beta, name) for name in candidates.NAMES]

    def track_policy_loss(self, shape, beta):
        """The ratio of medians, interleaved."""
        return candidates.ratio_of_medians(*self.calls)
