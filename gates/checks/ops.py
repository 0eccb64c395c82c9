"""The operations that subjects provide, under the names of the field. One table for gates, docs and subjects."""

from __future__ import annotations

from dataclasses import replace

from gates.model import Op, Output
from reference.oracle import advantages, kl, logprobs, losses, packing, ratio, sampling, statistics

FLOAT32_U = 2.0**-24
FLOAT64_U = 2.0**-53
UNIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": FLOAT32_U, "float64": FLOAT64_U}

LOSS_INPUTS = {
    "old": "behaviour log-probs like those of the policy, or None: on-policy, ratio 1 with its gradient alive",
    "reference": "log-probs like those of the policy, or None where beta is 0",
    "advantages": "(B,), or of the shape of the log-probs for grpo, dapo, bnpo-trl, dr_grpo, gspo-token, cispo, sapo",
    "algorithm": '"grpo", "dapo", "bnpo-trl", "dr_grpo", "gspo", "gspo-token", "rloo", "cispo", "sapo", "gmpo", "luspo"',
    "epsilon_low": "lower clip width, 1 − ε_low (gmpo: −ε_low in log space); None for rloo, cispo and sapo",
    "epsilon_high": "upper clip width, 1 + ε_high (gmpo: ε_high in log space; cispo: its cap); None for rloo and sapo",
    "delta": "two-sided bound on the ratio, above 1 + ε_high, or None",
    "beta": "weight of the KL to the reference, at least 0; 0 for rloo",
    "kl_ratio": 'what multiplies the KL: "none", "token" or "sequence"',
    "max_length": "L_max of dr_grpo, else None",
    "micro_batches": "rows of each micro-batch of bnpo-trl, else None",
    "dapo_denominator": '"global", "group" or "trl" for dapo and cispo, else None',
}
MORE_LOSS_INPUTS = {  # what the loss of log-probs has beyond the trainer's own way from logits
    "lengths": "(B,) int64 valid prefixes instead of a mask, or the rows' lengths of flat (N,) arrays; or None",
    "kl_estimator": '"k1", "k2" or "k3" of reference − policy',
    "group_size": "rows of a prompt, for the group denominator of dapo and cispo, else None",
    "tokens_in_step": "tokens of the generation batch times this window's share, for the trl denominator, else None",
    "weights": "(B,) or, where advantages may be, per token: off-policy weights, constants; or None",
    "cispo_bound": '"relative" (c = 1 + ε_high) or "absolute" (c = ε_high) for cispo, else None',
    "sapo_temperature_positive": "τ of sapo where A > 0, else None",
    "sapo_temperature_negative": "τ of sapo elsewhere, else None",
}
PAIR_INPUTS = {
    "mask": "(B, T) bool, or None; what masked slots hold is not read",
    "lengths": "(B,) int64 valid prefixes, or of the sequences of a flat array; or None",
}
STATISTICS = ("mean", "max_abs", "p99_abs", "k3", "chi2", "ess_per_n", "mult_err", "outside_low", "outside_high")
MODEL_INPUTS = {
    "model": 'a recipe of reference.tiny such as {"seed": 11, "bits": 32}, or {"path": folder}',
    "adapter": '{"rank", "scale", "seed", "b_std"} of a LoRA adapter, or None: the base',
}
BATCH_INPUTS = {
    "prompt_tokens": "one (P,) int32 array for each row",
    "tokens": "(R, T) int32 completions, -1 past the end",
    "lengths": "(R,) int64, the first EOS included",
}

GROUP_ADVANTAGES = Op(
    name="group_advantages",
    outputs={"advantages": Output(like="rewards")},
    inputs={
        "rewards": "(B,) float32 or float64, prompt-major; NaN means not scored",
        "group_size": "G, divides B",
        "scale": '"group", "batch" or "none": whose deviation divides',
        "ddof": "0 or 1; None with scale none",
        "eps": "at least 0; None with scale none",
        "eps_mode": '"add" (std + ε), "inside" (sqrt(var + ε)) or "threshold" (0 where std < ε); None with scale none',
        "baseline": '"mean" or "leave-one-out"',
    },
    source="DeepSeekMath, arXiv 2402.03300, section 4.1.2; Dr. GRPO, arXiv 2503.20783; RLOO, arXiv 2402.14740",
    formula="A_i = (R_i − baseline_i) / divisor; prompt-major groups of G",
    oracle=advantages.group_advantages,
)
NORMALISE_THEN_SUM = Op(
    name="normalise_then_sum",
    outputs={"advantages": Output(kind="f", ndim=1)},
    inputs={
        "rewards": "(B, F) float32 or float64, one column per reward function; NaN means not scored",
        "weights": "(F,) of the same dtype",
        "group_size": "G, divides B",
        "group_ddof": "0 or 1, of the deviation in each group",
        "group_eps": "added to it",
        "batch_ddof": "0 or 1, of the deviation of the weighted sums over the batch",
        "batch_eps": "added to it",
    },
    source="GDPO, arXiv 2601.05242",
    formula="z_f = (R_f − mean_g) / (std_g + ε); s = Σ_f w_f z_f; A = (s − mean) / (std + ε) over the batch",
    oracle=advantages.normalise_then_sum,
)
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
    },
    source="J. Schulman, Approximating KL Divergence, 2020",
    formula="d = reference − policy: k1 = −d, k2 = d²/2, k3 = exp(d) − d − 1",
    oracle=kl.token_kl,
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
)
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
}
FILTERED_LOGPROBS = Op(
    name="filtered_logprobs",
    outputs={"logprobs": Output(kind="f", ndim=2)},
    inputs=FILTER_INPUTS,
    source="top-p arXiv 1904.09751 · min-p 2407.01082 · penalty 1909.05858 · the two orders: transformers, mlx-lm",
    formula="each filter acts on the distribution renormalised over the survivors so far; float64, −inf where removed",
    oracle=sampling.filtered_logprobs,
)
SAMPLE_TOKENS = Op(
    name="sample_tokens",
    outputs={"tokens": Output(kind="i", ndim=1), "logprobs": Output(kind="f", ndim=1)},
    inputs={**FILTER_INPUTS, "uniforms": "(B,) float64 in [0, 1)"},
    source="inverse transform sampling from the filtered distribution",
    formula="token = least k with C_k > u·C_V, C summed in float64 in id order",
)
PHILOX = Op(
    name="philox4x32_10",
    outputs={"words": Output(kind="i")},
    inputs={"counter": "(…, 4) uint32", "key": "(…, 2) uint32; leading axes broadcast"},
    source="Salmon et al., Parallel random numbers: as easy as 1, 2, 3, 2011; vectors of Random123",
    oracle=sampling.philox4x32_10,
)
DRAW_INPUTS = {
    "seed": "in [0, 2⁶⁴): the key, low word first",
    "round_": "integers in [0, 2³²), the counter's last word; these four broadcast",
    "prompt": "the prompt's stable data index",
    "sample": "the completion's index within its prompt",
    "token": "the token's index within its completion, the counter's first word",
}
UNIFORMS = Op(
    name="uniforms",
    outputs={"uniforms": Output(kind="f")},
    inputs=DRAW_INPUTS,
    source="keyed draws of the project's semantics",
    formula="counter = (t, j, i, round), key = seed: words 0 (high) and 1 give 53 bits in [0, 1)",
    oracle=sampling.uniforms,
)
XTC_COINS = replace(
    UNIFORMS,
    name="xtc_coins",
    formula="counter = (t, j, i, round), key = seed: words 2 (high) and 3 give 53 bits in [0, 1)",
    oracle=sampling.xtc_coins,
)
PACK_SEQUENCES = Op(
    name="pack_sequences",
    outputs={
        "indices": Output(kind="i", ndim=1),
        "offsets": Output(kind="i", ndim=1),
        "efficiency": Output(kind="scalar"),
    },
    inputs={
        "lengths": "(N,) int64 tokens of each sequence, at least 0",
        "max_length": "tokens of a bin, at least 1",
        "strategy": '"first-fit-decreasing" or "best-fit-decreasing"; ties by index, and the first of equally full bins',
        "over_long": 'a sequence longer than a bin: "error", or "truncate" to max_length',
    },
    source="D. S. Johnson, Near-optimal bin packing algorithms, 1973",
    formula="bin b is indices[offsets[b]:offsets[b+1]]; efficiency = tokens kept / (bins·max_length), 1.0 without bins",
    oracle=packing.pack_sequences,
)
KERNEL_BITS = Op(
    name="kernel_bits",
    outputs={"bits": Output(kind="i", ndim=2)},
    inputs={"kernel": "the name of another op", "inputs": "its inputs"},
    source="one body, many machines: scalar, AVX2, AVX-512 and NEON, any number of threads, the same bits",
    formula="`variants`, instruction set and threads; `bits` (variants, bytes), all outputs of each as they lie in memory",
)
POLICY_LOSS = Op(
    name="policy_loss",
    outputs={"loss": Output(kind="scalar"), "gradient": Output(like="policy")},
    inputs={
        "policy": "(B, T), or (N,) with lengths: float32 or float64 log-probs of the current policy",
        "mask": "(B, T) bool, true on completion tokens, the first EOS included; or None",
        **LOSS_INPUTS,
        **MORE_LOSS_INPUTS,
    },
    source="GRPO arXiv 2402.03300 · DAPO 2503.14476 · Dr. GRPO 2503.20783 · GSPO and GSPO-token 2507.18071 · RLOO "
    "2402.14740 · CISPO 2506.13585 · SAPO 2511.20347 · GMPO 2507.20673 · LUSPO 2602.05261",
    formula="l = −min(min(r, δ)·A, clip(r, 1−ε_low, 1+ε_high)·A) + β·KL, aggregated as the algorithm says",
    oracle=losses.policy_loss,
)
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
)
IMPORTANCE_WEIGHTS = Op(
    name="importance_weights",
    outputs={"weights": Output(kind="f")},
    inputs={
        "old": "(B, T), or (N,) with lengths: float32 or float64 log-probs of the trainer's behaviour policy",
        "sampling": "log-probs of the sampler, of the same shape and dtype; NaN where it recorded none: Δ = 0",
        "correction": '"tis" or "mis"',
        "level": '"token" or "seq_sum"',
        "c_min": "lower bound, or None for none",
        "c_max": "upper bound, above 0",
        **PAIR_INPUTS,
    },
    source="Yao et al. 2025, Your efficient RL framework secretly brings you off-policy RL training; TRL's sampling modes",
    formula="Δ = old − sampling: clamp(exp Δ, c_min, c_max), or exp Δ inside [c_min, c_max], ends included, else 0",
    oracle=ratio.importance_weights,
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
    source="ESS: Kong 1992; k3: Schulman 2020; the project's semantics",
    formula="over tokens, and with D summed over sequences: mean r, max and p99 |D|, mean k3(D), mean expm1(2D), "
    "(Σr)²/(nΣr²), mean exp|D|, shares of r outside the clip range, and of those that a clip stops",
    oracle=statistics.measured,
)
LOSS_FROM_LOGITS = Op(
    name="loss_from_logits",
    outputs={"loss": Output(kind="scalar"), "gradient": Output(like="logits"), "logprobs": Output(kind="f", ndim=2)},
    inputs={
        "logits": "(B, L, V) float32 of right-padded rows, prompt then completion",
        "ids": "(B, L) int32",
        "prompt_lengths": "(B,) int64",
        "lengths": "(B,) int64 completion tokens",
        "temperature": "of the scoring",
        **LOSS_INPUTS,
    },
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
    inputs={
        **MODEL_INPUTS,
        "prompts": 'a data recipe {"kind": "sums", "seed", "count", "style"}',
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
        "chat": "whether prompts go through the chat template",
        "record_logits": "whether logits (R, T, V) are returned too",
    },
    source="token equivalence and keyed draws of the project's semantics (Philox 4x32-10, Salmon et al. 2011)",
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
COMPLETION_LOGPROBS = Op(
    name="completion_logprobs",
    outputs={"logprobs": Output(kind="f", ndim=2)},
    inputs={
        **MODEL_INPUTS,
        **BATCH_INPUTS,
        "temperature": "of the scoring",
        "adapters_on": "false: the reference pass, adapters attached and switched off",
    },
    source="full forward; lp_t = x[id]/τ − logsumexp(x/τ)",
)
COMPLETION_ENTROPIES = Op(
    name="completion_entropies",
    outputs={"entropies": Output(kind="f", ndim=2)},
    inputs={**MODEL_INPUTS, **BATCH_INPUTS, "temperature": "of the scoring"},
    source="full forward; H_t = −Σ p log p of softmax(x/τ)",
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
TRAIN_STEP = Op(
    name="train_step",
    outputs={
        "loss": Output(kind="scalar"),
        "base_before": Output(kind="text"),
        "base_after": Output(kind="text"),
        "adapter_change": Output(kind="scalar"),
    },
    inputs={
        **MODEL_INPUTS,
        **BATCH_INPUTS,
        "temperature": "of the scoring",
        "checkpointing": "whether blocks are computed again in the backward pass; absent: no",
        "rewards": "(R,) float32, prompt-major",
        "group_size": "G",
        "learning_rate": "of Adam",
        "epsilon_low": "as in policy_loss",
        "epsilon_high": "as in policy_loss",
        "beta": "as in policy_loss",
    },
    source="one optimizer step of GRPO on LoRA adapters, arXiv 2106.09685",
)
