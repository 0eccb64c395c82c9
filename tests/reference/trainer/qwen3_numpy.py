"""Qwen3's forward pass in float64 NumPy, one text at a time, from a model folder: too simple to doubt."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

Floats = np.ndarray


def _norm(x: Floats, weight: Floats, eps: float) -> Floats:
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps) * weight


def _rotate(x: Floats, base: float) -> Floats:
    half = x.shape[-1] // 2
    angles = np.arange(x.shape[0])[:, None] * base ** (-np.arange(half) / half)
    cos, sin = np.cos(angles), np.sin(angles)
    left, right = x[:, :half], x[:, half:]
    return np.concatenate([left * cos - right * sin, left * sin + right * cos], axis=1)


def logits(folder: Path, ids: list[int]) -> Floats:
    """The logits (L, V) of a text of L tokens."""
    config = json.loads((folder / "config.json").read_text())
    w = {name: x.astype(np.float64) for name, x in load_file(folder / "model.safetensors").items()}
    heads, kv_heads, size = (config[k] for k in ("num_attention_heads", "num_key_value_heads", "head_dim"))
    eps, base = config["rms_norm_eps"], config["rope_theta"]
    h = w["model.embed_tokens.weight"][ids]
    future = np.triu(np.ones((len(ids), len(ids)), bool), 1)
    for n in range(config["num_hidden_layers"]):
        p = f"model.layers.{n}."
        x = _norm(h, w[p + "input_layernorm.weight"], eps)
        q, k, v = (x @ w[f"{p}self_attn.{name}_proj.weight"].T for name in "qkv")
        outputs = []
        for head in range(heads):
            of_q, of_kv = slice(head * size, (head + 1) * size), head * kv_heads // heads
            of_k = slice(of_kv * size, (of_kv + 1) * size)
            queries = _rotate(_norm(q[:, of_q], w[p + "self_attn.q_norm.weight"], eps), base)
            keys = _rotate(_norm(k[:, of_k], w[p + "self_attn.k_norm.weight"], eps), base)
            scores = np.where(future, -np.inf, queries @ keys.T / np.sqrt(size))
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            outputs.append(weights / weights.sum(axis=1, keepdims=True) @ v[:, of_k])
        h = h + np.concatenate(outputs, axis=1) @ w[p + "self_attn.o_proj.weight"].T
        x = _norm(h, w[p + "post_attention_layernorm.weight"], eps)
        gate, up = x @ w[p + "mlp.gate_proj.weight"].T, x @ w[p + "mlp.up_proj.weight"].T
        h = h + gate / (1 + np.exp(-gate)) * up @ w[p + "mlp.down_proj.weight"].T
    return _norm(h, w["model.norm.weight"], eps) @ w["lm_head.weight"].T
