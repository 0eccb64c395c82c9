"""Put low-rank adapters on a frozen base model, switch them off, and take them off again.

The adapters (LoRA, Hu et al. 2021, arXiv 2106.09685; DoRA, Liu et al. 2024, arXiv 2402.09353) are mlx-lm's own layers, on float and
quantised bases (QLoRA, Dettmers et al. 2023, arXiv 2305.14314). Taking an adapter off restores the original layer object of the base,
so that the reference policy equals the base bit for bit.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from mlx.utils import tree_flatten

from reference.trainer.adapters import layers, settings, targets


def adapters(model: Any) -> dict[str, Any]:
    """Return the adapters on the model by "layer.path"; those outside the blocks by their path from the model."""
    return targets.adapters(model)


def attach(model: Any, spec: Mapping[str, Any]) -> None:
    """Put adapters on the modules that the spec names, by default on every projection of every block (`adapters.settings`).

    Their values are a pure function of the spec and the model's shapes.

    Raises:
        ValueError: the spec has an unknown key or an impossible value, a target matches no module, or there are adapters already.
        NotImplementedError: mlx-lm has no adapter of this kind for one of the modules.
    """
    chosen = settings.complete(spec)
    if adapters(model):
        raise ValueError("the model has adapters already, take them off first (detach)")
    words = np.random.Philox(key=chosen.seed).random_raw
    found = targets.find(model, chosen)
    targets.replace(model, {name: layers.wrap(name, layer, chosen, words) for name, layer in found.items()})


def detach(model: Any) -> None:
    """Take every adapter off and restore the base's layers."""
    targets.replace(model, {name: layers.inner(adapter) for name, adapter in adapters(model).items()})


@contextlib.contextmanager
def attached(model: Any, spec: Mapping[str, Any] | None) -> Iterator[None]:
    """Put fresh adapters on inside the block (none if `spec` is None), and leave the untouched base behind."""
    detach(model)
    try:
        if spec is not None:
            attach(model, spec)
        yield
    finally:
        detach(model)


def to_switch_off(model: Any) -> dict[str, Any]:
    """Return the adapters that are switched off in the reference pass: all of them."""
    return adapters(model)


@contextlib.contextmanager
def adapters_off(model: Any) -> Iterator[None]:
    """Use the base's own layers inside the block, and restore the adapters afterwards."""
    on = to_switch_off(model)
    targets.replace(model, {name: layers.inner(adapter) for name, adapter in on.items()})
    try:
        yield
    finally:
        targets.replace(model, on)


def freeze(model: Any) -> None:
    """Make the adapters' own parameters trainable, and nothing else."""
    model.freeze()
    for adapter in adapters(model).values():
        adapter.unfreeze(keys=layers.leaves(adapter), recurse=False)


def strangers(model: Any) -> list[str]:
    """Return the trainable parameters that do not belong to an adapter."""
    own = {f"{path}.{leaf}" for path, adapter in layers.named(model) for leaf in layers.leaves(adapter)}
    return sorted(name for name, _ in tree_flatten(model.trainable_parameters()) if name not in own)


def require_only_adapters(model: Any) -> None:
    """Check that adapters train and nothing else does.

    Raises:
        ValueError: another parameter would train, or none would.
    """
    if found := strangers(model):
        more = f" and {len(found) - 5} more" if len(found) > 5 else ""
        raise ValueError(
            f"only adapters may train, these would too: {', '.join(found[:5])}{more}; freeze the model first"
        )
    if not tree_flatten(model.trainable_parameters()):
        raise ValueError("nothing would train: the model has no adapters, or they are frozen")
