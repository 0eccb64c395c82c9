"""The settings of adapters; `gates_reference.trainer.lora.attach` takes them as a mapping."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

KINDS: Final = ("lora", "dora")


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of the adapters on a model.

    Attributes:
        kind: "lora" (Hu et al. 2021, arXiv 2106.09685) or "dora" (Liu et al. 2024, arXiv 2402.09353).
        rank: the inner dimension of A B.
        scale: the factor of A B, which is PEFT's alpha / rank.
        seed: of the starting values.
        b_std: standard deviation of B; with 0 the adapter starts without effect (DoRA: except for rounding).
        m_std: relative standard deviation of DoRA's magnitudes.
        dropout: the probability with which an update drops an element of an adapter's input (`dropout`).
        targets: names such as "q_proj" or "mlp.down_proj"; empty means every projection of every block.
        embeddings: whether to add the embedding table, and with it a tied head.
        routers: whether to add the layers that choose experts.
        layers: how many blocks, counted from the last one; 0 means all.
    """

    kind: str = "lora"
    rank: int = 4
    scale: float = 2.0
    seed: int = 0
    b_std: float = 0.0
    m_std: float = 0.0
    dropout: float = 0.0
    targets: tuple[str, ...] = ()
    embeddings: bool = False
    routers: bool = False
    layers: int = 0

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        if self.kind not in KINDS:
            raise ValueError(f"kind is {self.kind!r}, must be one of {list(KINDS)}")
        if self.rank < 1:
            raise ValueError(f"rank is {self.rank}, must be at least 1")
        if self.layers < 0:
            raise ValueError(f"layers is {self.layers}, must be at least 0 (0 is all)")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout}, must be in [0, 1)")


def complete(spec: Mapping[str, Any]) -> Settings:
    """Return the settings of a spec; absent keys have their defaults.

    Raises:
        ValueError: a key is unknown or a value is impossible.
        TypeError: `targets` is one string.
    """
    known = {field.name for field in fields(Settings)}
    unknown = sorted(set(spec) - known)
    if unknown:
        raise ValueError(f"unknown keys {unknown} in the adapter spec, known are {sorted(known)}")
    values = dict(spec)
    if isinstance(values.get("targets"), str):
        raise TypeError(f"targets is {values['targets']!r}, must be a list of names")
    plain = {
        "kind": str,
        "rank": int,
        "scale": float,
        "seed": int,
        "b_std": float,
        "m_std": float,
        "dropout": float,
        "layers": int,
        "targets": tuple,
    }
    return Settings(**{key: plain.get(key, bool)(value) for key, value in values.items()})
