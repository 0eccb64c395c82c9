"""Normalise loss and gradient at the bound of a clip, where either branch is right."""

from __future__ import annotations

import numpy as np

from gates.model import Array, Wire
from gates_reference.oracle.losses import PolicyLoss


def on_a_branch(want: PolicyLoss, got_loss: Wire, got_gradient: Wire) -> tuple[float, Array]:
    """Return loss and gradient on the definition's branch, converted where the subject took the other one."""
    gradient = np.asarray(got_gradient, np.float64)
    on_other = np.abs(gradient - want.gradient_other) < np.abs(gradient - want.gradient)
    moved = np.where(on_other & want.near_branch, gradient - want.gradient_other + want.gradient, gradient)
    loss = float(np.asarray(got_loss))
    off = loss - want.loss
    return loss - float(np.copysign(min(abs(off), want.branch_slack), off)), moved
