"""Times that other projects published in their own documentation; their authors measured them, we did not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Source:
    """A document, the machine of its measurements, and what was measured."""

    letter: str
    document: str
    machine: str
    note: str


@dataclass(frozen=True, slots=True)
class Times:
    """Medians in microseconds at one shape, by library."""

    source: str
    op: str
    shape: tuple[int, int]
    medians: Mapping[str, float]


SOURCES = (
    Source(
        "A",
        "rlox documentation, “rlox vs TRL-style Operations”",
        "machine not named, CPU",
        "TRL's statements, rewritten by the authors, in float32, rlox in float64; advantages in one call, KL in a Python loop over sequences",
    ),
    Source(
        "B",
        "rlox documentation, “LLM Post-Training with rlox”",
        "a cloud machine with 8 virtual CPUs",
        "float32 KL; the source calls the peer TRL (PyTorch)",
    ),
    Source(
        "C",
        "rlox documentation, “LLM Post-Training Operations”",
        "macOS, machine not named",
        "one call per group; its KL table is left out because it times another formula, Σ exp(p)·(p − q)",
    ),
)


def _table(
    source: str, op: str, libraries: Sequence[str], rows: Mapping[tuple[int, int], Sequence[float]]
) -> list[Times]:
    return [Times(source, op, shape, dict(zip(libraries, times, strict=True))) for shape, times in rows.items()]


KERNELS = (
    *_table(
        "A",
        "group_advantages",
        ("rlox", "TRL-style", "NumPy"),
        {
            (16, 4): (0.5, 6.5, 5.9),
            (64, 8): (1.6, 11.6, 8.1),
            (256, 16): (6.6, 44.3, 15.9),
            (1024, 32): (53.5, 212.5, 67.9),
        },
    ),
    *_table("B", "group_advantages", ("rlox", "TRL"), {(16, 4): (1.3, 34.1), (1024, 32): (115, 243)}),
    *_table(
        "C",
        "group_advantages",
        ("rlox", "NumPy", "torch"),
        {(16, 4): (2.2, 79.0, 76.2), (64, 8): (8.6, 309.9, 320.3), (256, 16): (36.1, 1243.3, 1261.6)},
    ),
    *_table(
        "A",
        "token_kl",
        ("rlox", "TRL-style", "NumPy"),
        {
            (1, 128): (0.5, 2.5, 1.2),
            (1, 512): (1.1, 3.0, 2.2),
            (1, 2048): (4.0, 4.0, 6.0),
            (1, 8192): (17.0, 46.1, 26.1),
            (32, 128): (12.4, 41.6, 11.1),
            (32, 512): (39.2, 52.3, 49.2),
            (32, 2048): (247.4, 156.7, 284.8),
        },
    ),
    *_table("B", "token_kl", ("rlox", "TRL"), {(1, 128): (0.3, 3.1), (32, 2048): (72, 194)}),
)


@dataclass(frozen=True, slots=True)
class PublishedTrainer:
    """The measurements of one trainer as its authors published them."""

    target: str
    comparison: str
    rollout_tokens_per_s: float
    gradient_s: float | None
    samples_per_s: float
    iterations_per_s: float | None
    peak_gb: float


TRAINERS_SOURCE = Source(
    "M",
    "mlxrl README, “Benchmarks”",
    "Apple M4 Max",
    "Qwen3-0.6B, 4 bits, GRPO with groups of 4 and completions of 256 tokens, 100 steps after 5, means of two passes, "
    "MLX 0.31.2, mlx-lm 0.31.3, mlx-tune 0.5.1",
)
TRAINERS = (
    PublishedTrainer("mlxrl", "same problem", 454.1, 1.282, 1.133, 0.283, 6.25),
    PublishedTrainer("mlx-lm", "generation only, G = 1", 347.0, None, 1.355, None, 0.52),
    PublishedTrainer("mlx-lm", "generation only, four in turn", 349.7, None, 1.366, None, 0.52),
    PublishedTrainer("mlx-tune", "package speed only", 142.2, 0.502, 0.519, 0.130, 6.16),
    PublishedTrainer("mlx-lm-lora", "package speed only", 557.9, 0.592, 1.648, 0.412, 5.32),
)
TRAINERS_WORKLOAD = ("qwen3-0.6b", "4-bit", "G4", "T256")


@dataclass(frozen=True, slots=True)
class PublishedStep:
    """The parts of one GRPO step, each with its least and greatest seconds."""

    model: str
    source: str
    parts: Mapping[str, tuple[float, float]]

    @property
    def least(self) -> float:
        """Return the seconds of the shortest step."""
        return sum(low for low, _ in self.parts.values())

    @property
    def greatest(self) -> float:
        """Return the seconds of the longest step."""
        return sum(high for _, high in self.parts.values())


STEP = PublishedStep(
    "Llama-8B-class",
    "A",
    {
        "generation": (2.0, 10.0),
        "backward pass": (0.5, 2.0),
        "forward pass": (0.2, 0.5),
        "data and logging": (0.01, 0.05),
    },
)


def kernels(op: str, shape: Sequence[int]) -> list[Times]:
    """Return the published times of an op at a shape."""
    return [times for times in KERNELS if times.op == op and times.shape == tuple(shape[:2])]
