"""Save and load adapters in mlx-lm's layout: `adapters.safetensors` and `adapter_config.json` in one folder.

`mlx_lm.load(base, adapter_path=folder)` reads what `save` writes, and `load` reads what mlx-lm's trainer writes. Each file is written
under another name, flushed to the disk and renamed, the configuration first, so that a folder with weights is always readable.
"""

import json
from pathlib import Path
from typing import Any, Final

import mlx.core as mx
import safetensors
from mlx.utils import tree_flatten
from mlx_lm.tuner.dora import DoRAEmbedding, DoRALinear
from mlx_lm.tuner.utils import load_adapters

from gates_reference.trainer import lora, storage
from gates_reference.trainer.adapters import layers

WEIGHTS: Final = "adapters.safetensors"
CONFIG: Final = "adapter_config.json"


def parameters(model: Any) -> dict[str, mx.array]:
    """Return the adapters' own parameters by their path from the model."""
    flat = dict(tree_flatten(model.parameters()))
    return {
        name: flat[name]
        for path, adapter in layers.named(model)
        for name in (f"{path}.{leaf}" for leaf in layers.leaves(adapter))
    }


def configuration(model: Any, base: str = "") -> dict[str, Any]:
    """Return the content of `adapter_config.json`; `base` is the path or id of the base model, for information only.

    Raises:
        ValueError: there are no adapters, or mlx-lm's layout cannot describe them.
    """
    adapters = lora.adapters(model)
    if not adapters:
        raise ValueError("the model has no adapters to save, attach them first")
    kinds = {"dora" if isinstance(adapter, DoRALinear | DoRAEmbedding) else "lora" for adapter in adapters.values()}
    ranks = {_rank(adapter) for adapter in adapters.values()}
    scales = {float(adapter.scale) for adapter in adapters.values()}
    if len(kinds) > 1 or len(ranks) > 1 or len(scales) > 1:
        raise ValueError(
            f"mlx-lm's layout has one kind, rank and scale for all adapters, found {sorted(kinds)}, {sorted(ranks)}, {sorted(scales)}"
        )
    blocks = {int(head) for head in (name.split(".", maxsplit=1)[0] for name in adapters) if head.isdigit()}
    rank, scale = ranks.pop(), scales.pop()
    dropped = max(float(getattr(adapter.dropout, "p", 0.0)) for adapter in adapters.values())
    return {
        "fine_tune_type": kinds.pop(),
        "model": base,
        # mlx-lm counts from the last block, and 0 means all; without an adapted block no key names a module in a block
        "num_layers": len(model.layers) - min(blocks, default=0),
        "lora_parameters": {"rank": rank, "scale": scale, "dropout": dropped, "keys": lora.keys(adapters)},
    }


def _rank(adapter: Any) -> int:
    """Return the rank: experts hold A as (experts, rank, inputs), other layers as (inputs, rank)."""
    a = adapter.lora_a
    return int(a.shape[1] if a.ndim == 3 else a.shape[-1])


def save(model: Any, folder: Path, base: str = "") -> None:
    """Write the model's adapters into a folder, which is created if necessary; `configuration` describes the errors."""
    content = json.dumps(configuration(model, base), indent=2, sort_keys=True) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    aside = folder / f"{WEIGHTS}.part"
    with aside.open("wb") as file:
        mx.save_safetensors(file, parameters(model), metadata={"format": "mlx"})
    half = folder / f"{CONFIG}.part"
    half.write_text(content, encoding="utf-8")
    for part, whole in ((half, CONFIG), (aside, WEIGHTS)):
        storage.sync(part)
        part.rename(folder / whole)
    storage.sync(folder)


def load(model: Any, folder: Path) -> None:
    """Replace the model's adapters by those of a folder; after an error the model has no adapters.

    Raises:
        FileNotFoundError: one of the two files is missing.
        ValueError: the files do not fit the model, or each other.
    """
    missing = [name for name in (CONFIG, WEIGHTS) if not (folder / name).is_file()]
    if missing:
        raise FileNotFoundError(f"{folder} has no {' and no '.join(missing)}, so it holds no adapters")
    lora.detach(model)
    training = model.training
    try:
        load_adapters(model, str(folder))  # refuses unknown names and other shapes
        _require_whole(model, folder)
    except BaseException:
        lora.detach(model)
        raise
    model.train(training)


def _require_whole(model: Any, folder: Path) -> None:
    with safetensors.safe_open(folder / WEIGHTS, framework="numpy") as file:
        missing = sorted(set(parameters(model)) - set(file.keys()))
    if missing:
        raise ValueError(f"{folder / WEIGHTS} has no {', '.join(missing[:5])}, which {CONFIG} promises")
