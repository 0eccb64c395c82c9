"""Ops of filters and draws."""

from __future__ import annotations

from gates.families.sampling import program
from gates.model import Op, Output
from gates_reference.oracle import sampling

FILTER_INPUTS = {
    "logits": "(B, V) float32 or float64, finite or −inf",
    "order": '"hf" (penalty, temperature, top-k, top-p, min-p, XTC) or "mlx-lm" (penalty, top-p, min-p, XTC, top-k, temperature)',
    "temperature": "0: the lowest id of the largest logit",
    "top_k": "0 is off",
    "top_p": "1.0 is off",
    "min_p": "0.0 is off",
    "xtc_probability": "0.0 is off",
    "xtc_threshold": "a probability",
    "xtc_coin": "(B,) float64 in [0, 1), or None where XTC is off",
    "repetition_penalty": "1.0 is off",
    "history": "(B, H) int64 ids of earlier tokens, −1 for none; None where the penalty is off",
    "ties": 'which of the tokens tied with the last that top-k or top-p needs stay: "all", "lower-id" or, where it is not '
    'given, "library" (hf: all for top-k, the higher ids for top-p; mlx-lm: the lower ids for top-k, all for top-p)',
    "min_tokens_to_keep": "tokens that top-k, top-p and min-p each leave at least (hf), or min-p alone (mlx-lm); 1 where "
    "it is not given",
    "xtc_special_tokens": "(S,) int64 ids that XTC never removes; none where it is not given",
    "presence_penalty": "subtracted once from the logits of `generated`; 0.0, as where it is not given, is off",
    "frequency_penalty": "subtracted for each time that a token is in `generated`; 0.0, as where it is not given, is off",
    "generated": "(B, H) int64 ids, −1 for none; given where one of these two penalties is on",
    "logit_bias": "(V,) float64, finite or −inf, added to the logits before the penalties; off where it is not given",
}
OPTIONAL = frozenset(
    (
        "ties",
        "min_tokens_to_keep",
        "xtc_special_tokens",
        "presence_penalty",
        "frequency_penalty",
        "generated",
        "logit_bias",
    )
)
FILTERED_LOGPROBS = Op(
    name="filtered_logprobs",
    outputs={"logprobs": Output(kind="f", ndim=2)},
    inputs=FILTER_INPUTS,
    source="top-p arXiv 1904.09751 · min-p 2407.01082 · penalty 1909.05858 · the two orders: transformers, mlx-lm",
    formula="each filter acts on the distribution renormalised over the survivors so far; −inf where removed",
    oracle=sampling.filtered_logprobs,
    textbook=program.filtered_logprobs,
    key=("order",),
    optional=OPTIONAL,
)
SAMPLE_TOKENS = Op(
    name="sample_tokens",
    outputs={"tokens": Output(kind="i", ndim=1), "logprobs": Output(kind="f", ndim=1)},
    inputs={**FILTER_INPUTS, "uniforms": "(B,) float64 in [0, 1)"},
    source="inverse transform sampling from the filtered distribution",
    formula="token = least k with C_k > u·C_V, C summed in id order",
    textbook=program.sample_tokens,
    key=("order",),
    optional=OPTIONAL,
)
