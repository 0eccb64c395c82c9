"""Small deterministic Qwen3 models in the Hugging Face layout, built locally and never downloaded.

A model is a pure function of its spec: the weights come from NumPy's Philox words, the tokenizer is trained on a
built-in corpus. `build` returns a folder that `mlx_lm.load` reads like any other model. Folders are cached under the hash of the spec
and appear whole or not at all, whatever number of processes build them at once.
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

from reference import tiny_tokenizer

BUILDER_VERSION: Final = 1
"""Part of every cache key; raise it whenever the same spec gives other bytes."""

# The gain multiplies nn.Linear's uniform(-1/sqrt(in), 1/sqrt(in)). Measured on the defaults with seeds 0..3 and 8 plain prompts x
# 8 samples x 16 tokens: mean entropy in nats at temperature 1 and 0.7, distinct tokens in a greedy row of 32 (mean, least), and
# F, the largest |log-softmax in float32 - in float64|:
#   gain 2: 5.13, 4.55, 22 (11), 6e-6    gain 3: 4.45, 3.48, 21 (5), 1e-5     gain 4: 3.68, 2.59, 19 (7), 2e-5
#   gain 5: 3.02, 1.98, 20 (9), 3e-5     gain 6: 2.44, 1.58, 21 (7), 3e-5
DEFAULTS: Final[Mapping[str, int | float]] = {
    "seed": 0,
    "bits": 32,
    "hidden": 32,
    "layers": 2,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 8,
    "intermediate": 32,
    "vocab": 320,
    "gain": 4.0,
}


def complete(spec: Mapping[str, Any]) -> dict[str, int | float]:
    """The spec with every default filled in, checked.

    Raises:
        ValueError: a key is unknown or a value impossible.
    """
    unknown = sorted(set(spec) - set(DEFAULTS))
    if unknown:
        raise ValueError(f"unknown keys {unknown} in the model spec, known are {sorted(DEFAULTS)}")
    full = {key: type(default)(spec.get(key, default)) for key, default in DEFAULTS.items()}
    if full["bits"] not in {4, 32}:
        raise ValueError(f"bits is {full['bits']}, must be 32 (float32) or 4 (quantised)")
    if full["heads"] % full["kv_heads"]:
        raise ValueError(f"heads is {full['heads']}, must be a multiple of kv_heads = {full['kv_heads']}")
    if full["vocab"] < tiny_tokenizer.SMALLEST:
        raise ValueError(f"vocab is {full['vocab']}, must be at least {tiny_tokenizer.SMALLEST} (bytes and specials)")
    return full


def cache_folder() -> Path:
    """The folder of built models: `GATES_CACHE_DIR` if set, else the user's cache folder."""
    root = os.environ.get("GATES_CACHE_DIR") or platformdirs.user_cache_dir("rl-gates")
    return Path(root) / "models"


def build(spec: Mapping[str, Any]) -> Path:
    """The folder of the spec's model, built now if it is not there yet.

    Safe for several processes at once: the folder is made under another name and renamed when it is complete.
    """
    full = complete(spec)
    recipe = json.dumps({"version": BUILDER_VERSION, **full}, sort_keys=True)
    folder = cache_folder() / hashlib.sha256(recipe.encode()).hexdigest()[:32]
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(folder.with_suffix(".lock")):
        if not folder.is_dir():
            _build_whole(full, folder)
    return folder


def _build_whole(full: dict[str, int | float], folder: Path) -> None:
    half = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", suffix=".half", dir=folder.parent))
    try:
        _write(full, half)
        half.chmod(0o755)
        half.rename(folder)
    except BaseException:
        shutil.rmtree(half, ignore_errors=True)
        raise


def model_hash(path: Path) -> str:
    """The sha256 of a model folder: every file's name and bytes, in the order of the names."""
    digest = hashlib.sha256()
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(path).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _config(full: dict[str, int | float]) -> dict[str, Any]:
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": full["hidden"],
        "num_hidden_layers": full["layers"],
        "num_attention_heads": full["heads"],
        "num_key_value_heads": full["kv_heads"],
        "head_dim": full["head_dim"],
        "intermediate_size": full["intermediate"],
        "vocab_size": full["vocab"],
        "hidden_act": "silu",
        "attention_bias": False,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "bos_token_id": None,
        "eos_token_id": tiny_tokenizer.EOS_ID,
        "pad_token_id": tiny_tokenizer.PAD_ID,
    }


def _shapes(full: dict[str, int | float]) -> dict[str, tuple[int, ...]]:
    hidden, wide, vocab = int(full["hidden"]), int(full["intermediate"]), int(full["vocab"])
    size = int(full["head_dim"])
    queries, keys = int(full["heads"]) * size, int(full["kv_heads"]) * size
    block: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "mlp.gate_proj": (wide, hidden),
        "mlp.up_proj": (wide, hidden),
        "mlp.down_proj": (hidden, wide),
        "self_attn.q_norm": (size,),
        "self_attn.k_norm": (size,),
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
    }
    layers = {f"model.layers.{n}.{name}": shape for n in range(int(full["layers"])) for name, shape in block.items()}
    return {
        "model.embed_tokens": (vocab, hidden),
        **layers,
        "model.norm": (hidden,),
        "lm_head": (vocab, hidden),
    }


def uniform(words: Callable[[int], np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    """Float32 values in [-1, 1) that have an exact 24-bit form, so that no rounding depends on a machine."""
    bits = np.asarray(words(int(np.prod(shape))), dtype=np.uint64) >> np.uint64(40)
    return ((bits.astype(np.float64) - 2.0**23) * 2.0**-23).astype(np.float32).reshape(shape)


def _weights(full: dict[str, int | float]) -> dict[str, np.ndarray]:
    words = np.random.Philox(key=int(full["seed"])).random_raw
    weights: dict[str, np.ndarray] = {}
    for name, shape in _shapes(full).items():
        if len(shape) == 1:
            weights[f"{name}.weight"] = np.ones(shape, np.float32)
            continue
        bound = 1.0 if name == "model.embed_tokens" else full["gain"] / np.sqrt(shape[1])
        weights[f"{name}.weight"] = uniform(words, shape) * np.float32(bound)
    return weights


def _quantise(folder: Path, config: dict[str, Any], group_size: int) -> dict[str, Any]:
    """Replace the folder's float32 weights by 4-bit ones of mlx-lm's own quantiser."""
    from mlx_lm import utils as mlx_lm_utils  # noqa: PLC0415 - seconds to import, needed for 4 bit only

    model, _ = mlx_lm_utils.load_model(folder)
    with contextlib.redirect_stdout(io.StringIO()):  # it prints its bits per weight
        model, quantised = mlx_lm_utils.quantize_model(model, config, group_size, 4)
    (folder / "model.safetensors").unlink()
    mlx_lm_utils.save_model(folder, model)
    return dict(quantised)


def _group_size(full: dict[str, int | float]) -> int:
    widths = {shape[1] for shape in _shapes(full).values() if len(shape) == 2}
    for size in (64, 32):
        if all(width % size == 0 for width in widths):
            return size
    raise ValueError(f"4 bit needs matrix widths that 32 divides, the spec gives {sorted(widths)}")


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _write(full: dict[str, int | float], folder: Path) -> None:
    config = _config(full)
    save_file(_weights(full), folder / "model.safetensors", metadata={"format": "mlx"})
    _write_json(folder / "config.json", config)
    if full["bits"] == 4:
        config = _quantise(folder, config, _group_size(full))
        _write_json(folder / "config.json", config)
    generation = {"eos_token_id": tiny_tokenizer.EOS_ID, "pad_token_id": tiny_tokenizer.PAD_ID, "do_sample": True}
    _write_json(folder / "generation_config.json", generation)
    tiny_tokenizer.write(folder, int(full["vocab"]))
