"""Named workloads and model shapes of the trainer benchmarks. The tables are append-only; a test has their digests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal

Ending = Literal["none", "geometric"]


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a Qwen3 model, and the default lengths of workloads on it.

    `prompt` and `tokens` are the tokens of a prompt and the most of a completion; `quantised_tokens` are the most with 4 bits,
    fewer for a CPU, which has no fast kernel for them.
    """

    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied: bool
    dtype: str
    prompt: int
    tokens: int
    quantised_tokens: int

    def parameters(self) -> int:
        """Return the number of parameters."""
        wide = self.heads * self.head_dim
        narrow = self.kv_heads * self.head_dim
        attention = self.hidden * (2 * wide + 2 * narrow) + 2 * self.head_dim
        block = attention + 3 * self.hidden * self.intermediate + 2 * self.hidden
        return self.layers * block + (1 if self.tied else 2) * self.vocab * self.hidden + self.hidden

    def products(self) -> int:
        """Return the number of weights in a token's matrix products: all matrices and the head, without the embedding."""
        wide, narrow = self.heads * self.head_dim, self.kv_heads * self.head_dim
        block = self.hidden * (2 * wide + 2 * narrow) + 3 * self.hidden * self.intermediate
        return self.layers * block + self.vocab * self.hidden


#: `tiny` has 3.4 million parameters, `ten` ten times that; 16 prompt tokens and 48 more end at 64, the width to which
#: mlx-tune pads, so that different lengths do not cause recompilation. `qwen3-0.6b` is the shape of Qwen3-0.6B.
SHAPES: Final[Mapping[str, Shape]] = {
    "tiny": Shape("tiny", 256, 4, 4, 2, 64, 768, 512, False, "float32", 16, 48, 16),
    "ten": Shape("ten", 640, 6, 10, 5, 64, 2176, 512, False, "float32", 16, 48, 16),
    "qwen3-0.6b": Shape("qwen3-0.6b", 1024, 28, 16, 8, 128, 3072, 151_936, True, "bfloat16", 19, 256, 256),
}


@dataclass(frozen=True, slots=True)
class Workload:
    """The work of one step: prompts, completions of each, their limit, and how they end.

    Attributes:
        prompts: tokens of each prompt of a step; empty: one prompt of the shape's length.
        samples: completions of each prompt (G).
        tokens: the most tokens of a completion; 0: the shape's.
        ending: `geometric`: every token is the end token with probability 3/T; `none`: (nearly) never.
        bits: 4 for a model quantised by mlx-lm in groups of 64, 0 for one in its own dtype.
    """

    name: str
    prompts: tuple[int, ...] = ()
    samples: int = 4
    tokens: int = 0
    ending: Ending = "none"
    bits: int = 0

    def on(self, shape: Shape) -> Workload:
        """Return the workload with its lengths on a shape."""
        most = shape.quantised_tokens if self.bits else shape.tokens
        return replace(self, prompts=self.prompts or (shape.prompt,), tokens=self.tokens or most)

    @property
    def rows(self) -> int:
        """Completions of a step."""
        return len(self.prompts) * self.samples

    @property
    def prompt_tokens(self) -> int:
        """Prompt tokens of a step, each prompt counted once for each completion."""
        return sum(self.prompts) * self.samples

    def steps(self, count: int) -> int:
        """Return the number of timed steps for a requested `count`: three times as many if lengths are drawn."""
        return 3 * count if self.ending == "geometric" else count

    def end_probability(self) -> float:
        """Return the probability of the end token before the sampler's filter; 0 means less than 1e-12."""
        return 3.0 / self.tokens if self.ending == "geometric" else 0.0

    def mean_length(self) -> float:
        """Return the expected tokens of a completion, including the end token, truncated at the limit."""
        p = self.end_probability()
        return float(self.tokens) if p == 0.0 else (1.0 - (1.0 - p) ** self.tokens) / p


WORKLOADS: Final[Mapping[str, Workload]] = {
    "no-early-end": Workload("no-early-end"),
    "geometric": Workload("geometric", ending="geometric"),
    "ragged": Workload("ragged", prompts=(8, 24, 48, 96), tokens=32),
    "long-prompt": Workload("long-prompt", prompts=(128,), tokens=64),
    "4-bit": Workload("4-bit", bits=4),
}

#: The requested settings of every target; `settings` of a record has the actual ones.
SETTINGS: Final[Mapping[str, Any]] = {
    "temperature": 0.7,
    "top_p": 0.95,
    "beta": 0.04,
    "rank": 8,
    "learning_rate": 1e-9,  # the weights hardly change, so that every step draws from the same lengths
    "seed": 7,
}
#: Prompts of a data set, in steps; trainers repeat them.
STEPS_OF_PROMPTS: Final = 16


def digest(shape: str, workload: str) -> str:
    """Return a digest of a workload on a shape, except the weights (`models.digest`)."""
    on = WORKLOADS[workload].on(SHAPES[shape])
    recipe = {"shape": asdict(SHAPES[shape]), "workload": asdict(on), "settings": dict(SETTINGS)}
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:16]


def model_name(shape: Shape, workload: Workload) -> str:
    """Return the name of the model in a record: its shape and bits."""
    bits = workload.bits or {"float32": 32, "bfloat16": 16}[shape.dtype]
    return f"{shape.name} {bits}-bit"
