"""Mistakes in updates: accumulation, optimizer, precision, and what trains."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mlx.core as mx
from mlx.utils import tree_map

from gates.families.patching import Fn, mutation


@mutation
def micro_batches_equal_weight(original: Fn, *arguments: Any, **keywords: Any) -> Any:
    """Average the micro-batches' means, whatever number of rows each has."""
    _, inputs, totals, _ = arguments
    gradient, values = original(*arguments, **keywords)
    factor = totals.rows / (totals.micro_batches * len(inputs.rows))
    return tree_map(lambda g: g * factor, gradient), values * factor


@mutation
def adam_without_bias_correction(original: Fn, *arguments: Any, **keywords: Any) -> Any:
    """Make Adam and AdamW with the library's default, which has no bias correction."""
    made = original(*arguments, **keywords)
    if hasattr(made, "bias_correction"):
        made.bias_correction = False
    return made


@mutation
def adapters_rounded(original: Fn, *arguments: Any, **keywords: Any) -> Any:
    """Round the adapters to bfloat16 after each update."""
    model = arguments[0].model
    update = original(*arguments, **keywords)
    model.update(tree_map(lambda x: x.astype(mx.bfloat16).astype(x.dtype), model.trainable_parameters()))
    return update


@mutation
def routers_adapted(original: Fn, *arguments: Any, **keywords: Any) -> Any:
    """Put adapters on the layers that choose experts among every other projection."""
    model, chosen = arguments
    return original(model, replace(chosen, routers=chosen.routers or not chosen.targets), **keywords)
