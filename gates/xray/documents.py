"""The JSON of a recording, as docs/xray.md describes it: an update, and the events of a process."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt

FORMAT = 1
Kind = Literal["log_prob", "padding", "entropy", "kl", "router"]
PER_TOKEN: tuple[Kind, ...] = ("log_prob", "padding")  # kinds whose columns are the log-prob of a token


class Part(BaseModel):
    """A part of a document: fields that this version does not know are kept out, so that recorders may add some."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Texts(Part):
    """Several texts in a row: where the later ones begin, and how many nats of them change at most when the first is another."""

    starts: tuple[PositiveInt, ...]
    apart: float | None = None
    positions: Literal["run on", "begin anew"] | None = None


class RowDocument(Part):
    """A row that the script scored with gradient."""

    call: NonNegativeInt
    ids: tuple[int, ...]
    attended: tuple[int, ...]
    columns: tuple[int, ...]
    prompt: NonNegativeInt | None = None
    encoded: NonNegativeInt | None = None
    labels: tuple[int, ...] | None = None
    text: tuple[str, ...] | None = None
    texts: Texts | None = None


class Scorer(Part):
    """A pass without gradient: by which weights."""

    by: str
    model: str = ""
    update: NonNegativeInt = 0
    lines: NonNegativeInt = 0
    scored: NonNegativeInt = 0
    times: tuple[NonNegativeInt, ...] = ()


class Clip(Part):
    """A call that clips the norm of gradients."""

    norm: float
    limit: float

    @property
    def factor(self) -> float:
        """The number by which the gradient was multiplied."""
        return min(1.0, self.limit / self.norm) if self.norm > 0 else 1.0


class Clipped(Clip):
    """A clip of the norm, and how many of the update's forward passes came before it."""

    passes: NonNegativeInt


class Empty(Part):
    """Steps of the optimizer without any gradient since its last update, and whether the model was run before one."""

    steps: NonNegativeInt = 0
    after_passes: bool = False


class Moved(Part):
    """How many of the sampled weights moved."""

    numbers: NonNegativeInt
    with_gradient: NonNegativeInt
    still: NonNegativeInt


class OptimizerDocument(Part):
    """The optimizer's class and its settings at this update."""

    name: str
    groups: tuple[dict[str, Any], ...] = ()


class Trained(Part):
    """The size of what was fitted."""

    tensors: NonNegativeInt
    numbers: NonNegativeInt


class Special(Part):
    """Ids of special tokens: those that end a row, and the one that pads."""

    eos: tuple[int, ...] = ()
    pad: int | None = None


class UpdateDocument(Part):
    """The content of update-N.json."""

    format: PositiveInt
    update: PositiveInt
    framework: str = ""
    rank: NonNegativeInt = 0
    world_size: PositiveInt = 1
    model: str = ""
    dtype: str = "float32"
    autocast: str | None = None
    dropout: float = 0.0
    chance: float | None = None
    trained: Trained
    restricted: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    optimizer: OptimizerDocument
    temperature: float = 1.0
    temperatures: dict[str, float] = Field(default_factory=dict)
    kinds: tuple[tuple[Kind, NonNegativeInt], ...]
    tried: tuple[tuple[tuple[str, ...], float], ...] = ()
    rows: tuple[RowDocument, ...]
    keys: tuple[str, ...]
    special: Special = Special()
    scorers: tuple[Scorer, ...] = ()
    noise: float = 0.0
    gradient_norm: float
    clip: Clip | None = None
    clips: tuple[Clipped, ...] = ()
    empty: Empty = Empty()
    missed: NonNegativeInt = 0
    identity: str = ""
    moved: Moved | None = None
    shift: NonNegativeInt = 1
    bins: PositiveInt
    seed: int = 0


class Event(BaseModel):
    """A line of events.jsonl; its other fields depend on the event."""

    model_config = ConfigDict(frozen=True, extra="allow")

    event: str

    def get(self, name: str, otherwise: Any = None) -> Any:
        """Return a field of this event."""
        return (self.model_extra or {}).get(name, otherwise)
