"""Ops of log-probs, entropies and their gradients."""

from __future__ import annotations

from dataclasses import replace

from gates.families.logprobs import gradient, program
from gates.model import Op, Output
from gates_reference.oracle import logprobs

IGNORED = "the id where no token stands, such as −100; not given without any: "
SELECTIVE_LOG_SOFTMAX = Op(
    name="selective_log_softmax",
    outputs={"logprobs": Output(kind="f")},
    inputs={
        "logits": "(…, V) float16, bfloat16, float32 or float64, finite or −inf; the result of half types is float32",
        "ids": "(…), or (…, K) for K tokens of each position: int64 in [0, V)",
        "temperature": "τ, above 0",
        "entropy": "whether `entropy` (…) is returned too",
        "ignore_index": IGNORED + "log-prob 0; where all of a position are, its logits are not read and H is 0",
    },
    source="the definition; entropy: C. E. Shannon, 1948; K ids: TRL's selective_log_softmax; ignore_index: PyTorch's "
    "cross_entropy",
    formula="lp = x[id]/τ − logsumexp(x/τ); H = −Σ_v p_v log p_v of the same tempered distribution",
    oracle=logprobs.selective_log_softmax,
    textbook=program.selective_log_softmax,
    optional=("ignore_index",),
    fixed={"entropy": False},
)
WITH_ENTROPY = replace(
    SELECTIVE_LOG_SOFTMAX,
    outputs={"logprobs": Output(kind="f"), "entropy": Output(kind="f")},
    oracle=logprobs.entropy,
    textbook=program.with_entropy,
    fixed={"entropy": True},
)
SELECTIVE_LOG_SOFTMAX_BACKWARD = Op(
    name="selective_log_softmax_backward",
    outputs={"gradient": Output(like="logits")},
    inputs={
        "logits": "(…, V) as in selective_log_softmax",
        "ids": "(…), or (…, K) for K tokens of each position: int64 in [0, V)",
        "grad_logprobs": "∂L/∂lp of the shape of `ids`, float32, or float64 with float64 logits",
        "temperature": "τ, above 0",
        "grad_entropy": "(…) ∂L/∂H of the same dtype, or None",
        "ignore_index": IGNORED + "no gradient; where all of a position are, its logits are not read",
    },
    source="the chain rule",
    formula="∂L/∂x = (Σ_k g_k (onehot_k − p) − g_H p (log p + H)) / τ",
    oracle=logprobs.selective_log_softmax_backward,
    textbook=gradient.selective_log_softmax_backward,
    optional=("ignore_index",),
)
