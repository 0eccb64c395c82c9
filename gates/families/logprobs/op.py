"""Ops of log-probs, entropies and their gradients."""

from __future__ import annotations

from dataclasses import replace

from gates.model import Op, Output
from reference.oracle import logprobs

SELECTIVE_LOG_SOFTMAX = Op(
    name="selective_log_softmax",
    outputs={"logprobs": Output(kind="f")},
    inputs={
        "logits": "(…, V) float16, bfloat16, float32 or float64, finite or −inf; the result of half types is float32",
        "ids": "(…) int64 in [0, V)",
        "temperature": "τ, above 0",
        "entropy": "whether `entropy` (…) is returned too",
    },
    source="the definition; entropy: C. E. Shannon, 1948",
    formula="lp = x[id]/τ − logsumexp(x/τ); H = −Σ_v p_v log p_v of the same tempered distribution",
    oracle=logprobs.selective_log_softmax,
)
WITH_ENTROPY = replace(
    SELECTIVE_LOG_SOFTMAX, outputs={"logprobs": Output(kind="f"), "entropy": Output(kind="f")}, oracle=logprobs.entropy
)
SELECTIVE_LOG_SOFTMAX_BACKWARD = Op(
    name="selective_log_softmax_backward",
    outputs={"gradient": Output(like="logits")},
    inputs={
        "logits": "(…, V) as in selective_log_softmax",
        "ids": "(…) int64 in [0, V)",
        "grad_logprobs": "(…) ∂L/∂lp, float32, or float64 with float64 logits",
        "temperature": "τ, above 0",
        "grad_entropy": "(…) ∂L/∂H of the same dtype, or None",
    },
    source="the chain rule",
    formula="∂L/∂x = (g (onehot − p) − g_H p (log p + H)) / τ",
    oracle=logprobs.selective_log_softmax_backward,
)
