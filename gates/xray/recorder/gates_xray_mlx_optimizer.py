"""What an MLX optimizer does at an update: its settings, and a sample of weights with their gradients and states.

It runs in the interpreter of the script: standard library, NumPy and mlx only.
"""

from __future__ import annotations

import gates_xray
import mlx.core as mx
import numpy as np
from gates_xray_mlx_weights import picked

STATES = {"m": "exp_avg", "v": "exp_avg_sq"}  # MLX's names of states to PyTorch's, which the format has
MOMENTUM = "momentum_buffer"  # what SGD and Muon call v
SETTINGS = {"learning_rate": "lr"}
DENSE = 1 << 24  # numbers of a parameter from which places are drawn with repetition


class Sample:
    """Single weights with their gradients and the optimizer's state before the update."""

    def __init__(self, optimizer, weights, gradients):
        self._optimizer = optimizer
        self._weights = weights
        generator = np.random.Generator(np.random.PCG64(1))
        self._places, arrays, states = {}, {"group": [], "before": [], "gradient": []}, {}
        for name, weight in weights.own.items():
            many = min(weight.size, max(16, gates_xray.SAMPLE * weight.size // weights.size))
            sparse = weight.size >= DENSE
            places = generator.integers(weight.size, size=many) if sparse else generator.permutation(weight.size)[:many]
            self._places[name] = places
            group, mover = self._group(name, gradients[name])
            arrays["group"].append(np.full(many, group, np.int64))
            arrays["before"].append(picked(weight, places))
            arrays["gradient"].append(picked(gradients[name], places))
            states[name] = {"step": mover.state.get("step"), **_state(mover.state, name)}
        names = sorted({key for state in states.values() for key in state})
        for key in names:
            values = [self._values(name, state.get(key)) for name, state in states.items()]
            arrays[f"state.{MOMENTUM if key == 'v' and 'm' not in names else STATES.get(key, key)}"] = values
        self.arrays = {f"sample.{name}": np.concatenate(parts) for name, parts in arrays.items()}

    def _group(self, name, gradient):
        """Return the index of the optimizer that moves a parameter, and that optimizer: several in a MultiOptimizer."""
        several = getattr(self._optimizer, "optimizers", None)
        if not several:
            return 0, self._optimizer
        index = next(k for k, wanted in enumerate(self._optimizer.filters) if wanted(name, gradient))
        return index, several[index]

    def _values(self, name, value):
        """Return the numbers of a state at the sampled places; one number holds for all."""
        places, size = self._places[name], self._weights.own[name].size
        if isinstance(value, mx.array) and value.size == size and size > 1:
            return picked(value, places)
        single = isinstance(value, (int, float)) or (isinstance(value, mx.array) and value.size == 1)
        return np.full(len(places), float(np.array(value).reshape(-1)[0]) if single else np.nan)

    def after(self, updated):
        """Return the sampled weights after the update."""
        return np.concatenate([picked(updated[name], places) for name, places in self._places.items()])


def _state(state, name):
    """Return the optimizer's state of one parameter."""
    for part in name.split("."):
        if isinstance(state, (list, tuple)):
            state = state[int(part)] if int(part) < len(state) else {}
        else:
            state = state.get(part, {}) if isinstance(state, dict) else {}
    return state if isinstance(state, dict) else {}


def described(optimizer):
    """Return an optimizer's name and its settings as they hold at the update that it has made."""
    movers = getattr(optimizer, "optimizers", None) or [optimizer]
    return {"name": type(optimizer).__name__, "groups": [_settings(mover) for mover in movers]}


def _settings(optimizer):
    plain = (int, float, bool, str, list, tuple)
    held = {k: v for k, v in vars(optimizer).items() if not k.startswith("_") and isinstance(v, plain)}
    for key, value in optimizer.state.items():
        if isinstance(value, mx.array) and value.size == 1 and key != "step":
            held[key] = float(np.array(value))
    kind = {"class": type(optimizer).__name__}
    return kind | {SETTINGS.get(key, key): value for key, value in held.items()}
