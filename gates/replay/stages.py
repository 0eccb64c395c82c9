"""The stages of a replay, in the order in which a step makes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from gates.replay import advantages, gradient, log_probs, metrics, optimizer, rewards, rollouts
from gates.replay.measure import Measures
from gates.replay.run import Run

SEED = 0  # of the directions along which gradients are compared
STAGES: Mapping[str, Callable[[Run], Measures]] = {
    "rollouts": rollouts.replay,
    "rewards": rewards.replay,
    "advantages": advantages.replay,
    "log-probs": log_probs.replay,
    "gradient": lambda run: gradient.replay(run, np.random.default_rng(SEED)),
    "optimizer": optimizer.replay,
    "metrics": metrics.replay,
}
