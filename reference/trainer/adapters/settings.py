"""What an adapter is made of, by name; `reference.trainer.lora.attach` takes these as a mapping."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

KINDS: Final = ("lora", "dora")


@dataclass(frozen=True, slots=True)
class Settings:
    """An adapter's settings.

    `kind` is "lora" (Hu et al. 2021, arXiv 2106.09685) or "dora" (Liu et al. 2024, arXiv 2402.09353). `scale` multiplies A B; it
    is PEFT's alpha / rank. A is uniform, B has standard deviation `b_std`, and DoRA's magnitudes a relative one of `m_std`, all drawn
    with `seed`; 0 is the usual start, where the adapter changes nothing (a DoRA: but rounding). `targets` are names such as "q_proj" or "mlp.down_proj"; without any, every projection of every
    block is one. `embeddings` adds the embedding table (and with it a tied head), `routers` what chooses experts. `layers` counts
    blocks from the last one; 0 is all.
    """

    kind: str = "lora"
    rank: int = 4
    scale: float = 2.0
    seed: int = 0
    b_std: float = 0.0
    m_std: float = 0.0
    targets: tuple[str, ...] = ()
    embeddings: bool = False
    routers: bool = False
    layers: int = 0

    def __post_init__(self) -> None:
        """Refuse values that mean nothing."""
        if self.kind not in KINDS:
            raise ValueError(f"kind is {self.kind!r}, must be one of {list(KINDS)}")
        if self.rank < 1:
            raise ValueError(f"rank is {self.rank}, must be at least 1")
        if self.layers < 0:
            raise ValueError(f"layers is {self.layers}, must be at least 0 (0 is all)")


def complete(spec: Mapping[str, Any]) -> Settings:
    """The settings of a spec, every absent key at its default.

    Raises:
        ValueError: a key is unknown or a value impossible.
        TypeError: `targets` is one string.
    """
    known = {field.name for field in fields(Settings)}
    unknown = sorted(set(spec) - known)
    if unknown:
        raise ValueError(f"unknown keys {unknown} in the adapter spec, known are {sorted(known)}")
    given = dict(spec)
    if isinstance(given.get("targets"), str):
        raise TypeError(f"targets is {given['targets']!r}, must be a list of names")
    plain = {
        "kind": str,
        "rank": int,
        "scale": float,
        "seed": int,
        "b_std": float,
        "m_std": float,
        "layers": int,
        "targets": tuple,
    }
    return Settings(**{key: plain.get(key, bool)(value) for key, value in given.items()})
