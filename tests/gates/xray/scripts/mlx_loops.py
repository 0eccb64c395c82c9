"""Training loops in plain MLX, as people write them, on a tiny model; run by test_mlx_recorder.py with the recorder and without.

python mlx_loops.py FOLDER VARIANT OUT
"""

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gates_reference.trainer  # noqa: F401  # isort: skip  keeps what transformers reads of itself: half of mlx-lm's import

import mlx.core as mx
import mlx_lm
import numpy as np
from mlx import nn, optimizers
from mlx.utils import tree_map
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.sample_utils import make_sampler
from mlx_lm.tuner.trainer import grad_checkpoint
from mlx_lm.tuner.utils import linear_to_lora_layers

CLIP = 0.2
PROMPTS = ([35, 36, 37, 38], [40, 41, 42])


def sample(model: Any, temperature: float = 1.0) -> tuple[mx.array, mx.array]:
    """Return rows (R, T) of prompts with four completions each, and which of their tokens are completions."""
    sampler = make_sampler(temp=temperature)
    rows, spans = [], []
    for prompt in PROMPTS:
        for limit in (5, 8, 6, 9):
            steps = generate_step(mx.array(prompt), model, max_tokens=limit, sampler=sampler)
            completion = [int(token) for token, _ in steps]
            rows.append(prompt + completion)
            spans.append((len(prompt), len(prompt) + len(completion)))
    width = max(map(len, rows)) + 1
    ids, mask = np.zeros((len(rows), width), np.int32), np.zeros((len(rows), width - 1), np.float32)
    for line, (row, (begin, end)) in enumerate(zip(rows, spans, strict=True)):
        ids[line, : len(row)], mask[line, begin - 1 : end - 1] = row, 1
    return mx.array(ids), mx.array(mask)


def log_probs(logits: mx.array, ids: mx.array, temperature: float = 1.0) -> mx.array:
    """Return the log-probs (R, T-1) of tokens after the first."""
    scores = logits[:, :-1] / temperature
    picked = mx.take_along_axis(scores, ids[:, 1:, None], axis=-1)[..., 0]
    return picked - mx.logsumexp(scores, axis=-1)


SCORES: list[mx.array] = []  # of routers


class Router(nn.Module):
    """A router that keeps its scores, as scripts with a load-balancing loss have it."""

    def __init__(self, router: nn.Module) -> None:
        super().__init__()
        self.inner = router

    def __call__(self, states: mx.array) -> mx.array:
        """Return the scores (B, T, E) of the experts."""
        SCORES.append(self.inner(states))
        return SCORES[-1]


def balance(scores: mx.array) -> mx.array:
    """Return the load-balancing loss of scores (N, E) of which two are chosen (arXiv:2101.03961, equation 4)."""
    experts = scores.shape[-1]
    best = mx.argsort(-scores, axis=-1)[:, :2]
    choices = (best[..., None] == mx.arange(experts)).sum(1).mean(0)
    return experts * (choices * mx.softmax(scores, -1).mean(0)).sum()


class Policy(nn.Module):
    """A model with a value head."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.value = nn.Linear(320, 1)

    def __call__(self, ids: mx.array) -> tuple[mx.array, mx.array]:
        """Return logits (R, T, V) and values (R, T)."""
        logits = self.model(ids)
        return logits, self.value(mx.stop_gradient(logits))[..., 0]


class Run:
    """One script: a model, rows, a loss and an optimizer."""

    def __init__(self, folder: str, variant: str) -> None:
        self.variant = variant
        self.model, self.tokenizer = mlx_lm.load(folder)
        mx.random.seed(7)
        self.temperature = 0.7 if variant == "temperature" else 1.0
        self.ids, self.mask = self._rows()
        self.advantages = mx.array(np.random.default_rng(3).normal(size=len(self.ids)).astype(np.float32))
        self.optimizer: Any = optimizers.AdamW(1e-3)
        if variant == "several optimizers":
            parts = [optimizers.Adam(1e-3), optimizers.SGD(1e-2)]
            self.optimizer = optimizers.MultiOptimizer(parts, [lambda _, value: value.ndim > 1])
        if variant in {"adapters", "adapters off"}:
            self.model.freeze()
            linear_to_lora_layers(self.model, 2, {"rank": 4, "scale": 2.0, "dropout": 0.0})
        if variant == "checkpoints":
            grad_checkpoint(self.model.layers[0])
        if variant == "value head":
            self.model = Policy(self.model)
        if variant.startswith("router"):
            for layer in self.model.layers:
                layer.mlp.gate = Router(layer.mlp.gate)
        self.old = log_probs(self.logits(self.ids), self.ids, self.temperature)
        mx.eval(self.old)
        self.start = nn.log_softmax(self.logits(self.ids)[:, :-1], -1) if variant == "divergence" else None

    def _rows(self) -> tuple[mx.array, mx.array]:
        if not self.variant.startswith("own"):
            return sample(self.model, self.temperature)
        ids = mx.array([PROMPTS[0]] * 3)
        cache = make_prompt_cache(self.model) if self.variant == "own cache" else None
        if cache:
            self.model(ids[:, :-1], cache=cache)  # the last token of the prompts is given with the first decoding step
        for _ in range(6):
            given = ids[:, -1:] if cache else ids
            drawn = mx.random.categorical(self.model(given, cache=cache)[:, -1])
            ids = mx.concatenate([ids, drawn[:, None]], axis=1)
        width = ids.shape[1] - 1
        return ids, mx.broadcast_to(mx.arange(width) >= len(PROMPTS[0]) - 1, (3, width)).astype(mx.float32)

    def logits(self, ids: mx.array) -> mx.array:
        """Return the logits (R, T, V)."""
        if self.variant == "head apart":
            body = self.model.model
            states = body(ids)
            tied = self.model.args.tie_word_embeddings
            return body.embed_tokens.as_linear(states) if tied else self.model.lm_head(states)
        result = self.model(ids)
        return result[0] if isinstance(result, tuple) else result

    def loss(self, rows: slice = slice(None)) -> mx.array:
        """Return GRPO's loss: the mean over rows of the mean over tokens of the clipped surrogate."""
        ids, mask, advantages = self.ids[rows], self.mask[rows], self.advantages[rows, None]
        if self.variant == "inputs without the last token":
            return self.supervised()
        if self.variant == "padding trains":
            mask = mx.ones_like(mask)
        logits = self.logits(ids)
        if self.variant == "unshifted":
            own = mx.take_along_axis(nn.log_softmax(logits[:, 1:], -1), ids[:, 1:, None], -1)[..., 0]
            return -(own * advantages * mask).sum() / mask.sum()
        ratio = mx.exp(log_probs(logits, ids, self.temperature) - self.old[rows])
        surrogate = mx.minimum(ratio * advantages, mx.clip(ratio, 1 - CLIP, 1 + CLIP) * advantages)
        value = -((surrogate * mask).sum(-1) / mask.sum(-1)).sum() / len(self.ids)
        scores = nn.log_softmax(logits[:, :-1], -1)
        if self.variant == "entropy":
            value += 0.01 * (mx.exp(scores) * scores * mask[..., None]).sum() / mask.sum()
        if self.variant == "divergence":
            value += 0.5 * (mx.exp(scores) * (scores - self.start) * mask[..., None]).sum() / mask.sum()
        if self.variant.startswith("router"):
            value += 0.3 * self.balance()
        if self.variant == "value head":
            value += ((self.model(ids)[1][:, 1:] * mask) ** 2).sum()
        return value

    def balance(self) -> mx.array:
        """Return the load-balancing loss of the routers whose scores the pass has kept: of all layers' tokens, or of each layer."""
        layers = [scores.reshape(-1, scores.shape[-1]) for scores in SCORES]
        SCORES.clear()
        return sum(map(balance, [mx.concatenate(layers)] if self.variant == "router" else layers))

    def supervised(self) -> mx.array:
        """Return the mean cross-entropy of rows whose last token is in no input of the model, only among the targets."""
        ids, ends = np.array(self.ids), np.array(self.mask).shape[1] - np.array(self.mask)[:, ::-1].argmax(-1)
        behind = np.arange(ids.shape[1] - 1) >= ends[:, None]
        targets = mx.array(np.where(behind, 0, ids[:, 1:]))
        inputs = mx.array(np.where(np.arange(ids.shape[1] - 1) >= ends[:, None], 0, ids[:, :-1]))
        logits = self.model(inputs)
        losses = nn.losses.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))
        return (losses * mx.array(~behind.reshape(-1))).sum() / int((~behind).sum())

    def update(self) -> mx.array:
        """Make one update."""
        SCORES.clear()
        value_and_grad = nn.value_and_grad(self.model, self.loss)
        if self.variant == "accumulation":
            parts = [value_and_grad(slice(begin, begin + 3)) for begin in (0, 3, 6)]
            value, gradient = sum(part[0] for part in parts), parts[0][1]
            for _, more in parts[1:]:
                gradient = tree_map(mx.add, gradient, more)
        else:
            value, gradient = value_and_grad()
        if self.variant == "clip":
            gradient, _ = optimizers.clip_grad_norm(gradient, 0.1)
        if self.variant == "weights by hand":
            self.model.update(self.optimizer.apply_gradients(gradient, self.model.trainable_parameters()))
        else:
            self.optimizer.update(self.model, gradient)
        return value


def main(folder: str, variant: str, out: str) -> None:
    """Make three updates, and write what the loss was and what the formula needs."""
    run = Run(folder, variant)
    step: Callable[[], mx.array] = run.update
    if variant == "compiled":
        state = [run.model.state, run.optimizer.state, mx.random.state]
        step = partial(mx.compile, inputs=state, outputs=state)(run.update)
    losses = []
    for _ in range(3):
        value = step()
        mx.eval(run.model.parameters(), run.optimizer.state)
        losses.append(float(value))
    names = ("ids", "mask", "advantages", "old")
    facts = {name: np.array(getattr(run, name).astype(mx.float32)).tolist() for name in names}
    Path(out).write_text(json.dumps({"losses": losses, **facts}), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
