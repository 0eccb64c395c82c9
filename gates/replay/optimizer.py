"""The norm, its clip, the learning rate, and the arithmetic of each optimizer step, from one step to the next."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from gates.model import Array
from gates.replay.measure import Measures
from gates.replay.run import Run
from gates.replay.trace import Update

RATE = "error of a learning rate"
NORM = "error of a gradient's norm"
APPLIED = "error of a gradient's norm after the clip"
STEPPED = "error of an adapter after an update, in its rounding"
KEPT = "adapters that change between updates"
LAYERS = "layers with an adapter that should have none, or the reverse"
BEGIN = "adapters that are not neutral before the first update"
QUANTITIES = (RATE, NORM, APPLIED, STEPPED, KEPT, LAYERS, BEGIN)
U = 2.0**-24  # of float32
ROUNDINGS = 64  # of float32 in a step of Adam and in its moments
BLOCK = re.compile(r"\.layers\.(\d+)\.")
ROUTERS = (".mlp.gate", ".block_sparse_moe.gate", ".mlp.shared_expert_gate")  # the layers that choose experts
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # coefficients of Muon


def replay(run: Run) -> Measures:
    """Recompute the optimizer of a run."""
    found = Measures(dict.fromkeys(QUANTITIES, (0.0, "")))
    trace, settings = run.trace, run.trace.config["optimizer"]
    optimizer = OPTIMIZERS[settings["name"]](settings)
    last: Mapping[str, Array] = trace.first
    apart = _layers(run) ^ {name.rpartition(".")[0] for name in last}
    found.count(LAYERS, len(apart), ", ".join(sorted(apart)[:3]))
    if trace.config["model"]["adapter_path"] is None and not trace.config["adapter"]["b_std"]:
        moved = [name for name, values in last.items() if name.endswith("lora_b") and values.any()]
        found.count(BEGIN, len(moved), ", ".join(moved[:3]))
    for step in trace.steps:
        where = f"step {step.number}"
        rate = learning_rate(settings, step.number - 1, trace.config["loop"]["steps"])
        found.distance(RATE, np.array(step.learning_rate), np.array(rate), where, scale=settings["learning_rate"])
        for update in step.updates:
            changed = sum(not np.array_equal(update.before[name], values) for name, values in last.items())
            found.count(KEPT, changed, update.name)
            _stepped(update, optimizer, rate, settings, found)
            last = update.after
    return found


def _layers(run: Run) -> set[str]:
    """Return the layers that should have an adapter: each projection of a block but routers, or what is named."""
    settings = run.trace.config["adapter"]
    chosen = set()
    blocks = {int(match[1]) for name in run.base.linear_layers if (match := BLOCK.search(name))}
    first = len(blocks) - settings["layers"] if settings["layers"] else 0
    for name in run.base.linear_layers:
        match = BLOCK.search(name)
        if match and int(match[1]) < first:
            continue
        router = name.endswith(ROUTERS)
        fits = any(f".{name}".endswith(f".{target}") for target in settings["targets"])
        plain = not settings["targets"] and match is not None and not router
        embedding = settings["embeddings"] and name.endswith("embed_tokens")
        if fits or plain or embedding or (settings["routers"] and router):
            chosen.add(name)
    return chosen


def learning_rate(settings: Mapping[str, Any], step: int, steps: int) -> float:
    """Return the rate of step 0, 1, …: a linear warm-up, then from the full rate down to its final share."""
    rate, warm = settings["learning_rate"], settings["warmup_steps"]
    if step < warm:
        return float(rate * (step + 1) / warm)
    if settings["schedule"] == "constant":
        return float(rate)
    done = min((step - warm) / max(steps - warm, 1), 1.0)
    left = 1.0 - done if settings["schedule"] == "linear" else (1.0 + math.cos(math.pi * done)) / 2.0
    return float(rate * (settings["final_share"] + (1.0 - settings["final_share"]) * left))


def _stepped(update: Update, optimizer: Any, rate: float, settings: Mapping[str, Any], found: Measures) -> None:
    gradient = {name: values.astype(np.float64) for name, values in update.gradient.items()}
    norm = math.sqrt(sum(float((values**2).sum()) for values in gradient.values()))
    got = update.facts["gradient_norm"]
    if update.facts["skipped"]:
        same = all(np.array_equal(update.before[name], values) for name, values in update.after.items())
        found.count(KEPT, int(not same), f"{update.name}: skipped")
        return
    found.distance(NORM, np.array(got), np.array(norm), update.name, scale=max(norm, 1e-30))
    limit = settings["max_gradient_norm"]
    factor = min(1.0, limit / norm) if limit not in (None, "off") and norm else 1.0
    applied = np.array(update.facts.get("applied_norm", math.nan))
    found.distance(APPLIED, applied, np.array(norm * factor), update.name, scale=max(norm * factor, 1e-30))
    optimizer.begin()
    for name, before in update.before.items():
        want = optimizer.step(name, before.astype(np.float64), gradient[name] * factor, rate)
        room = U * (np.abs(before) + np.abs(want)) + optimizer.room * rate * optimizer.size(gradient[name] * factor)
        found.distance(STEPPED, update.after[name], want, f"{update.name}, {name}", scale=room)


class Adam:
    """Adam with bias correction (Kingma and Ba 2015, algorithm 1); AdamW shrinks the weights first."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self.count = 0
        self.moments: dict[str, tuple[Array, Array]] = {}

    @property
    def room(self) -> float:
        """Roundings of a step at rate 1, and those of 1 − β₂ᵗ, a small difference whose power errs by some units in float32."""
        return float(U * (ROUNDINGS + 8 / (1 - self.settings["betas"][1] ** self.count)))

    def begin(self) -> None:
        """Count a step."""
        self.count += 1

    def size(self, _: Array) -> float:
        """Return the size of a step at rate 1, which does not depend on the gradient's."""
        return 1.0

    def step(self, name: str, weights: Array, gradient: Array, rate: float) -> Array:
        """Return the weights after a step."""
        b1, b2 = self.settings["betas"]
        m, v = self.moments.get(name, (np.zeros_like(gradient), np.zeros_like(gradient)))
        m, v = b1 * m + (1 - b1) * gradient, b2 * v + (1 - b2) * gradient**2
        self.moments[name] = m, v
        if self.settings["name"] == "adamw":
            weights = weights * (1 - rate * self.settings["weight_decay"])
        corrected = np.sqrt(v / (1 - b2**self.count)) + self.settings["epsilon"]
        return np.asarray(weights - rate * m / (1 - b1**self.count) / corrected)


class Sgd:
    """Gradient descent with momentum; the decay is added to the gradient."""

    room = ROUNDINGS * U

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self.velocity: dict[str, Array] = {}

    def begin(self) -> None:
        """Begin a step."""

    def size(self, gradient: Array) -> float:
        """Return the size of a step at rate 1."""
        return float(np.abs(gradient).max(initial=0.0))

    def direction(self, name: str, weights: Array, gradient: Array) -> Array:
        """Return what is subtracted, before the learning rate."""
        gradient = gradient + self.settings["weight_decay"] * weights
        if not self.settings["momentum"]:
            return np.asarray(gradient)
        self.velocity[name] = self.settings["momentum"] * self.velocity.get(name, np.zeros_like(gradient)) + gradient
        return self.velocity[name]

    def step(self, name: str, weights: Array, gradient: Array, rate: float) -> Array:
        """Return the weights after a step."""
        return np.asarray(weights - rate * self.direction(name, weights, gradient))


class Muon(Sgd):
    """Momentum (Nesterov's), orthogonalised by five steps of Newton and Schulz (Jordan 2024)."""

    room = 2e-4  # Newton-Schulz multiplies an error of float32 by up to 3.4445**5

    def size(self, _: Array) -> float:
        """Return the size of a step at rate 1, which does not depend on the gradient's."""
        return 1.0

    def direction(self, name: str, weights: Array, gradient: Array) -> Array:
        """Return what is subtracted, before the learning rate."""
        share = self.settings["momentum"]
        gradient = gradient + self.settings["weight_decay"] * weights
        self.velocity[name] = share * self.velocity.get(name, np.zeros_like(gradient)) + (1 - share) * gradient
        moved = (1 - share) * gradient + share * self.velocity[name]
        if moved.ndim < 2:
            return np.asarray(moved)
        flat = moved.reshape(len(moved), -1)
        made = orthogonal(flat) * math.sqrt(max(1.0, flat.shape[0] / flat.shape[1]))
        return np.asarray(made.reshape(moved.shape))


def orthogonal(matrix: Array) -> Array:
    """Return a matrix of the same singular vectors with singular values near 1."""
    a, b, c = NEWTON_SCHULZ
    x = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / (np.linalg.norm(x) + 1e-7)
    for _ in range(5):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return np.asarray(x.T if matrix.shape[0] > matrix.shape[1] else x)


OPTIMIZERS = {"adam": Adam, "adamw": Adam, "sgd": Sgd, "muon": Muon}
