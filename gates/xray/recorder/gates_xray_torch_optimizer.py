"""Single weights of a PyTorch optimizer, before and after its step.

It runs in the interpreter of the script: standard library, NumPy and torch only.
"""

from __future__ import annotations

import gates_xray
import numpy as np
import torch

MOST_SHUFFLED = 1 << 24  # numbers of a parameter; of larger ones places are drawn one by one


class Sample:
    """A sample of single weights, with their gradients and the optimizer's state before the step."""

    def __init__(self, optimizer, parameters):
        self._parameters = parameters
        self._places = _places(parameters)
        group_of = {id(p): k for k, group in enumerate(optimizer.param_groups) for p in group["params"]}
        before = {
            "group": [np.full(len(place), group_of[id(p)], np.int64) for p, place in self._of()],
            "before": [_picked(p.data, place) for p, place in self._of()],
            "gradient": [_picked(p.grad, place) for p, place in self._of()],
        }
        states = [optimizer.state.get(parameter, {}) for parameter in parameters.values()]
        for key in sorted({key for state in states for key in state}):
            parts = [_state(state.get(key), p, place) for state, (p, place) in zip(states, self._of(), strict=True)]
            if not any(part is None for part in parts):
                before[f"state.{key}"] = parts
        self._before = {f"sample.{name}": np.concatenate(parts) for name, parts in before.items()}

    def _of(self):
        return [(parameter, self._places[name]) for name, parameter in self._parameters.items()]

    def arrays(self):
        """Return the sample, with the weights after the step."""
        after = np.concatenate([_picked(parameter.data, place) for parameter, place in self._of()])
        return {**self._before, "sample.after": after}


def _places(parameters):
    """Return for each parameter the places of its numbers that are kept."""
    total = sum(parameter.numel() for parameter in parameters.values())
    generator = torch.Generator().manual_seed(1)
    places = {}
    for name, parameter in parameters.items():
        size = parameter.numel()
        many = min(size, max(16, gates_xray.SAMPLE * size // total))
        if size < MOST_SHUFFLED:
            place = torch.randperm(size, generator=generator)[:many]
        else:
            place = torch.randint(size, (many,), generator=generator)
        places[name] = place.to(parameter.device)
    return places


def _state(value, parameter, place):
    """Return an optimizer's state at some places: of each number, or one number for all; None for any other."""
    if isinstance(value, torch.Tensor):
        if value.numel() == parameter.numel() > 1:
            return _picked(value, place.to(value.device))
        value = float(value) if value.numel() == 1 else None
    elif value is None:
        value = np.nan
    return np.full(len(place), float(value)) if isinstance(value, (int, float)) else None


def _picked(tensor, places):
    dense = tensor.detach().to_dense() if tensor.is_sparse else tensor.detach()
    return dense.reshape(-1)[places].double().cpu().numpy()
