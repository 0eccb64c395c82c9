"""Schulman's k3 per token of float32 log-probabilities."""

import math

from reference.oracle import kl as oracle

from . import candidates, inputs

CONVENTION = {"estimator": "k3", "mask": None, "lengths": None, "reduction": "none"}


@candidates.once
def prepared(shape, name):
    """The call to be timed, verified against the oracle."""
    policy, reference = inputs.log_probabilities(shape)
    function = candidates.function(name, "token_kl")

    def call():
        return function(policy=policy, reference=reference, **CONVENTION)

    want = oracle.token_kl(policy, reference, **CONVENTION)
    candidates.verify(*candidates.results(call(), "kl"), want, 4 * 2 * 2.0**-24 * abs(want))
    return call


class TokenKl:
    """Time of 131,072 tokens, in as many calls as that takes; of one call on more."""

    param_names = ("shape", "candidate")
    params = (tuple(inputs.LOG_PROBABILITIES), candidates.NAMES)

    def setup(self, shape, candidate):
        """Build the workload and verify the candidate."""
        tokens = math.prod(inputs.LOG_PROBABILITIES[shape])
        self.calls = candidates.sample(prepared(shape, candidate), tokens)

    def time_k3(self, shape, candidate):
        """All calls."""
        self.calls()


class TokenKlRatio:
    """rlkernels over NumPy; below 1 is faster."""

    param_names = ("shape",)
    params = (tuple(inputs.LOG_PROBABILITIES),)
    unit = "rlkernels / numpy"

    def setup(self, shape):
        """Verify both."""
        self.calls = [prepared(shape, name) for name in candidates.NAMES]

    def track_k3(self, shape):
        """The ratio of medians, interleaved."""
        return candidates.ratio_of_medians(*self.calls)
