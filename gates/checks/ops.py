"""The operations that subjects provide, under the names of the field. One table for gates, docs and subjects."""

from __future__ import annotations

from gates.model import Op, Output
from reference.oracle import advantages, kl, losses

FLOAT32_U = 2.0**-24
FLOAT64_U = 2.0**-53
UNIT = {"float32": FLOAT32_U, "float64": FLOAT64_U}

GROUP_ADVANTAGES = Op(
    name="group_advantages",
    outputs={"advantages": Output(like="rewards")},
    source="DeepSeekMath, arXiv 2402.03300, section 4.1.2; Dr. GRPO, arXiv 2503.20783; RLOO, arXiv 2402.14740",
    formula="A_i = (R_i − baseline_i) / divisor; prompt-major groups of G",
    oracle=advantages.group_advantages,
)
TOKEN_KL = Op(
    name="token_kl",
    outputs={"kl": Output(kind="f")},
    source="J. Schulman, Approximating KL Divergence, 2020",
    formula="d = reference − policy: k1 = −d, k2 = d²/2, k3 = exp(d) − d − 1",
    oracle=kl.token_kl,
)
PACK_SEQUENCES = Op(
    name="pack_sequences",
    outputs={"indices": Output(kind="i", ndim=1), "offsets": Output(kind="i", ndim=1)},
    source="D. S. Johnson, Near-optimal bin packing algorithms, 1973: first-fit decreasing",
    formula="bins of at most max_length; bin b is indices[offsets[b]:offsets[b+1]]",
)
POLICY_LOSS = Op(
    name="policy_loss",
    outputs={"loss": Output(kind="scalar"), "gradient": Output(like="policy")},
    source="GRPO arXiv 2402.03300 · DAPO 2503.14476 · Dr. GRPO 2503.20783 · GSPO 2507.18071 · RLOO 2402.14740",
    formula="l = −min(min(r, δ)·A, clip(r, 1−ε_low, 1+ε_high)·A) + β·KL, aggregated as the algorithm says",
    oracle=losses.policy_loss,
)
LOSS_FROM_LOGITS = Op(
    name="loss_from_logits",
    outputs={"loss": Output(kind="scalar"), "gradient": Output(like="logits"), "logprobs": Output(kind="f", ndim=2)},
    source="logits at position t score token t+1; then as policy_loss",
    formula="lp_t = x[id]/τ − logsumexp(x/τ); ∂loss/∂x = ∂loss/∂lp · (onehot − softmax)/τ",
)
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
    source="token equivalence and keyed draws of the project's semantics (Philox 4x32-10, Salmon et al. 2011)",
    formula="token = least k with C_k > u·C_V; key = seed, counter = (t, j, i, round)",
)
TOKEN_LOGITS = Op(
    name="token_logits",
    outputs={"logits": Output(kind="f", ndim=3)},
    source="one full forward of prompt and completion",
)
COMPLETION_LOGPROBS = Op(
    name="completion_logprobs",
    outputs={"logprobs": Output(kind="f", ndim=2)},
    source="full forward; lp_t = x[id]/τ − logsumexp(x/τ)",
)
IMPORTANCE_RATIOS = Op(
    name="importance_ratios",
    outputs={"ratios": Output(kind="f", ndim=2)},
    source="r_t = exp(policy − old), policy recomputed by a full forward",
)
TRAIN_STEP = Op(
    name="train_step",
    outputs={
        "loss": Output(kind="scalar"),
        "base_before": Output(kind="text"),
        "base_after": Output(kind="text"),
        "adapter_change": Output(kind="scalar"),
    },
    source="one optimizer step of GRPO on LoRA adapters, arXiv 2106.09685",
)
