"""Logits of a causal language model of transformers in float64: the program that `gates trainer replay` runs in a peer's environment."""

from __future__ import annotations

import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Array = np.ndarray[Any, Any]

VERSIONS = {"transformers": version("transformers"), "torch": version("torch")}
HEAD, FILE = "lm_head.weight", "model.safetensors"
MODELS: dict[str, Any] = {}  # the model that is loaded, and the weights that it began with


def load(*, folder: str) -> dict[str, Any]:
    """Load a folder of config.json and float64 safetensors, and return the size of its vocabulary.

    Raises:
        NotImplementedError: the family is unknown, or the files lack weights or have others.
    """
    _compute_in_float64()
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (ValueError, KeyError) as error:
        raise NotImplementedError(str(error).partition("\n")[0]) from None
    config._experts_implementation = "eager"  # noqa: SLF001  the default has no float64, and no public name sets it
    model, report = _read(folder, config)
    if set(report["missing_keys"]) == {HEAD}:  # mlx-lm then takes the table of embeddings, whatever config.json says
        config.get_text_config().tie_word_embeddings = config.tie_word_embeddings = True
        model, report = _read(folder, config)
    for words, key in (
        ("lack", "missing_keys"),
        ("have the unknown", "unexpected_keys"),
        ("misshape", "mismatched_keys"),
    ):
        if names := sorted(str(name[0] if isinstance(name, tuple) else name) for name in report[key]):
            raise NotImplementedError(f"its files {words} {', '.join(names[:3])} ({len(names)} in all)")
    parameters = dict(model.double().eval().named_parameters(remove_duplicate=False))
    MODELS.update(model=model, parameters=parameters, changed={}, folder=Path(folder), config=config)
    return {"vocabulary": int(config.get_text_config().vocab_size)}


def _read(folder: str, config: Any) -> tuple[Any, Mapping[str, Any]]:
    """Return the model and what its files lack or have besides."""
    model, report = AutoModelForCausalLM.from_pretrained(
        folder,
        config=config,
        dtype=torch.float64,
        attn_implementation="eager",
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
        output_loading_info=True,
        ignore_mismatched_sizes=True,
    )
    return model, report


def _compute_in_float64() -> None:
    torch.float32 = torch.float = torch.float64  # transformers rounds norms and angles to these
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)


def logits(*, ids: Array, weights: Mapping[str, Array]) -> dict[str, Any]:
    """Return the logits (B, L, V) of ids (B, L) of the model with these weights in the place of its own, by the names in its files."""
    with torch.no_grad():
        model = _changed(weights) if set(weights) <= set(MODELS["parameters"]) else _reread(weights)
        return {"logits": model(torch.tensor(ids), use_cache=False).logits.double().numpy()}


def _changed(weights: Mapping[str, Array]) -> Any:
    """Return the loaded model with its own weights but for these."""
    parameters, changed = MODELS["parameters"], MODELS["changed"]
    for name, own in changed.items():
        parameters[name].copy_(own)
    changed.clear()
    for name, values in weights.items():
        changed[name] = parameters[name].clone()
        parameters[name].copy_(torch.tensor(values))
    return MODELS["model"]


def _reread(weights: Mapping[str, Array]) -> Any:
    """Return another model from files with these weights: transformers holds some of them, such as experts, under other names."""
    stored = load_file(MODELS["folder"] / FILE)
    if unknown := sorted(set(weights) - set(stored)):
        raise NotImplementedError(f"its files have no {unknown[0]}")
    stored |= {name: torch.tensor(values) for name, values in weights.items()}
    with tempfile.TemporaryDirectory(dir=MODELS["folder"]) as folder:
        shutil.copy(MODELS["folder"] / "config.json", folder)
        save_file(stored, Path(folder) / FILE, metadata={"format": "pt"})
        return _read(folder, MODELS["config"])[0].double().eval()


OPS: dict[str, Callable[..., dict[str, Any]]] = {"load": load, "logits": logits}
