"""The model with its adapters merged, as a folder of its own that `mlx_lm.load` reads."""

import json
import shutil
from pathlib import Path
from typing import Any, Final

from mlx.utils import tree_unflatten
from mlx_lm import utils as mlx_lm_utils

from reference.trainer import model as models
from reference.trainer import storage
from reference.trainer.checkpoint import layout

MADE_OF: Final = "fused_from.json"
"""A file in the folder that says which adapters were merged."""


def merged_adapters(folder: Path) -> str | None:
    """The digest of the adapters that a folder of `fused` holds; None if it is none."""
    try:
        found = json.loads((folder / MADE_OF).read_bytes())["adapter_digest"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(found)


def fused(model: Any, tokenizer: Any, source: str, folder: Path) -> Path:
    """Write the merged model; the model itself keeps its adapters. The folder appears whole or not at all.

    A quantised layer is expanded, merged and quantised again with the same settings (mlx_lm's own `fuse`), so its weights move
    by a rounding. A folder that an earlier end of the run left is replaced, unless it holds these very adapters.

    Raises:
        FileExistsError: the folder is there already and no earlier `fused` made it.
    """
    digest = models.digest(layout.parameters(model))
    before = merged_adapters(folder)
    if before == digest:
        return folder
    if before is None and folder.exists():
        raise FileExistsError(f"{folder} exists already; remove it, or choose another output.folder")
    layers = {name: module for name, module in model.named_modules() if hasattr(module, "fuse")}
    outer = {n: m for n, m in layers.items() if not any(n.startswith(f"{other}.") for other in layers)}
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    original = Path(source) if Path(source).is_dir() else Path(mlx_lm_utils.hf_repo_to_path(source))
    config = json.loads((original / "config.json").read_text(encoding="utf-8"))
    model.update_modules(tree_unflatten([(name, module.fuse(dequantize=False)) for name, module in outer.items()]))
    try:
        mlx_lm_utils.save_model(part, model, donate_model=False)
    finally:
        model.update_modules(tree_unflatten(list(outer.items())))
    mlx_lm_utils.save_config(config, config_path=part / "config.json")
    tokenizer.save_pretrained(part)
    if (original / "generation_config.json").exists():
        shutil.copy(original / "generation_config.json", part)
    storage.write(part / MADE_OF, json.dumps({"adapter_digest": digest, "base": source}, indent=2).encode() + b"\n")
    for path in part.iterdir():
        storage.sync(path)
    if before is not None:
        shutil.rmtree(folder)
    part.rename(folder)
    storage.sync(folder.parent)
    return folder
