"""Ops of the KL divergence to the reference policy."""

from __future__ import annotations

from gates.families.kl import program
from gates.model import Op, Output
from gates_reference.oracle import kl

TOKEN_KL = Op(
    name="token_kl",
    outputs={"kl": Output(kind="f")},
    inputs={
        "policy": "(B, T), or (N,) with lengths: sequences one after the other; float32 or float64 log-probs in nats",
        "reference": "log-probs of the same shape and dtype",
        "estimator": '"k1", "k2" or "k3"',
        "mask": "(B, T) bool, or None; masked slots give 0 whatever they hold",
        "lengths": "(B,) int64 valid prefixes, or of the sequences of a flat array; or None",
        "reduction": '"none" (per token), "sum" or "mean" (per sequence)',
        "old": "log-probs of the policy that sampled, of the same shape and dtype, or None: on-policy, every ratio 1",
        "kl_ratio": 'what multiplies each estimate: "none", "token" exp(policy − old), "sequence" exp(its mean)',
        "kl_clamp": "c: each estimate is clamped to [−c, c] before it is weighted or reduced; or None",
    },
    optional=("kl_clamp",),
    source="J. Schulman, Approximating KL Divergence, 2020",
    formula="d = reference − policy: k1 = −d, k2 = d²/2, k3 = exp(d) − d − 1",
    oracle=kl.token_kl,
    textbook=program.token_kl,
    key=("estimator",),
)
FULL_KL = Op(
    name="full_kl",
    outputs={"kl": Output(kind="f")},
    inputs={
        "policy_logprobs": "(…, V) float32 or float64 log-probs in nats; −inf adds nothing",
        "reference_logprobs": "of the same shape and dtype; −inf where the policy can draw gives +inf",
    },
    source="S. Kullback and R. Leibler, On Information and Sufficiency, 1951, eq. 2.4",
    formula="KL = Σ_v p_v (log p_v − log q_v)",
    oracle=kl.full_kl,
    textbook=program.full_kl,
)
