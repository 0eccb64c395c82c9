"""Tiny models of any family of mlx-lm: small numbers for the fields of its `ModelArgs`, values for the parameters that it then has.

The families of `gates_reference.tiny_families` are written out by hand and used by gates; those here are for trying a family. A family that
needs more than small numbers has a line in `OWN`. Names of parameters are those of mlx-lm's class, values those of its constructor
for vectors (decays, norms), moved by up to a quarter so that none is inert, and uniform random for all others.
"""

import copy
import dataclasses
import importlib
import importlib.util
import itertools
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from gates_reference import tiny_tokenizer
from gates_reference.tiny_families import Family, Leaf, Spec

DEFAULTS: Final[Mapping[str, int | float]] = {"hidden": 64, "head_dim": 16, "intermediate": 64, "gain": 2.0}
"""Instead of the defaults of `gates_reference.tiny`: some families need these widths, and a larger gain saturates gates of recurrent_gemma,
whose gradient is then NaN (mlx-lm 0.32.2)."""

BY_KEY: Final[Mapping[str, str]] = {
    "hidden": "hidden_size n_embd d_model model_dim hidden_dim mamba_d_ssm block_dim dim_model_base",
    "layers": "num_hidden_layers n_layer n_layers num_layers num_transformer_layers",
    "heads": "num_attention_heads n_head n_heads num_heads linear_num_value_heads mamba_num_heads mamba_n_heads "
    "index_n_heads swa_num_attention_heads",
    "kv_heads": "num_key_value_heads num_kv_heads n_kv_heads num_attention_groups linear_num_key_heads "
    "swa_num_key_value_heads num_global_key_value_heads",
    "head_dim": "head_dim v_head_dim qk_nope_head_dim qk_rope_head_dim index_head_dim global_head_dim mamba_head_dim "
    "mamba_d_head linear_key_head_dim linear_value_head_dim swa_head_dim swa_v_head_dim query_pre_attn_scalar kv_channels",
    "intermediate": "intermediate_size moe_intermediate_size shared_expert_intermediate_size shared_intermediate_size "
    "moe_shared_expert_intermediate_size ffn_hidden_size expert_ffn_hidden_size ff_intermediate_size intermediate_size_mlp "
    "n_inner dense_intermediate_size",
    "vocab": "vocab_size vocab_size_per_layer_input num_vocab",
}
"""The fields that mean a key of the spec."""

SMALL: Final[Mapping[Any, str]] = {
    0: "first_k_dense_replace num_dense_layers num_kv_shared_layers num_nextn_predict_layers zero_expert_num "
    "moe_layer_start_index",
    1: "n_shared_experts num_shared_experts num_shared_expert moe_num_shared_experts n_group topk_group num_expert_group "
    "n_groups mamba_n_groups moe_layer_freq decoder_sparse_step group_norm_size num_kv_reuse_layers attn_layer_offset "
    "expert_layer_offset n_shared_head",
    2: "num_experts_per_tok num_experts_per_token moe_topk moe_top_k moe_k top_k_experts layer_group_size full_attention_interval "
    "sliding_window_pattern attn_layer_period expert_layer_period cla_share_factor mamba_expand "
    "dense_attention_every_n_layers",
    4: "num_experts n_routed_experts num_local_experts moe_num_experts conv_kernel mamba_d_conv linear_conv_kernel_dim "
    "conv1d_width short_conv_kernel_size conv_L_cache ffn_dim_divisor",
    8: "sliding_window attention_window_size sliding_window_size index_topk a_low_rank_dim v_low_rank_dim gate_low_rank_dim "
    "decay_low_rank_dim time_step_rank rotary_dim block_multiple_of",
    16: "mamba_d_state state_size ssm_state_size hidden_size_per_layer_input",
    32: "kv_lora_rank q_lora_rank o_lora_rank",
    4096: "max_position_embeddings n_positions n_ctx model_max_length original_max_position_embeddings block_size",
    1e-5: "rms_norm_eps layer_norm_eps layer_norm_epsilon norm_eps layernorm_epsilon",
    1e4: "rope_theta swa_rope_theta rotary_emb_base",
    0.5: "rotary_pct partial_rotary_factor",
    30.0: "logits_soft_cap",
    "sigmoid": "scoring_func",
    "noaux_tc": "topk_method",
    "silu": "hidden_act",
}
"""Other fields that would be large or have no default, by the number that they get."""

_PLAIN: Final = {"rope_theta": 1e4, "rope_type": "default", "type": "default"}
_YARN: Final = {
    "rope_theta": 1e4,
    "rope_type": "yarn",
    "type": "yarn",
    "factor": 2.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 2048,
}
_LONG: Final = {
    "rope_type": "longrope",
    "type": "longrope",
    "factor": 1.0,
    "original_max_position_embeddings": 4096,
    **dict.fromkeys(("short_factor", "long_factor"), [1.0] * 8),
}
_SLIDING: Final = ["sliding_attention", "full_attention"]
_KDA: Final = {"num_heads": 4, "head_dim": 16, "kda_layers": [1], "full_attn_layers": [2], "short_conv_kernel_size": 4}
OWN: Final[Mapping[str, Mapping[str, Any]]] = {
    "afmoe": {"layer_types": _SLIDING},
    "baichuan_m1": {"sliding_window_layers": (0,), "conv_window": 2},
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 1e4},
        "ffn_config": {"ffn_hidden_size": 64, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "deepseek_v2": {"rope_scaling": _YARN, "topk_method": "gready"},
    "exaone4": {"sliding_window_pattern": "LG", "layer_types": _SLIDING},
    "exaone_moe": {"layer_types": _SLIDING, "is_moe_layer": [True]},
    "gear": {"layer_types": _SLIDING},
    "gemma3n": {
        "altup_num_inputs": 2,
        "altup_coef_clip": 120.0,
        "altup_correct_scale": True,
        "altup_active_idx": 0,
        "laurel_rank": 8,
        "layer_types": _SLIDING,
        "activation_sparsity_pattern": [0.5, 0.0],
    },
    "glm_moe_dsa": {"rope_parameters": _PLAIN},
    "granitemoehybrid": {
        "layer_types": ["mamba", "attention"],
        "mamba_proj_bias": False,
        "mamba_conv_bias": True,
        "mamba_n_heads": 8,
    },
    "hunyuan": {"rope_scaling": {"type": "dynamic", "factor": 1.0, "alpha": 1000.0}},
    "kimi_k3": {"hidden_act": "situ", "linear_attn_config": _KDA},
    "kimi_linear": {"linear_attn_config": _KDA},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "llama4": {
        "attention_chunk_size": 8,
        "interleave_moe_layer_step": 2,
        "num_experts_per_tok": 1,
        "num_hidden_layers": 4,
    },
    "llama4_text": {"no_rope_layers": [1, 0]},
    "longcat_flash": {
        "attention_method": "MLA",
        "zero_expert_type": "identity",
        "mla_scale_q_lora": True,
        "mla_scale_kv_lora": True,
    },
    "longcat_flash_ngram": {"mla_scale_q_lora": True, "mla_scale_kv_lora": True},
    "mamba2": {"time_step_limit": (0.001, 100.0), "num_heads": 8},
    "mellum": {"layer_types": _SLIDING, "rope_parameters": dict.fromkeys(_SLIDING, _PLAIN)},
    "mimo_v2_flash": {"hybrid_layer_pattern": [1, 0], "moe_layer_freq": [0, 1]},
    "minicpm3": {"rope_scaling": _LONG},
    "minimax_m3_vl": {"moe_layer_freq": [0, 1]},
    "ministral3": {
        "rope_parameters": {**_PLAIN, "llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 4096}
    },
    "mistral4": {"rope_parameters": {**_YARN, "llama_4_scaling_beta": 0.1}},
    "muse_spark": {
        "layer_types": _SLIDING,
        "layer_rope_theta": [1e4, 0.0],
        "rope_parameters": _PLAIN,
        "moe_hidden_size": 64,
        "final_logit_softcapping": 30.0,
        "num_shared_experts": 0,
    },
    "nemotron-nas": {"block_configs": [{"attention": {"n_heads_in_group": 2}, "ffn": {"ffn_mult": 1.0}}]},
    "nemotron_h": {
        "layers_block_type": ["mamba", "attention", "mlp", "moe"],
        "num_hidden_layers": 4,
        "routed_scaling_factor": 1.0,
        "norm_topk_prob": True,
    },
    "olmo3": {"layer_types": _SLIDING},
    "openelm": {"num_query_heads": [4], "num_kv_heads": [2], "ffn_multipliers": [1.0]},
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
    "spark2_5": {"layer_types": _SLIDING, "rope_parameters": dict.fromkeys(_SLIDING, _PLAIN), "hidden_act": "gelu"},
}
"""What a family needs beside small numbers. A list repeats over the layers, a tuple is taken as it is."""


def names() -> list[str]:
    """Return the names of mlx-lm's modules of models, empty without mlx-lm; not each of them has a model of its own."""
    found = importlib.util.find_spec("mlx_lm")
    folders = [Path(place) / "models" for place in (found.submodule_search_locations or ())] if found else []
    return sorted(file.stem for folder in folders for file in folder.glob("*.py") if not file.stem.startswith("_"))


def family(name: str) -> Family | None:
    """Return the family of a module of mlx-lm, None if there is no such module with a model."""
    module = _module(name)
    if module is None:
        return None
    return Family(name, DEFAULTS, lambda full: config(name, full), lambda full: _leaves(name, full), exact_names=True)


def has_model(name: str) -> bool:
    """Return whether the module has a model; mlx-lm's shared code stands beside those that have."""
    return family(name) is not None


def _module(name: str) -> ModuleType | None:
    if name not in names():
        return None
    try:
        module = importlib.import_module(f"mlx_lm.models.{name}")
    except (ImportError, SystemExit):  # mlx-lm's olmo exits without a package of its own
        return None
    return module if hasattr(module, "Model") and hasattr(module, "ModelArgs") else None


def config(name: str, full: Spec) -> dict[str, Any]:
    """Return a configuration of a family with small numbers for the fields that its `ModelArgs` has.

    Raises:
        ValueError: a field has no default, and this module has no number for it.
    """
    module = _module(name)
    assert module is not None
    ends = {"eos_token_id": tiny_tokenizer.EOS_ID, "pad_token_id": tiny_tokenizer.PAD_ID}
    tied = {"tie_word_embeddings": False}
    return {**ends, **tied, **_fields(name, module, module.ModelArgs, full)}


def _fields(name: str, module: ModuleType, arguments: Any, full: Spec) -> dict[str, Any]:
    numbers = {field: full[key] for key, fields in BY_KEY.items() for field in fields.split()}
    numbers |= {field: number for number, fields in SMALL.items() for field in fields.split()}
    own = copy.deepcopy(OWN.get(name, {}))  # some classes change what they are given
    found: dict[str, Any] = {"model_type": name, **own}  # transformers may read fields that mlx-lm does not have
    for field in dataclasses.fields(arguments):
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if field.name in own:
            continue
        if field.name == "text_config":
            found[field.name] = _text(module, full)
        elif field.name in numbers:
            found[field.name] = numbers[field.name]
        elif required and field.name not in found:
            found[field.name] = _plain(name, field)
    layers = found.get("num_hidden_layers", full["layers"])
    lists = {key: [*itertools.islice(itertools.cycle(x), layers)] for key, x in found.items() if isinstance(x, list)}
    return {**found, **lists}


def _plain(name: str, field: Any) -> Any:
    kind = str(field.type)
    if "Optional" in kind or "Dict" in kind or "Any" in kind:
        return None
    if "List" in kind:
        return []
    for word, value in (("bool", False), ("float", 1.0)):
        if word in kind:
            return value
    raise ValueError(
        f"{name} has a field {field.name} ({kind}) without a default: add a small number for it to {__name__}"
    )


def _text(module: ModuleType, full: Spec) -> dict[str, Any]:
    """Return the configuration of the text part, by the dataclass or the module that the module imports for it."""
    for key, value in vars(module).items():
        if dataclasses.is_dataclass(value) and key.startswith("Text"):
            return _fields(value.__module__.rpartition(".")[2], module, value, full)
    for value in vars(module).values():
        if isinstance(value, ModuleType) and hasattr(value, "ModelArgs"):
            return _fields(value.__name__.rpartition(".")[2], value, value.ModelArgs, full)
    for base in module.Model.__bases__:  # another family's class with another configuration
        if base.__module__.startswith("mlx_lm.models."):
            return _text(importlib.import_module(base.__module__), full)
    raise ValueError(f"{module.__name__} has a text_config whose class was not found")


def _leaves(name: str, full: Spec) -> dict[str, Leaf]:
    """Return the parameters of the family's own class, in the order of their names."""
    import mlx.core as mx  # noqa: PLC0415 - only for these families
    import numpy as np  # noqa: PLC0415
    from mlx import nn  # noqa: PLC0415
    from mlx.utils import tree_flatten  # noqa: PLC0415

    module = _module(name)
    assert module is not None
    high, low = (int(word) for word in mx.random.state[0])  # type: ignore[index]  # MLX's stub has no type for it
    mx.random.seed(full["seed"])
    model = module.Model(module.ModelArgs.from_dict(config(name, full)))
    found: dict[str, Leaf] = {}
    tables = {f"{path}.weight" for path, part in model.named_modules() if isinstance(part, nn.Embedding)}
    for path, x in sorted(tree_flatten(model.parameters())):
        wide = next((size for size in reversed(x.shape) if size > 1), 1)
        if x.ndim < 2:
            found[path] = Leaf(x.shape, 0.25, np.array(x.astype(mx.float32)).reshape(x.shape))
        else:
            found[path] = Leaf(x.shape, 0.25 if path in tables else full["gain"] / np.sqrt(wide))
    mx.random.seed(high << 32 | low)
    return found
