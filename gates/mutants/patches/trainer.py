"""Mistakes for the MLX trainer. Loaded in a worker only; each function takes the original and returns the mistaken one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_map

Fn = Callable[..., Any]


def shifted_by_one(original: Fn) -> Fn:
    """Slice `[:, :-1]` where `[:, 1:]` is right: each token is scored by the logits that have already seen it."""

    def mistaken(*arguments: Any, **rest: Any) -> Any:
        slots = original(*arguments, **rest)
        return slots._replace(source=mx.where(slots.mask, slots.source + 1, slots.source))

    return mistaken


def multiply_by_mask(original: Fn) -> Fn:  # noqa: ARG001  the mistake replaces the whole formula
    """Mask by multiplication: NaN · 0 is NaN."""
    return lambda mask, values: values * mask


def constant_ratio(original: Fn) -> Fn:
    """Take the policy's own log-probs as the old ones: every ratio is 1, and every clip inert."""

    def mistaken(policy: Any, old: Any) -> Any:
        del old
        return original(policy, mx.stop_gradient(policy))

    return mistaken


def inverted_kl(original: Fn) -> Fn:
    """Swap policy and reference in k3."""
    return lambda policy, reference, *estimator: original(reference, policy, *estimator)


def token_mean(original: Fn) -> Fn:
    """Average over all tokens of the step where GRPO averages rows of their own means."""
    return lambda aggregation, *rest: original("global" if aggregation == "row-mean" else aggregation, *rest)


def forward_outside(original: Fn) -> Fn:
    """Run the forward pass before value_and_grad: the loss is a constant there, its gradient zero."""

    def mistaken(model: Any, loss: Any) -> Any:
        value = mx.stop_gradient(loss())
        _, gradient = original(model, lambda: value + 0.0)
        return value, tree_map(mx.zeros_like, gradient)

    return mistaken


def everything_trains(original: Fn) -> Fn:
    """Unfreeze the norms of the base besides the adapters."""

    def mistaken(model: Any) -> None:
        original(model)
        for layer in model.layers:
            layer.input_layernorm.unfreeze()

    return mistaken


def adapters_stay_on(original: Fn) -> Fn:  # noqa: ARG001  the mistake replaces the whole context
    """Take the reference pass with the adapters on."""

    @contextlib.contextmanager
    def mistaken(model: Any) -> Iterator[None]:
        del model
        yield

    return mistaken


def tiled(original: Fn) -> Fn:
    """Tile the prompts where each is to be repeated: row r belongs to prompt r mod P."""

    def mistaken(rows: Any, prompts: int, samples: int) -> Any:
        original(rows, prompts, samples)
        return np.stack([rows % prompts, rows // prompts], axis=1)

    return mistaken


def position_in_batch(original: Fn) -> Fn:  # noqa: ARG001  the mistake replaces the whole formula
    """Key the draws by the row's place in the batch, so that tokens depend on who else is there."""
    return lambda pairs, positions: np.stack([np.zeros_like(positions), positions], axis=1).astype(pairs.dtype)


def never_finished(original: Fn) -> Fn:
    """Let finished rows go on and contribute."""

    def mistaken(*arguments: Any, **rest: Any) -> Any:
        return np.zeros_like(original(*arguments, **rest))

    return mistaken


def untempered(original: Fn) -> Fn:
    """Draw from the distribution at temperature 1, whatever was asked for."""

    def mistaken(logits: Any, temperature: float) -> Any:
        return original(logits, 1.0 if temperature else temperature)

    return mistaken


def late_positions(original: Fn) -> Fn:
    """Count the positions of the decode from one too many after the prefill."""

    def mistaken(*arguments: Any, **rest: Any) -> Any:
        prefilled = original(*arguments, **rest)
        for layer in prefilled.cache:
            layer.offset = layer.offset + 1
        return prefilled

    return mistaken
