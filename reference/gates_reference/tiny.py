"""Small deterministic models in the Hugging Face layout, built locally and never downloaded.

A model is a pure function of its spec: the weights come from NumPy's Philox words, and the tokenizer is trained on a built-in
corpus. The key `family` names one of `gates_reference.tiny_families`, or any other model type of the installed mlx-lm
(`gates_reference.tiny_mlx_lm`); the default is Qwen3. `build` returns a folder that `mlx_lm.load`
reads like any other model. Folders are cached under the hash of the spec; they are written atomically, so that several processes
may build the same model at once.
"""

import contextlib
import hashlib
import io
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import filelock
import numpy as np
import platformdirs
from safetensors.numpy import save_file

from gates_reference import tiny_families, tiny_mlx_lm, tiny_tokenizer

BUILDER_VERSION: Final = 1
"""Part of every cache key; raise it when the same spec gives other bytes."""

# The gain multiplies nn.Linear's uniform(-1/sqrt(in), 1/sqrt(in)). Measured on the defaults with seeds 0..3 and 8 plain prompts x
# 8 samples x 16 tokens: mean entropy in nats at temperature 1 and 0.7, distinct tokens in a greedy row of 32 (mean, least), and
# F, the largest |log-softmax in float32 - in float64|:
#   gain 2: 5.13, 4.55, 22 (11), 6e-6    gain 3: 4.45, 3.48, 21 (5), 1e-5     gain 4: 3.68, 2.59, 19 (7), 2e-5
#   gain 5: 3.02, 1.98, 20 (9), 3e-5     gain 6: 2.44, 1.58, 21 (7), 3e-5
DEFAULTS: Final[Mapping[str, int | float | str]] = {
    "seed": 0,
    "bits": 32,
    "dtype": "float32",
    "hidden": 32,
    "layers": 2,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 8,
    "intermediate": 32,
    "vocab": 320,
    "gain": 4.0,
}

DTYPES: Final = ("float32", "bfloat16", "float16")
"""The types of weights, and so of the logits."""

FAMILY: Final = "qwen3"
"""The default family."""


def complete(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Check a spec and fill in the defaults of its family.

    Raises:
        ValueError: the family or a key is unknown, or a value is impossible.
    """
    name = spec.get("family", FAMILY)
    defaults = {**DEFAULTS, **_family(name).defaults}
    unknown = sorted(set(spec) - set(defaults) - {"family"})
    if unknown:
        raise ValueError(f"unknown keys {unknown} in the {name} spec, known are {sorted(defaults)}")
    full = {"family": name, **{key: type(default)(spec.get(key, default)) for key, default in defaults.items()}}
    if full["bits"] not in {4, 32}:
        raise ValueError(f"bits is {full['bits']}, must be 32 (float32) or 4 (quantised)")
    if full["dtype"] not in DTYPES:
        raise ValueError(f"dtype is {full['dtype']!r}, must be one of {list(DTYPES)}")
    if full["bits"] == 4 and full["dtype"] != DTYPES[0]:
        raise ValueError(f"dtype is {full['dtype']!r}, must be 'float32' with 4 bits")
    if full["heads"] % full["kv_heads"]:
        raise ValueError(f"heads is {full['heads']}, must be a multiple of kv_heads = {full['kv_heads']}")
    if full["vocab"] < tiny_tokenizer.SMALLEST:
        raise ValueError(f"vocab is {full['vocab']}, must be at least {tiny_tokenizer.SMALLEST} (bytes and specials)")
    if full["layers"] < full.get("interval", 1):
        raise ValueError(
            f"layers is {full['layers']}, must be at least interval = {full['interval']}: "
            f"the first full-attention layer of {name} is the {full['interval']}th"
        )
    if full.get("experts_per_token", 0) > full.get("experts", 0):
        raise ValueError(
            f"experts_per_token is {full['experts_per_token']}, must be at most experts = {full['experts']}"
        )
    return full


def _family(name: str) -> tiny_families.Family:
    found = tiny_families.FAMILIES.get(name) or tiny_mlx_lm.family(name)
    if found is None:
        known = sorted(tiny_families.FAMILIES)
        raise ValueError(f"family is {name!r}, must be one of {known} or another model type of the installed mlx-lm")
    return found


def _key(full: Mapping[str, Any]) -> str:
    """Return the folder's name; Qwen3 and float32 are left out, so that models from before these keys keep their names.

    The configuration of a family of the installed mlx-lm is part of it: another version may have other fields.
    """
    older = {"family": FAMILY, "dtype": DTYPES[0]}
    named = {key: value for key, value in full.items() if older.get(key) != value}
    if _family(full["family"]).exact_names:
        named["config"] = _config(full)
    recipe = json.dumps({"version": BUILDER_VERSION, **named}, sort_keys=True)
    return hashlib.sha256(recipe.encode()).hexdigest()[:32]


def cache_folder() -> Path:
    """Return the folder of built models, in `GATES_CACHE_DIR` if it is set, else in the user's cache folder."""
    root = os.environ.get("GATES_CACHE_DIR") or platformdirs.user_cache_dir("rl-gates")
    return Path(root) / "models"


def build(spec: Mapping[str, Any]) -> Path:
    """Return the folder of the spec's model; build it if it is not there yet."""
    full = complete(spec)
    return cached(_key(full), lambda half: _write(full, half))


def cached(name: str, write: Callable[[Path], None]) -> Path:
    """Return a folder of the cache; if it is missing, `write` fills another folder, which is then renamed.

    Several processes may do this at once.
    """
    folder = cache_folder() / name
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(folder.with_suffix(".lock")):
        if folder.is_dir():
            return folder
        half = Path(tempfile.mkdtemp(prefix=f"{name}.", suffix=".half", dir=folder.parent))
        try:
            write(half)
            half.chmod(0o755)
            half.rename(folder)
        except BaseException:
            shutil.rmtree(half, ignore_errors=True)
            raise
    return folder


def model_hash(path: Path) -> str:
    """Return the sha256 of a model folder: every file's name and bytes, in the order of the names."""
    digest = hashlib.sha256()
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(path).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def uniform(words: Callable[[int], np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    """Return float32 values in [-1, 1) that fit into 24 bits, so that no rounding depends on the machine."""
    bits = np.asarray(words(int(np.prod(shape))), dtype=np.uint64) >> np.uint64(40)
    return ((bits.astype(np.float64) - 2.0**23) * 2.0**-23).astype(np.float32).reshape(shape)


def _weights(full: Mapping[str, Any]) -> dict[str, np.ndarray]:
    words = np.random.Philox(key=full["seed"]).random_raw
    family = _family(full["family"])
    weights: dict[str, np.ndarray] = {}
    for name, leaf in family.leaves(full).items():
        if leaf.bound:
            values = np.asarray(
                uniform(words, leaf.shape) * np.float32(leaf.bound) + np.asarray(leaf.offset, np.float32)
            )
        else:
            values = np.full(leaf.shape, leaf.offset, np.float32)
        weights[name if family.exact_names else tiny_families.parameter(name)] = values
    return weights


def _config(full: Mapping[str, Any]) -> dict[str, Any]:
    family = _family(full["family"])
    own = {**family.config(full), "torch_dtype": full["dtype"]}
    return {"architectures": [family.architecture], "model_type": full["family"], **own}


def _save(weights: Mapping[str, np.ndarray], dtype: str, path: Path) -> None:
    """Write float32 weights in a dtype, rounded to nearest, ties to even."""
    if dtype == DTYPES[0]:
        save_file(dict(weights), path, metadata={"format": "mlx"})
        return
    import mlx.core as mx  # noqa: PLC0415 - NumPy has no bfloat16

    rounded = {name: mx.array(values).astype(getattr(mx, dtype)) for name, values in weights.items()}
    mx.save_safetensors(str(path), rounded, {"format": "mlx"})


def _quantise(folder: Path, full: Mapping[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Replace the folder's float32 weights by 4-bit ones from mlx-lm's quantiser; routers get 8 bits, as in mlx-lm."""
    from mlx_lm import utils as mlx_lm_utils  # noqa: PLC0415 - seconds to import, needed for 4 bit only

    group_size, routers = _group_size(full), _family(full["family"]).routers

    def bits_of(path: str, _: Any) -> bool | dict[str, int]:
        return {"group_size": group_size, "bits": 8} if routers and path.endswith(routers) else True

    model, _ = mlx_lm_utils.load_model(folder)
    with contextlib.redirect_stdout(io.StringIO()):  # it prints its bits per weight
        model, quantised = mlx_lm_utils.quantize_model(model, config, group_size, 4, quant_predicate=bits_of)
    (folder / "model.safetensors").unlink()
    mlx_lm_utils.save_model(folder, model)
    return dict(quantised)


def _group_size(full: Mapping[str, Any]) -> int:
    leaves = _family(full["family"]).leaves(full)
    widths = {leaf.shape[-1] for name, leaf in leaves.items() if len(leaf.shape) > 1 and not name.endswith("conv1d")}
    for size in (64, 32):
        if all(width % size == 0 for width in widths):
            return size
    raise ValueError(f"4 bit needs matrix widths that 32 divides, the spec gives {sorted(widths)}")


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _write(full: Mapping[str, Any], folder: Path) -> None:
    config = _config(full)
    _save(_weights(full), full["dtype"], folder / "model.safetensors")
    _write_json(folder / "config.json", config)
    if full["bits"] == 4:
        config = _quantise(folder, full, config)
        _write_json(folder / "config.json", config)
    generation = {"eos_token_id": tiny_tokenizer.EOS_ID, "pad_token_id": tiny_tokenizer.PAD_ID, "do_sample": True}
    _write_json(folder / "generation_config.json", generation)
    tiny_tokenizer.write(folder, full["vocab"])
