"""Low-rank adapters: LoRA (Hu et al. 2021, arXiv 2106.09685) and DoRA (Liu et al. 2024, arXiv 2402.09353).

LoRA adds scale · B A to a weight W of shape (outputs, inputs). DoRA rescales each row of the result to the length m:
W' = m (W + scale · B A) / ‖W + scale · B A‖. Files hold the transposes: `lora_a` is (inputs, r) and `lora_b` is (r, outputs) for a
linear layer, (rows of the table, r) and (r, width) for an embedding; for experts they are (experts, r, inputs) and
(experts, outputs, r).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from gates.errors import ConfigurationError
from gates.replay.forward.arrays import Array
from gates.replay.forward.errors import UnsupportedError
from gates.replay.forward.products import product

KINDS: Final = ("lora", "dora")
LEAVES: Final = {"lora": {"lora_a", "lora_b"}, "dora": {"lora_a", "lora_b", "m"}}
TABLE: Final = "embed_tokens"
"""The module whose weight is a table of embeddings, in every family."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter on a module.

    `gain` is DoRA's m / ‖W + scale · B A‖, one number for each row of the weight, and None for LoRA. `factor` multiplies the input of
    A, of which dropout makes 0 or 1 / (1 − p); None without dropout.
    """

    a: Array
    b: Array
    scale: float
    gain: Array | None = None
    factor: Array | None = None

    def linear(self, x: Array, plain: Array) -> Array:
        """Return the output for inputs x (…, inputs), of which the weight alone makes `plain`.

        Raises:
            UnsupportedError: dropout was drawn for an input of another size.
        """
        if self.factor is not None:
            if self.factor.size != x.size:
                raise UnsupportedError(f"masks of shape {self.factor.shape} were drawn for an input of shape {x.shape}")
            x = x * self.factor.reshape(x.shape)
        return self._rescaled(plain + self.scale * product(product(x, self.a), self.b))

    def expert(self, number: int, x: Array, plain: Array) -> Array:
        """Return the output of an expert for inputs x (…, inputs), of which its weight alone makes `plain`."""
        return np.asarray(plain + self.scale * product(product(x, self.a[number].T), self.b[number].T))

    def rows(self, ids: np.ndarray, plain: Array) -> Array:
        """Return the embeddings of ids, which are `plain` in the table alone."""
        adapted = np.asarray(plain + self.scale * product(self.a[ids], self.b))
        return adapted if self.gain is None else self.gain[ids][..., None] * adapted

    def unembed(self, x: Array, plain: Array) -> Array:
        """Return the logits of a tied head for x (…, width), which are `plain` with the table alone."""
        return self._rescaled(plain + self.scale * product(product(x, self.b.T), self.a.T))

    def merged(self, path: str, weight: Array) -> Array:
        """Return the weight of the module at a path with the adapter in it."""
        if self.a.ndim == 3:
            delta = np.einsum("eor,eri->eoi", self.b, self.a)
        else:
            delta = self.a @ self.b if path.endswith(TABLE) else (self.a @ self.b).T
        whole = np.asarray(weight + self.scale * delta)
        return whole if self.gain is None else np.asarray(self.gain[:, None] * whole)

    def _rescaled(self, y: Array) -> Array:
        return y if self.gain is None else self.gain * y


def collect(
    arrays: Mapping[str, Array],
    weights: Mapping[str, Array],
    *,
    kind: str,
    scale: float,
    norms: Mapping[str, Array] | None = None,
    factors: Mapping[str, Array] | None = None,
) -> dict[str, Adapter]:
    """Return the adapters by the path of their module.

    `norms` are the adapters of DoRA's denominators, if others. `factors` multiply the inputs of adapters, as dropout does; embeddings
    have none.

    Raises:
        UnsupportedError: there are factors, but not for this layer, or it is a stack of experts.
        ConfigurationError: the kind is unknown, or the names or shapes are not those of adapters on these weights.
    """
    if kind not in KINDS:
        raise ConfigurationError(f"kind is {kind!r}, must be one of {list(KINDS)}")
    grouped: dict[str, dict[str, Array]] = {}
    for name, values in arrays.items():
        path, _, leaf = name.rpartition(".")
        grouped.setdefault(path, {})[leaf] = np.asarray(values, np.float64)
    found: dict[str, Adapter] = {}
    for path, leaves in grouped.items():
        if set(leaves) != LEAVES[kind]:
            raise ConfigurationError(f"{path} has {sorted(leaves)}, a {kind} adapter has {sorted(LEAVES[kind])}")
        _require_shapes(path, leaves, weights)
        a, b = leaves["lora_a"], leaves["lora_b"]
        gain = None
        if kind == "dora":
            source = norms if norms is not None else arrays
            gain = leaves["m"] / _row_norms(path, weights, source, scale)
        factor = None if factors is None or path.endswith(TABLE) else _factor(path, a, factors)
        found[path] = Adapter(a, b, float(scale), gain, factor)
    return found


def _factor(path: str, a: Array, factors: Mapping[str, Array]) -> Array:
    if a.ndim == 3 or path not in factors:
        raise UnsupportedError(f"{path} is a stack of experts" if a.ndim == 3 else f"{path} has no mask")
    return factors[path]


def _require_shapes(path: str, leaves: Mapping[str, Array], weights: Mapping[str, Array]) -> None:
    name = f"{path}.weight"
    if name not in weights:
        raise ConfigurationError(f"{path} has an adapter, but the model has no {name}")
    a, b = leaves["lora_a"], leaves["lora_b"]
    delta = _delta_shape(path, a, b)
    if delta != weights[name].shape or ("m" in leaves and leaves["m"].shape != weights[name].shape[:1]):
        shapes = {leaf: values.shape for leaf, values in leaves.items()}
        raise ConfigurationError(f"{path} has adapters of shapes {shapes}, its weight is {weights[name].shape}")


def _delta_shape(path: str, a: Array, b: Array) -> tuple[int, ...] | None:
    """Return the shape of the weight that the adapter changes, None if A and B do not fit each other."""
    if a.ndim == b.ndim == 3:
        fits = a.shape[0] == b.shape[0] and a.shape[1] == b.shape[2]
        return (a.shape[0], b.shape[1], a.shape[2]) if fits else None
    if not a.ndim == b.ndim == 2 or a.shape[1] != b.shape[0]:
        return None
    return (a.shape[0], b.shape[1]) if path.endswith(TABLE) else (b.shape[1], a.shape[0])


def _row_norms(path: str, weights: Mapping[str, Array], source: Mapping[str, Array], scale: float) -> Array:
    product = np.asarray(source[f"{path}.lora_a"], np.float64) @ np.asarray(source[f"{path}.lora_b"], np.float64)
    delta = product if path.endswith(TABLE) else product.T
    return np.asarray(np.linalg.norm(weights[f"{path}.weight"] + scale * delta, axis=1))
