"""The model families that `gates_reference.tiny` builds: the configuration of each, and its parameters with their starting values.

Names and shapes are those of mlx-lm's classes after loading (its `sanitize` does not change them), so that `mlx_lm.load` reads a
folder without a conversion. Loading is strict: it fails on a wrong name or shape.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from gates_reference import tiny_tokenizer

Spec = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Leaf:
    """A parameter with values `offset + bound * u`, u uniform in [-1, 1); with bound 0 no random words are used.

    `offset` is a number or an array of the shape.
    """

    shape: tuple[int, ...]
    bound: float
    offset: Any = 0.0


@dataclass(frozen=True, slots=True)
class Family:
    """A family: its own keys and defaults, its configuration, and its parameters.

    `routers` are name endings of the modules that choose experts; mlx-lm quantises those to 8 bits. With `exact_names` the leaves
    have the names of parameters, otherwise `parameter` makes them.
    """

    architecture: str
    defaults: Mapping[str, int | float]
    config: Callable[[Spec], dict[str, Any]]
    leaves: Callable[[Spec], dict[str, Leaf]]
    routers: tuple[str, ...] = ()
    exact_names: bool = False


def _matrix(full: Spec, rows: int, inputs: int) -> Leaf:
    return Leaf((rows, inputs), full["gain"] / np.sqrt(inputs))


def _norm(size: int) -> Leaf:
    return Leaf((size,), 0.0, 1.0)


def _common(full: Spec) -> dict[str, Any]:
    return {
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


def _attention(full: Spec, queries_per_head: int = 1) -> dict[str, Leaf]:
    """Return the projections; `queries_per_head` is 2 if the query projection also computes an output gate."""
    hidden, size = full["hidden"], full["head_dim"]
    queries, keys = full["heads"] * size, full["kv_heads"] * size
    return {
        "self_attn.q_proj": _matrix(full, queries * queries_per_head, hidden),
        "self_attn.k_proj": _matrix(full, keys, hidden),
        "self_attn.v_proj": _matrix(full, keys, hidden),
        "self_attn.o_proj": _matrix(full, hidden, queries),
    }


def _mlp(full: Spec, name: str = "mlp") -> dict[str, Leaf]:
    hidden, wide = full["hidden"], full["intermediate"]
    return {
        f"{name}.gate_proj": _matrix(full, wide, hidden),
        f"{name}.up_proj": _matrix(full, wide, hidden),
        f"{name}.down_proj": _matrix(full, hidden, wide),
    }


def _experts(full: Spec) -> dict[str, Leaf]:
    hidden, wide, count = full["hidden"], full["expert_intermediate"], full["experts"]

    def stack(rows: int, inputs: int) -> Leaf:
        return Leaf((count, rows, inputs), full["gain"] / np.sqrt(inputs))

    return {
        "mlp.gate": _matrix(full, count, hidden),
        "mlp.switch_mlp.gate_proj": stack(wide, hidden),
        "mlp.switch_mlp.up_proj": stack(wide, hidden),
        "mlp.switch_mlp.down_proj": stack(hidden, wide),
    }


def _head_norms(full: Spec) -> dict[str, Leaf]:
    return {"self_attn.q_norm": _norm(full["head_dim"]), "self_attn.k_norm": _norm(full["head_dim"])}


def _block_norms(full: Spec) -> dict[str, Leaf]:
    return {"input_layernorm": _norm(full["hidden"]), "post_attention_layernorm": _norm(full["hidden"])}


def _whole(full: Spec, layers: list[dict[str, Leaf]], *, embedding: float = 1.0) -> dict[str, Leaf]:
    """Return embedding, blocks, last norm and an untied head; the order decides which random words each gets."""
    vocab, hidden = full["vocab"], full["hidden"]
    blocks = {f"model.layers.{n}.{name}": leaf for n, layer in enumerate(layers) for name, leaf in layer.items()}
    return {
        "model.embed_tokens": Leaf((vocab, hidden), embedding),
        **blocks,
        "model.norm": _norm(hidden),
        "lm_head": _matrix(full, vocab, hidden),
    }


def _qwen3(full: Spec) -> dict[str, Leaf]:
    block = {**_attention(full), **_mlp(full), **_head_norms(full), **_block_norms(full)}
    return _whole(full, [block] * full["layers"])


def _llama(full: Spec) -> dict[str, Leaf]:
    return _whole(full, [{**_attention(full), **_mlp(full), **_block_norms(full)}] * full["layers"])


def _qwen3_moe_config(full: Spec) -> dict[str, Any]:
    return {
        **_common(full),
        "num_experts": full["experts"],
        "num_experts_per_tok": full["experts_per_token"],
        "moe_intermediate_size": full["expert_intermediate"],
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }


def _qwen3_moe(full: Spec) -> dict[str, Leaf]:
    block = {**_attention(full), **_experts(full), **_head_norms(full), **_block_norms(full)}
    return _whole(full, [block] * full["layers"])


def _gemma3_config(full: Spec) -> dict[str, Any]:
    return {
        **_common(full),
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": full["head_dim"],
        "rope_local_base_freq": 1000.0,
        "sliding_window": full["window"],
        "sliding_window_pattern": full["interval"],
        "tie_word_embeddings": True,
    }


def _gemma3(full: Spec) -> dict[str, Leaf]:
    """Return Gemma 3 with a tied head.

    Its norms add 1 to their weight, so their weights start at 0. Every block's output is normalised, so the gain is applied in the
    last norm, twice as large. The embeddings are small, because the tied head would otherwise mostly repeat the previous token.
    """
    hidden, size = full["hidden"], full["head_dim"]
    norms = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
    block = {
        **_attention(full),
        **_mlp(full),
        "self_attn.q_norm": Leaf((size,), 0.0),
        "self_attn.k_norm": Leaf((size,), 0.0),
        **{name: Leaf((hidden,), 0.0) for name in norms},
    }
    whole = _whole(full, [block] * full["layers"], embedding=0.5 / np.sqrt(hidden))
    del whole["lm_head"]
    return {**whole, "model.norm": Leaf((hidden,), 0.0, 2 * full["gain"] - 1.0)}


def _linear_config(full: Spec) -> dict[str, Any]:
    return {
        "linear_num_value_heads": full["heads"],
        "linear_num_key_heads": full["kv_heads"],
        "linear_key_head_dim": full["head_dim"],
        "linear_value_head_dim": full["head_dim"],
        "linear_conv_kernel_dim": 4,
        "full_attention_interval": full["interval"],
    }


def _linear_attention(full: Spec, projections: Mapping[str, int]) -> dict[str, Leaf]:
    """Return a gated delta net whose decays exp(-exp(A_log) softplus(a + dt_bias)) range from long memory to almost none."""
    size, values, keys = full["head_dim"], full["heads"] * full["head_dim"], full["kv_heads"] * full["head_dim"]
    leaves = {
        **{f"in_proj_{name}": _matrix(full, rows, full["hidden"]) for name, rows in projections.items()},
        "conv1d": Leaf((2 * keys + values, 4, 1), full["gain"] / np.sqrt(4)),
        "A_log": Leaf((full["heads"],), 2.0, -1.0),
        "dt_bias": Leaf((full["heads"],), 1.0),
        "norm": _norm(size),
        "out_proj": _matrix(full, full["hidden"], values),
    }
    return {f"linear_attn.{name}": leaf for name, leaf in leaves.items()}


def _hybrid_layers(full: Spec, linear: dict[str, Leaf], mlp: dict[str, Leaf]) -> list[dict[str, Leaf]]:
    attention = {**_attention(full, queries_per_head=2), **_head_norms(full)}
    return [
        {**(linear if (n + 1) % full["interval"] else attention), **mlp, **_block_norms(full)}
        for n in range(full["layers"])
    ]


def _qwen3_next_config(full: Spec) -> dict[str, Any]:
    return {
        **_qwen3_moe_config(full),
        **_linear_config(full),
        "shared_expert_intermediate_size": full["intermediate"],
        "partial_rotary_factor": 0.5,
    }


def _qwen3_next(full: Spec) -> dict[str, Leaf]:
    values, keys = full["heads"] * full["head_dim"], full["kv_heads"] * full["head_dim"]
    linear = _linear_attention(full, {"qkvz": 2 * keys + 2 * values, "ba": 2 * full["heads"]})
    shared = {**_mlp(full, "mlp.shared_expert"), "mlp.shared_expert_gate": _matrix(full, 1, full["hidden"])}
    return _whole(full, _hybrid_layers(full, linear, {**_experts(full), **shared}))


def _qwen3_5_config(full: Spec) -> dict[str, Any]:
    """Return the configuration; the text part is nested, as in the published models."""
    common = _common(full)
    rope = {"rope_type": "default", "rope_theta": common.pop("rope_theta"), "partial_rotary_factor": 0.5}
    text = {**common, **_linear_config(full), "model_type": "qwen3_5_text", "rope_parameters": rope}
    top = ("tie_word_embeddings", "torch_dtype", "eos_token_id", "pad_token_id")
    return {"text_config": text, **{name: common[name] for name in top}}


def _qwen3_5(full: Spec) -> dict[str, Leaf]:
    values, keys = full["heads"] * full["head_dim"], full["kv_heads"] * full["head_dim"]
    projections = {"qkv": 2 * keys + values, "z": values, "b": full["heads"], "a": full["heads"]}
    leaves = _whole(full, _hybrid_layers(full, _linear_attention(full, projections), _mlp(full)))
    return {f"language_model.{name}": leaf for name, leaf in leaves.items()}


def parameter(name: str) -> str:
    """Return the parameter's name: a module's `weight`, except for two parameters of a gated delta net."""
    return name if name.endswith((".A_log", ".dt_bias")) else f"{name}.weight"


# At the defaults, seeds 0 and 1, 4 plain prompts x 8 samples x 24 tokens: mean entropy in nats at temperature 1 and 0.7, and the
# largest |decode - full forward| of the logits with MLX's own BLAS:
#   llama 3.62, 2.49, 0    qwen3_moe 3.64, 2.55, 0    gemma3_text 3.51, 2.25, 8e-6    qwen3_next 3.68, 2.58, 0    qwen3_5 3.68, 2.56, 0
_EXPERTS: Final[Mapping[str, int]] = {"experts": 4, "experts_per_token": 2, "expert_intermediate": 32}
FAMILIES: Final[Mapping[str, Family]] = {
    "qwen3": Family("Qwen3ForCausalLM", {}, _common, _qwen3),
    "llama": Family("LlamaForCausalLM", {}, _common, _llama),
    "qwen3_moe": Family("Qwen3MoeForCausalLM", _EXPERTS, _qwen3_moe_config, _qwen3_moe, ("mlp.gate",)),
    "gemma3_text": Family("Gemma3ForCausalLM", {"window": 8, "interval": 2}, _gemma3_config, _gemma3),
    "qwen3_next": Family(
        "Qwen3NextForCausalLM",
        {**_EXPERTS, "interval": 2},
        _qwen3_next_config,
        _qwen3_next,
        ("mlp.gate", "mlp.shared_expert_gate"),
    ),
    "qwen3_5": Family("Qwen3_5ForConditionalGeneration", {"interval": 2}, _qwen3_5_config, _qwen3_5),
}
"""Families by the `model_type` of Hugging Face and mlx-lm."""
