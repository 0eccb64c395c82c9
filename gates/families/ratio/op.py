"""Ops of importance ratios, off-policy weights and their statistics."""

from __future__ import annotations

from gates.families.ratio import program
from gates.families.ratio.statistics import ratio_statistics
from gates.families.rollout.op import BATCH_INPUTS, MODEL_INPUTS
from gates.model import Op, Output
from gates_reference.oracle import ratio, statistics

NAN_UNRECORDED = {"nan_sampling": "unrecorded"}  # a rule of Gates, asked only of subjects that declare it

PAIR_INPUTS = {
    "mask": "(B, T) bool, or None; what masked slots hold is not read",
    "lengths": "(B,) int64 valid prefixes, or of the sequences of a flat array; or None",
}
STATISTICS = ("mean", "max_abs", "p99_abs", "k3", "chi2", "ess_per_n", "mult_err", "outside_low", "outside_high")
IMPORTANCE_RATIO = Op(
    name="importance_ratio",
    outputs={"ratio": Output(kind="f")},
    inputs={
        "policy": "(B, T), or (N,) with lengths: float32 or float64 log-probs in nats",
        "old": "log-probs of the ratio's denominator, of the same shape and dtype",
        "level": '"token", "seq_mean" or "seq_sum"',
        **PAIR_INPUTS,
    },
    source="PPO, arXiv 1707.06347; GSPO, arXiv 2507.18071, eq. 7; RLOO, arXiv 2402.14740",
    formula="exp(D), exp(Σ m·D / n) or exp(Σ m·D) with D = policy − old; 0 in slots without a token, 1 for an empty row",
    oracle=ratio.importance_ratio,
    textbook=program.importance_ratio,
    key=("level",),
)
IMPORTANCE_WEIGHTS = Op(
    name="importance_weights",
    outputs={"weights": Output(kind="f")},
    inputs={
        "old": "(B, T), or (N,) with lengths: float32 or float64 log-probs of the trainer's behaviour policy",
        "sampling": "log-probs of the sampler, of the same shape and dtype; NaN where it recorded none: "
        "Δ = 0, where nan_sampling=('unrecorded',) is declared",
        "correction": '"tis" or "mis"',
        "level": '"token" or "seq_sum"',
        "c_min": "lower bound, or None for none",
        "c_max": "upper bound, above 0",
        **PAIR_INPUTS,
    },
    source="Yao et al. 2025, Your efficient RL framework secretly brings you off-policy RL training; TRL's sampling modes",
    formula="Δ = old − sampling: clamp(exp Δ, c_min, c_max), or exp Δ inside [c_min, c_max], ends included, else 0",
    oracle=ratio.importance_weights,
    textbook=program.importance_weights,
    key=("correction", "level"),
)
RATIO_STATISTICS = Op(
    name="ratio_statistics",
    outputs={
        **{f"{level}{name}": Output(kind="scalar") for level in ("", "seq_sum_") for name in STATISTICS},
        "min_sequence_ratio": Output(kind="scalar"),
        "max_sequence_ratio": Output(kind="scalar"),  # and with advantages: clipped_low, clipped_high at both levels
    },
    inputs={
        "policy": "(B, T), or (N,) with lengths: float32 or float64 log-probs in nats",
        "behaviour": "log-probs of the policy that sampled, of the same shape and dtype",
        "epsilon_low": "lower clip width",
        "epsilon_high": "upper clip width",
        "advantages": "(B,), or None: then nothing is said of clipped shares",
        **PAIR_INPUTS,
    },
    source='ESS: Kong 1992; k3: Schulman 2020; docs/definitions.md, "Ratio statistics"',
    formula="over tokens, and with D summed over sequences: mean r, max and p99 |D|, mean k3(D), mean expm1(2D), "
    "(Σr)²/(nΣr²), mean exp|D|, shares of r outside the clip range, and of those that a clip stops",
    oracle=statistics.measured,
    textbook=ratio_statistics,
)
IMPORTANCE_RATIOS = Op(
    name="importance_ratios",
    outputs={"ratios": Output(kind="f", ndim=2)},
    inputs={
        **MODEL_INPUTS,
        **BATCH_INPUTS,
        "temperature": "of the scoring",
        "old": "(R, T) float32 behaviour log-probs",
    },
    source="r_t = exp(policy − old), policy recomputed by a full forward",
)
