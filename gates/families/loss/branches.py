"""Loss and gradient of a subject at a bound of a clip, where either side is right."""

from __future__ import annotations

import numpy as np

from gates.model import Array, Wire
from reference.oracle.losses import PolicyLoss


def on_a_branch(wanted: PolicyLoss, got_loss: Wire, got_gradient: Wire) -> tuple[float, Array]:
    """Return loss and gradient as they would be on the definition's side of a bound, where they are on the other."""
    gradient = np.asarray(got_gradient, np.float64)
    other = np.abs(gradient - wanted.gradient_other) < np.abs(gradient - wanted.gradient)
    moved = np.where(other & wanted.near_branch, gradient - wanted.gradient_other + wanted.gradient, gradient)
    loss = float(np.asarray(got_loss))
    off = loss - wanted.loss
    return loss - float(np.copysign(min(abs(off), wanted.branch_slack), off)), moved
