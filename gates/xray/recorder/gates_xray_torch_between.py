"""What a PyTorch script does between two updates besides forward passes: clips of the norm, and steps that are no update.

It runs in the interpreter of the script: standard library, NumPy and torch only.
"""

from __future__ import annotations

import math
import weakref

import torch

MOST_CLIPS = 256  # of an update that are kept


class Between:
    """Clips of the norm and other steps since the last update.

    Attributes:
        clip: the last clip of the norm, None where there was none.
        missed: steps with a gradient that were not recorded.
    """

    def __init__(self):
        self.clip = None
        self.missed = 0
        self._clips = []
        self._empty = (
            weakref.WeakKeyDictionary()
        )  # by optimizer, its steps without gradient and whether a pass preceded them

    def clipped(self, parameters, norm, limit, passes):
        """See a call that clips, after some forward passes with gradient; return what is known of it."""
        known = {"norm": float(norm), "limit": float(limit) if math.isfinite(float(limit)) else None}
        if known["limit"] is None:  # it asks for the norm only
            return known
        self.clip = known
        self._clips.append((known, {id(parameter) for parameter in parameters}, passes[-1] if passes else None))
        del self._clips[:-MOST_CLIPS]
        return known

    def clips(self, parameters, passes, every):
        """Return the clips of some parameters, each with how many of an update's passes came before it.

        Args:
            parameters: that the update moves.
            passes: of the update.
            every: pass since the last update.
        """
        ours = {id(parameter) for parameter in parameters}
        order = {id(call): place for place, call in enumerate(every)}
        return [
            {**known, "passes": sum(order.get(id(call), -1) <= order.get(id(last), -1) for call in passes)}
            for known, clipped, last in self._clips
            if ours & clipped
        ]

    def stepped(self, optimizer, modules):
        """See a step without any gradient; `modules` have made forward passes before it."""
        ours = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        ran = any(id(parameter) in ours for module in modules for parameter in module.parameters())
        steps, before = self._empty.get(optimizer, (0, False))
        self._empty[optimizer] = (steps + 1, before or ran)

    def empty(self, optimizer):
        """Return how often an optimizer has made a step without gradient since its last update, and whether passes preceded one."""
        steps, ran = self._empty.get(optimizer, (0, False))
        return {"steps": steps, "after_passes": ran}

    def begin(self, optimizer):
        """Begin anew after an update."""
        self.clip, self.missed, self._clips = None, 0, []
        self._empty.pop(optimizer, None)


def without_gradient(parameters):
    """Return whether all gradients are absent or 0."""
    return not any(parameter.grad is not None and float(parameter.grad.detach().norm()) for parameter in parameters)


def listed(parameters):
    """Return what a clip was given as a list: it may be one parameter, or what can be read only once."""
    return [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
