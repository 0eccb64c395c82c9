"""Train a tiny model on a few sums by supervised steps, in under a minute, as a start for reinforcement learning.

A model with random weights earns no reward, so no policy gradient can improve it. A model trained on a mixture of right and wrong
answers gives the right answer about as often as it saw it: rewards vary within every group, and can still rise.
"""

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import mlx.core as mx
import mlx_lm
import numpy as np
from mlx import nn, optimizers
from mlx.utils import tree_flatten
from numpy.typing import NDArray
from safetensors.numpy import save_file

from gates_reference import sums, tiny
from gates_reference.trainer import double

VERSION: Final = 1
"""Part of every cache key; raise it when the same recipe gives another model."""

MODEL: Final = {"hidden": 64, "heads": 4, "kv_heads": 2, "head_dim": 16, "intermediate": 128, "layers": 2, "gain": 1.0}
"""A model spec of `gates_reference.tiny` that is wide enough to memorise a hundred sums."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """The data, the steps and the model of a warm-up.

    The data are the first `problems` different plain sums of the stream of `data_seed`. A step reads `rows` of them with their
    answers; with probability `wrong` an answer is replaced by another number.
    """

    problems: int = 64
    steps: int = 350
    rows: int = 64
    learning_rate: float = 3e-3
    wrong: float = 0.55
    seed: int = 0
    data_seed: int = 0
    model: dict[str, Any] = field(default_factory=lambda: dict(MODEL))

    def __post_init__(self) -> None:
        """Refuse values outside their range."""
        if min(self.problems, self.steps, self.rows) < 1:
            raise ValueError(f"problems, steps, rows are {self.problems}, {self.steps}, {self.rows}, must be >= 1")
        if not 0 <= self.wrong < 1:
            raise ValueError(f"wrong is {self.wrong}, must be in [0, 1)")


def problems(recipe: Recipe) -> list[sums.Sum]:
    """Return the recipe's sums, each once, in the order of the stream."""
    unique: dict[str, sums.Sum] = {}
    count = recipe.problems
    while len(unique) < recipe.problems:
        count *= 2
        unique = {row["prompt"]: row for row in sums.sums(recipe.data_seed, count, "plain")}
    return list(unique.values())[: recipe.problems]


def build(recipe: Recipe, progress: Callable[[int, float], None] | None = None) -> Path:
    """Return the folder of the warmed-up model; build it if it is missing. `progress` gets each step's number and loss.

    Several processes may do this at once. The bytes depend on the machine's arithmetic; the folder's name, a hash of the recipe,
    does not.
    """

    def write(half: Path) -> None:
        source = tiny.build(recipe.model)
        shutil.copytree(source, half, dirs_exist_ok=True)
        model, tokenizer = mlx_lm.load(str(source), trust_remote_code=False)[:2]
        _train(model, tokenizer, recipe, progress)
        weights = {name: np.array(x) for name, x in tree_flatten(model.parameters())}
        save_file(weights, half / "model.safetensors", metadata={"format": "mlx"})

    content = json.dumps({"version": VERSION, "tiny": tiny.BUILDER_VERSION, **asdict(recipe)}, sort_keys=True)
    return tiny.cached(f"warm-{hashlib.sha256(content.encode()).hexdigest()[:32]}", write)


def _train(model: Any, tokenizer: Any, recipe: Recipe, progress: Callable[[int, float], None] | None) -> None:
    rows = problems(recipe)
    prompts = [tokenizer.encode(row["prompt"]) for row in rows]
    answers = [row["answer"] for row in rows]
    generator = np.random.Generator(np.random.Philox(key=recipe.seed))
    optimizer = optimizers.Adam(recipe.learning_rate)

    def loss(ids: mx.array, mask: mx.array) -> mx.array:
        logits = model(ids[:, :-1]).astype(mx.float32)
        values = mx.where(mask[:, 1:], nn.losses.cross_entropy(logits, ids[:, 1:]), 0.0)
        return double.tree_sum(values.reshape(1, -1))[0] / mask[:, 1:].sum()

    step = nn.value_and_grad(model, loss)
    for number in range(recipe.steps):
        chosen = generator.permutation(len(rows))[: recipe.rows]
        texts = [
            (prompts[i], [*tokenizer.encode(str(_answer(answers[i], recipe.wrong, generator))), tokenizer.eos_token_id])
            for i in chosen
        ]
        value, gradient = step(*_batch(texts))
        optimizer.update(model, gradient)
        mx.eval(model.parameters(), optimizer.state)
        if progress is not None:
            progress(number + 1, float(value))


def _answer(right: int, wrong: float, generator: np.random.Generator) -> int:
    if generator.random() >= wrong:
        return right
    return int(generator.integers(-98, 199))  # the range of plain sums


def _batch(texts: list[tuple[list[int], list[int]]]) -> tuple[mx.array, mx.array]:
    """Return right-padded ids (B, L) and the mask (B, L) of the completions' tokens."""
    width = max(len(prompt) + len(completion) for prompt, completion in texts)
    ids: NDArray[np.int32] = np.zeros((len(texts), width), np.int32)
    mask = np.zeros((len(texts), width), np.bool_)
    for row, (prompt, completion) in enumerate(texts):
        end = len(prompt) + len(completion)
        ids[row, :end] = prompt + completion
        mask[row, len(prompt) : end] = True
    return mx.array(ids), mx.array(mask)
