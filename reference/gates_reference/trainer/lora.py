"""Put low-rank adapters on a frozen base model, switch them off, and take them off again.

The adapters (LoRA, Hu et al. 2021, arXiv 2106.09685; DoRA, Liu et al. 2024, arXiv 2402.09353) are mlx-lm's own layers, on float and
quantised bases (QLoRA, Dettmers et al. 2023, arXiv 2305.14314). Taking an adapter off restores the original layer object of the base,
so that the reference policy equals the base bit for bit.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten, tree_unflatten

from gates_reference.trainer.adapters import layers, settings


def adapters(model: Any) -> dict[str, Any]:
    """Return the adapters on the model, of any type, by the names of `walk`."""
    return {name: module for name, module in walk(model).items() if layers.is_adapter(module)}


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
    modules = find(model, chosen)
    replace(model, {name: layers.wrap(name, layer, chosen, words) for name, layer in modules.items()})


def detach(model: Any) -> None:
    """Take every adapter off and restore the base's layers."""
    replace(model, {name: layers.inner(adapter) for name, adapter in adapters(model).items()})


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
    replace(model, {name: layers.inner(adapter) for name, adapter in on.items()})
    try:
        yield
    finally:
        replace(model, on)


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
    if extra := strangers(model):
        more = f" and {len(extra) - 5} more" if len(extra) > 5 else ""
        raise ValueError(
            f"only adapters may train, these would too: {', '.join(extra[:5])}{more}; freeze the model first"
        )
    if not tree_flatten(model.trainable_parameters()):
        raise ValueError("nothing would train: the model has no adapters, or they are frozen")


def walk(model: Any) -> dict[str, Any]:
    """Return every module by name: "layer.path" in a block, in the order of the blocks, then the others by their path."""
    inside = {
        f"{number}.{name}": module
        for number, block in enumerate(model.layers)
        for name, module in sorted(block.named_modules())
        if name
    }
    blocks = {id(module) for block in model.layers for module in block.modules()}
    outside = {name: module for name, module in sorted(model.named_modules()) if name and id(module) not in blocks}
    return {**inside, **outside}


def replace(model: Any, new: Mapping[str, Any]) -> None:
    """Replace modules by the names of `walk`."""
    outside = {name: module for name, module in new.items() if not name.split(".")[0].isdigit()}
    for number, block in enumerate(model.layers):
        prefix = f"{number}."
        inside = [(name[len(prefix) :], module) for name, module in new.items() if name.startswith(prefix)]
        if inside:
            block.update_modules(tree_unflatten(inside))
    if outside:
        model.update_modules(tree_unflatten(list(outside.items())))


def routers(modules: Mapping[str, Any]) -> set[str]:
    """Return the linear layers directly in a block of experts: they weight or choose the experts."""
    blocks = {name.rsplit(".", 2)[0] for name, module in modules.items() if isinstance(module, layers.SWITCH)}
    linear = {name for name, module in modules.items() if isinstance(module, layers.LINEAR)}
    return {name for name in linear if name.rsplit(".", 1)[0] in blocks}


def linear_without(model: Any) -> dict[str, str]:
    """Return the linear layers for which mlx-lm has no adapter, as targets, with the names of their classes.

    They are the modules of other classes, norms excepted, that hold a matrix `weight` or a stack of matrices `…weight`.
    """
    kinds = (*layers.LINEAR, *layers.SWITCH, *layers.EMBEDDING)
    others = {name: module for name, module in walk(model).items() if not isinstance(module, kinds)}
    classes = {name: type(x).__name__ for name, x in others.items() if any(_is_matrix(key, x[key]) for key in x)}
    return {keys({name: None})[0]: kind for name, kind in classes.items() if "Norm" not in kind}


def _is_matrix(name: str, x: Any) -> bool:
    """Return whether a parameter is a matrix or a stack of them; a depthwise convolution has shape (channels, width, 1)."""
    if not isinstance(x, mx.array) or not name.endswith("weight") or x.ndim < 2:
        return False
    return x.shape[-1] > 1 and (name == "weight" or x.ndim > 2)


def find(model: Any, chosen: settings.Settings) -> dict[str, Any]:
    """Return the modules that get an adapter, in the order of `walk`, for a model without adapters.

    Raises:
        ValueError: a named target matches no module.
    """
    modules = walk(model)
    first = len(model.layers) - chosen.layers if chosen.layers else 0
    kinds = (*layers.LINEAR, *layers.SWITCH, *layers.EMBEDDING)
    candidates = {
        name: module
        for name, module in modules.items()
        if isinstance(module, kinds) and not (_in_block(name) and int(name.split(".")[0]) < first)
    }
    if chosen.targets:
        _refuse_unknown(chosen.targets, candidates)
        wanted = {name for name in candidates if any(_fits(name, target) for target in chosen.targets)}
    else:
        wanted = {name for name in candidates if _in_block(name)} - routers(modules)
    if chosen.routers:
        wanted |= routers(modules) & set(candidates)
    if chosen.embeddings:
        wanted |= {name for name, module in candidates.items() if isinstance(module, layers.EMBEDDING)}
    return {name: module for name, module in candidates.items() if name in wanted}


def keys(names: Mapping[str, Any]) -> list[str]:
    """Return the distinct targets, mlx-lm's `keys`: paths within a block, or from the model for modules outside."""
    return sorted({name.split(".", 1)[1] if _in_block(name) else name for name in names})


def _in_block(name: str) -> bool:
    return name.split(".", maxsplit=1)[0].isdigit()


def _fits(name: str, target: str) -> bool:
    return f".{name}".endswith(f".{target}")


def _refuse_unknown(targets: tuple[str, ...], candidates: Mapping[str, Any]) -> None:
    lost = [target for target in targets if not any(_fits(name, target) for name in candidates)]
    if lost:
        raise ValueError(f"targets {lost} fit no module, this model has {keys(candidates)}")
