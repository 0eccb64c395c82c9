"""Rotary position embeddings (Su et al. 2021, arXiv 2104.09864)."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import pi
from typing import Any, Final

import numpy as np

from gates.replay.forward.arrays import Array
from gates.replay.forward.config import Config
from gates.replay.forward.errors import UnsupportedError

SCHEMES: Final = ("default", "linear", "llama3")


@dataclass(frozen=True, slots=True)
class Rotary:
    """A rotation of the first 2n numbers of a head at position p by the angles p f for n frequencies f.

    A pair is (i, i + n), or (2i, 2i + 1) if `interleaved`.
    """

    frequencies: Array
    interleaved: bool = False

    def __call__(self, x: Array) -> Array:
        """Rotate x (B, L, heads, width), whose positions are 0 to L − 1."""
        count = len(self.frequencies)
        angles = np.arange(x.shape[1])[:, None, None] * self.frequencies
        cosines, sines = np.cos(angles), np.sin(angles)
        pairs = (
            (slice(0, 2 * count, 2), slice(1, 2 * count, 2))
            if self.interleaved
            else (slice(0, count), slice(count, 2 * count))
        )
        first, second = (x[..., part] for part in pairs)
        y = x.copy()
        y[..., pairs[0]] = first * cosines - second * sines
        y[..., pairs[1]] = first * sines + second * cosines
        return y


def rotary(
    config: Config, width: int, *, theta: float = 10000.0, interleaved: bool = False, kind: str = "full_attention"
) -> Rotary:
    """Return the rotation of the first `width` numbers of a head as rope_theta, rope_scaling and rope_parameters say.

    `kind` is the kind of layer, by which rope_parameters may be grouped.

    Raises:
        UnsupportedError: the frequencies are scaled in a way that is not among the known ones.
    """
    nested = parameters(config, kind)
    base = float(config.get("rope_theta", nested.get("rope_theta", theta)))
    scaling: Mapping[str, Any] = config.get("rope_scaling", nested)
    scheme = scaling.get("rope_type") or scaling.get("type") or "default"
    frequencies = plain(width, base)
    if scheme == "linear":
        frequencies = frequencies / float(scaling["factor"])
    elif scheme == "llama3":
        frequencies = _llama3(frequencies, scaling)
    elif scheme not in SCHEMES:
        raise UnsupportedError(
            f"rope_scaling of {config.get('model_type')} has the type {scheme!r}, known are {list(SCHEMES)}"
        )
    return Rotary(frequencies, interleaved)


def parameters(config: Config, kind: str = "full_attention") -> Mapping[str, Any]:
    """Return rope_parameters for a kind of layer, empty if the configuration has none."""
    content: Mapping[str, Any] = config.get("rope_parameters", {})
    grouped: Mapping[str, Any] = content.get(kind, {})
    return grouped if any(isinstance(value, Mapping) for value in content.values()) else content


def plain(width: int, base: float) -> Array:
    """Return the frequencies base^(−2i / width)."""
    return np.asarray(base ** (-np.arange(0, width, 2) / width))


def _llama3(frequencies: Array, scaling: Mapping[str, Any]) -> Array:
    """Divide low frequencies by the factor, keep high ones, and interpolate between (Llama 3.1's published code)."""
    factor, low, high = (float(scaling[key]) for key in ("factor", "low_freq_factor", "high_freq_factor"))
    turns = float(scaling["original_max_position_embeddings"]) * frequencies / (2 * pi)
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return np.asarray(kept * frequencies + (1 - kept) * frequencies / factor)
