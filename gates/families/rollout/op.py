"""Ops of rollouts, and the inputs of every op with a model."""

from __future__ import annotations

from gates.model import Op, Output

MODEL_INPUTS = {
    "model": 'a recipe of gates_reference.tiny such as {"seed": 11, "bits": 32}, or {"path": folder}',
    "adapter": '{"rank", "scale", "seed", "b_std"} of a LoRA adapter, or None: the base',
}
BATCH_INPUTS = {
    "prompt_tokens": "one (P,) int32 array for each row",
    "tokens": "(R, T) int32 completions, -1 past the end",
    "lengths": "(R,) int64, the first EOS included",
}
ROLLOUT = Op(
    name="rollout",
    outputs={
        "rows": Output(kind="i", ndim=2),
        "tokens": Output(kind="i", ndim=2),
        "lengths": Output(kind="i", ndim=1),
        "ended": Output(kind="b", ndim=1),
        "uniforms": Output(kind="f", ndim=2),  # and with record_logits: logits (R, T, V)
        "model_logprobs": Output(kind="f", ndim=2),
    },
    inputs={
        **MODEL_INPUTS,
        "prompts": "one (P,) int32 array of token ids for each prompt, rolled out as they are",
        "samples": "G, completions of each prompt",
        "max_tokens": "T",
        "temperature": "0: the lowest id of the largest logit",
        "top_p": "1.0 is off",
        "top_k": "0 is off",
        "min_p": "0.0 is off",
        "xtc_probability": "0.0 is off",
        "xtc_threshold": "of XTC",
        "repetition_penalty": "1.0 is off; its history is the prompt and the completion so far",
        "order": '"hf" or "mlx-lm"',
        "seed": "the key of Philox 4x32-10",
        "round": "the last word of its counter",
        "eos_ids": "int64 ids that end a row",
        "path": '"naive", "cached", "prefix", "batched" or "compiled"; a model may have only some of them',
        "before": "an adapter like `adapter`: roll out with it first, then update its weights in place; or None",
        "kv_bits": "8 or 4: keys and values are quantised; None: they are not",
        "rows": "(R, 2) int64 of (prompt, sample) to roll out with the keys they have, or None: all",
        "record_logits": "whether logits (R, T, V) are returned too",
    },
    source='docs/definitions.md, "Token equivalence"; Philox 4x32-10: Salmon et al. 2011',
    formula="token = least k with C_k > u·C_V; key = seed, counter = (t, j, i, round)",
)
TOKEN_LOGITS = Op(
    name="token_logits",
    outputs={"logits": Output(kind="f", ndim=3)},
    inputs={
        **MODEL_INPUTS,
        **BATCH_INPUTS,
        "dtype": '"float32": the model as it is, its logits as float32; "float64": all of it in float64',
    },
    source="one full forward of prompt and completion",
)
