"""Build the model folder of a workload in the Hugging Face layout: random Qwen3 weights with the workload's row lengths.

The weights decide when a row ends, so no package needs a setting for it. All embeddings have the same value in hidden
dimension 0, which no block writes (zero rows of `o_proj` and `down_proj`) or reads (zero in the norms before it). So the
final norm gives nearly the same number there at every token, and the end token's row of the head turns it into a nearly
constant logit. The logits of all other tokens are close to normal with a standard deviation of 1, so their normaliser hardly
varies either.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from benches.trainers.workloads import SETTINGS, STEPS_OF_PROMPTS, Shape, Workload
from gates_reference import tiny, tiny_tokenizer

VERSION: Final = 1
"""Part of the folder's name; raise it when the same workload gives other bytes."""
SEED: Final = 7
CONSTANT: Final = 4.0  # value of every embedding in dimension 0; the other dimensions have a mean square of 1
SPREAD: Final = 1.0  # standard deviation of the logits
WRITES: Final = 0.2  # variance that all blocks add to the residual, to first order
NEVER: Final = -30.0  # logit of a token that is never drawn
SPECIALS: Final = (tiny_tokenizer.PAD_ID, 1, tiny_tokenizer.EOS_ID)
TRAINED: Final = 512  # entries from the tokenizer's corpus; a larger vocabulary is padded


def end_logit(shape: Shape, workload: Workload) -> float:
    """Return the end token's logit for its probability at the workload's temperature."""
    p = workload.end_probability()
    if p == 0.0:
        return NEVER
    temperature = SETTINGS["temperature"]
    others = math.log(shape.vocab - len(SPECIALS)) + (SPREAD / temperature) ** 2 / 2
    return float(temperature * (others + math.log(p / (1.0 - p))))


def weights(shape: Shape, workload: Workload) -> Iterator[tuple[str, np.ndarray]]:
    """Yield name and float32 values of every tensor, a pure function of shape and workload."""
    h, depth = shape.hidden, shape.layers
    rng = np.random.Generator(np.random.Philox(SEED))
    gain = math.sqrt(WRITES / depth)

    def matrix(rows: int, columns: int, scale: float, *, into_residual: bool = False) -> np.ndarray:
        values = rng.standard_normal((rows, columns), np.float32) * np.float32(scale / math.sqrt(columns))
        if into_residual:
            values[0] = 0.0
        return values

    def norm(size: int, value: float = 1.0, first: float | None = None) -> np.ndarray:
        values = np.full(size, value, np.float32)
        if first is not None:
            values[0] = first
        return values

    embedding = rng.standard_normal((shape.vocab, h), np.float32)
    embedding[:, 0] = 0.0
    embedding *= np.float32(math.sqrt(h - 1)) / np.linalg.norm(embedding, axis=1, keepdims=True)
    embedding[:, 0] = CONSTANT
    read = CONSTANT / math.sqrt((CONSTANT**2 + (h - 1) * (1 + WRITES / 2)) / h)  # dimension 0 after the final norm
    head = embedding if shape.tied else rng.standard_normal((shape.vocab, h), np.float32)
    base = CONSTANT if shape.tied else 0.0  # equal for every token, so without effect
    head[:, 0] = base
    for token in SPECIALS:
        logit = end_logit(shape, workload) if token == tiny_tokenizer.EOS_ID else NEVER
        head[token] = 0.0
        head[token, 0] = base + logit / read
    yield "model.embed_tokens.weight", embedding
    if not shape.tied:
        yield "lm_head.weight", head
    yield "model.norm.weight", norm(h, SPREAD / math.sqrt(h), first=1.0)
    wide, narrow = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    for layer in range(depth):
        at = f"model.layers.{layer}"
        yield f"{at}.input_layernorm.weight", norm(h, first=0.0)
        yield f"{at}.post_attention_layernorm.weight", norm(h, first=0.0)
        yield f"{at}.self_attn.q_norm.weight", norm(shape.head_dim)
        yield f"{at}.self_attn.k_norm.weight", norm(shape.head_dim)
        for name, rows in (("q_proj", wide), ("k_proj", narrow), ("v_proj", narrow)):
            yield f"{at}.self_attn.{name}.weight", matrix(rows, h, 1.0)
        yield f"{at}.self_attn.o_proj.weight", matrix(h, wide, gain, into_residual=True)
        for name in ("gate_proj", "up_proj"):
            yield f"{at}.mlp.{name}.weight", matrix(shape.intermediate, h, 1.0)
        yield f"{at}.mlp.down_proj.weight", matrix(h, shape.intermediate, gain, into_residual=True)


def digest(shape: Shape, workload: Workload) -> str:
    """Return a digest of the weights, rounded to 12 bits to ignore the last bit of a division."""
    sha256 = hashlib.sha256()
    for name, values in weights(shape, workload):
        sha256.update(f"{name} {values.shape}".encode())
        sha256.update(np.round(values * np.float32(1 << 12)).astype(np.int64).tobytes())
    return sha256.hexdigest()[:16]


def config(shape: Shape) -> dict[str, Any]:
    """Return the content of config.json."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "intermediate_size": shape.intermediate,
        "vocab_size": shape.vocab,
        "tie_word_embeddings": shape.tied,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "max_position_embeddings": 4096,
        "attention_bias": False,
        "hidden_act": "silu",
        "torch_dtype": shape.dtype,
        "eos_token_id": tiny_tokenizer.EOS_ID,
        "pad_token_id": tiny_tokenizer.PAD_ID,
    }


def build(shape: Shape, workload: Workload) -> Path:
    """Return the folder of a workload's model, built and cached on first use."""
    recipe = [VERSION, shape.name, workload.ending, workload.tokens if workload.ending != "none" else 0, workload.bits]
    name = "bench-" + hashlib.sha256(json.dumps([*recipe, config(shape)], sort_keys=True).encode()).hexdigest()[:24]
    return tiny.cached(name, lambda half: _write(shape, workload, half))


def _write(shape: Shape, workload: Workload, folder: Path) -> None:
    import mlx.core as mx

    tensors = {n: mx.array(v).astype(getattr(mx, shape.dtype)) for n, v in weights(shape, workload)}
    mx.save_safetensors(str(folder / "model.safetensors"), tensors, {"format": "mlx"})
    content = config(shape)
    _json(folder / "config.json", content)
    if workload.bits:
        _json(folder / "config.json", _quantise(folder, content, workload.bits))
    ends = {"eos_token_id": tiny_tokenizer.EOS_ID, "pad_token_id": tiny_tokenizer.PAD_ID}
    _json(folder / "generation_config.json", ends)
    tiny_tokenizer.write(folder, min(shape.vocab, TRAINED))
    _fill_up(folder / "tokenizer.json", shape.vocab)


def _quantise(folder: Path, content: dict[str, Any], bits: int) -> dict[str, Any]:
    import contextlib
    import io

    from mlx_lm import utils

    model, _ = utils.load_model(folder)
    with contextlib.redirect_stdout(io.StringIO()):  # mlx-lm prints the bits per weight
        model, quantised = utils.quantize_model(model, content, 64, bits)
    (folder / "model.safetensors").unlink()
    utils.save_model(folder, model)
    return dict(quantised)


def _fill_up(path: Path, vocab: int) -> None:
    """Add unused entries, so that every id has a text."""
    content = json.loads(path.read_text(encoding="utf-8"))
    known = content["model"]["vocab"]
    known.update({f"word{i}": i for i in range(len(known), vocab)})
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def _json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def prompts(folder: Path, workload: Workload) -> list[str]:
    """Return texts for `STEPS_OF_PROMPTS` steps in order, each of exactly the workload's number of tokens."""
    from tokenizers import Tokenizer

    from gates_reference import sums

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    wanted = workload.prompts * STEPS_OF_PROMPTS
    texts = [" ".join(row["prompt"] for row in sums.sums(SEED + i, 16)) for i in range(len(wanted))]
    return [_cut(tokenizer, text, length) for text, length in zip(texts, wanted, strict=True)]


def _cut(tokenizer: Any, text: str, length: int) -> str:
    """Return the prefix of a text with `length` tokens."""
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    for start in range(len(ids) - length):
        cut = str(tokenizer.decode(ids[start : start + length]))
        if len(tokenizer.encode(cut, add_special_tokens=False).ids) == length:
            return cut
    raise ValueError(f"no part of {text[:40]!r}… has {length} tokens")
