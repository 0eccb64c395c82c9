"""Write the model with its adapters merged, as a folder that `mlx_lm.load` reads."""

import json
import shutil
from pathlib import Path
from typing import Any, Final

from mlx.utils import tree_unflatten
from mlx_lm import utils as mlx_lm_utils

from gates_reference.trainer import model as models
from gates_reference.trainer import storage
from gates_reference.trainer.checkpoint import layout

MADE_OF: Final = "fused_from.json"
"""The file in the folder that names the merged adapters."""


def merged_adapters(folder: Path) -> str | None:
    """Return the digest of the adapters that were merged into a folder, None if it is no folder of `fused`."""
    return storage.text_at(folder / MADE_OF, "adapter_digest")


def fused(model: Any, tokenizer: Any, source: str, folder: Path, *, dequantize: bool = False) -> Path:
    """Write the merged model atomically; the model itself keeps its adapters.

    A quantised layer is expanded, merged and quantised again with the same settings (mlx_lm's own `fuse`). This rounds a small update
    away in part, and greedy completions change. With `dequantize` every quantised layer is written expanded (`fuse --dequantize`). A
    folder from an earlier end of the run is replaced, unless it holds the same.

    Raises:
        FileExistsError: the folder exists and was not written by `fused`.
    """
    made_of = {
        "adapter_digest": models.digest(layout.parameters(model)),
        "base": source,
        "dequantized": dequantize,
    }
    before = merged_adapters(folder)
    if before == made_of["adapter_digest"] and storage.text_at(folder / MADE_OF, "dequantized") == str(dequantize):
        return folder
    if before is None and folder.exists():
        raise FileExistsError(f"{folder} exists already; remove it, or choose another output.folder")
    layers = {
        name: module
        for name, module in model.named_modules()
        if hasattr(module, "fuse") or (dequantize and models.quantised(module))
    }
    outer = {n: m for n, m in layers.items() if not any(n.startswith(f"{other}.") for other in layers)}
    merged = {n: m.fuse(dequantize=dequantize) for n, m in outer.items() if hasattr(m, "fuse")}
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    original = Path(source) if Path(source).is_dir() else Path(mlx_lm_utils.hf_repo_to_path(source))
    config = json.loads((original / "config.json").read_text(encoding="utf-8"))
    model.update_modules(tree_unflatten(list(merged.items())))
    try:
        if dequantize:
            mlx_lm_utils.dequantize_model(model)
            for key in ("quantization", "quantization_config"):
                config.pop(key, None)
        mlx_lm_utils.save_model(part, model, donate_model=False)
    finally:
        model.update_modules(tree_unflatten(list(outer.items())))
    mlx_lm_utils.save_config(config, config_path=part / "config.json")
    tokenizer.save_pretrained(part)
    if (original / "generation_config.json").exists():
        shutil.copy(original / "generation_config.json", part)
    storage.write(part / MADE_OF, json.dumps(made_of, indent=2).encode() + b"\n")
    for path in part.iterdir():
        storage.sync(path)
    if before is not None:
        shutil.rmtree(folder)
    part.rename(folder)
    storage.sync(folder.parent)
    return folder
