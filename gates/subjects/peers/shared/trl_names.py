"""The names of TRL's settings by the words of a case, for its own adapter and for those of libraries that took them over.

It is copied next to an adapter, since Gates is not installed in a peer's environment. It has no formula of any op.
"""

from __future__ import annotations

from typing import Any

LOSSES = {  # loss_type and importance_sampling_level by algorithm
    "grpo": ("grpo", "token"),
    "dapo": ("dapo", "token"),
    "bnpo-trl": ("bnpo", "token"),
    "dr_grpo": ("dr_grpo", "token"),
    "gspo": ("grpo", "sequence"),
    "gspo-token": ("grpo", "sequence_token"),
    "luspo": ("luspo", "sequence"),
    "cispo": ("cispo", "token"),
    "sapo": ("sapo", "token"),
    "vespo": ("vespo", "token"),
}
SHAPES = {  # fields of a config by inputs of a case
    "max_completion_length": "max_length",
    "sapo_temperature_pos": "sapo_temperature_positive",
    "sapo_temperature_neg": "sapo_temperature_negative",
    "vespo_k_pos": "vespo_k_positive",
    "vespo_lambda_pos": "vespo_lambda_positive",
    "vespo_k_neg": "vespo_k_negative",
    "vespo_lambda_neg": "vespo_lambda_negative",
}
MODES = {  # vllm_importance_sampling_mode
    ("tis", "token"): "token_truncate",
    ("mis", "token"): "token_mask",
    ("tis", "seq_sum"): "sequence_truncate",
    ("mis", "seq_sum"): "sequence_mask",
}
FIXED: dict[str, Any] = {
    "output_dir": "unused",
    "use_cpu": True,
    "bf16": False,
    "report_to": [],
    "disable_tqdm": True,
}
WHOLE_STEP = tuple(name for name in LOSSES if name != "bnpo-trl")  # of which the parts add up
