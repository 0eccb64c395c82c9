"""Group advantages of float64 rewards, TRL's convention."""

import math

import numpy as np

from reference.oracle import advantages as oracle

from . import candidates, inputs

CONVENTION = {"scale": "group", "ddof": 1, "eps": 1e-4, "eps_mode": "add", "baseline": "mean"}


@candidates.once
def prepared(shape, name):
    """The call to be timed, verified against the oracle."""
    rewards, group_size = inputs.rewards(shape)
    function = candidates.function(name, "group_advantages")

    def call():
        return function(rewards=rewards, group_size=group_size, **CONVENTION)

    want = oracle.group_advantages(rewards, group_size, **CONVENTION)
    scale = oracle.advantage_scale(rewards, group_size, **CONVENTION)
    candidates.verify(
        *candidates.results(call(), "advantages"), want, 8 * 2 * 2.0**-53 * scale + 8 * np.spacing(np.abs(want))
    )
    return call


class Advantages:
    """Time of 131,072 rewards, in as many calls as that takes."""

    param_names = ("shape", "candidate")
    params = (tuple(inputs.REWARDS), candidates.NAMES)

    def setup(self, shape, candidate):
        """Build the workload and verify the candidate."""
        self.calls = candidates.sample(prepared(shape, candidate), math.prod(inputs.REWARDS[shape]))

    def time_group_advantages(self, shape, candidate):
        """All calls."""
        self.calls()


class AdvantagesRatio:
    """rlkernels over NumPy; below 1 is faster."""

    param_names = ("shape",)
    params = (tuple(inputs.REWARDS),)
    unit = "rlkernels / numpy"

    def setup(self, shape):
        """Verify both."""
        self.calls = [prepared(shape, name) for name in candidates.NAMES]

    def track_group_advantages(self, shape):
        """The ratio of medians, interleaved."""
        return candidates.ratio_of_medians(*self.calls)
