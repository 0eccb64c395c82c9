"""Find the modules of a model that get an adapter."""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx
from mlx.utils import tree_unflatten

from reference.trainer.adapters import layers
from reference.trainer.adapters.settings import Settings


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
        found = [(name[len(prefix) :], module) for name, module in new.items() if name.startswith(prefix)]
        if found:
            block.update_modules(tree_unflatten(found))
    if outside:
        model.update_modules(tree_unflatten(list(outside.items())))


def adapters(model: Any) -> dict[str, Any]:
    """Return the adapters on the model, of any type, by the names of `walk`."""
    return {name: module for name, module in walk(model).items() if layers.is_adapter(module)}


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
    found = {name: type(x).__name__ for name, x in others.items() if any(_is_matrix(key, x[key]) for key in x)}
    return {keys({name: None})[0]: kind for name, kind in found.items() if "Norm" not in kind}


def _is_matrix(name: str, x: Any) -> bool:
    """Return whether a parameter is a matrix or a stack of them; a depthwise convolution has shape (channels, width, 1)."""
    if not isinstance(x, mx.array) or not name.endswith("weight") or x.ndim < 2:
        return False
    return x.shape[-1] > 1 and (name == "weight" or x.ndim > 2)


def find(model: Any, settings: Settings) -> dict[str, Any]:
    """Return the modules that get an adapter, in the order of `walk`, for a model without adapters.

    Raises:
        ValueError: a named target matches no module.
    """
    modules = walk(model)
    first = len(model.layers) - settings.layers if settings.layers else 0
    kinds = (*layers.LINEAR, *layers.SWITCH, *layers.EMBEDDING)
    candidates = {
        name: module
        for name, module in modules.items()
        if isinstance(module, kinds) and not (_in_block(name) and int(name.split(".")[0]) < first)
    }
    if settings.targets:
        _refuse_unknown(settings.targets, candidates)
        wanted = {name for name in candidates if any(_fits(name, target) for target in settings.targets)}
    else:
        wanted = {name for name in candidates if _in_block(name)} - routers(modules)
    if settings.routers:
        wanted |= routers(modules) & set(candidates)
    if settings.embeddings:
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
