"""Mutations of the KL estimators."""

from gates.families.hosts import in_numpy

in_numpy(
    "kl.k1-swapped",
    "kl:token_kl",
    "kl.patches:swapped_arguments",
    mistake="policy and reference are swapped in the call, which changes the sign of k1",
    arises="the argument orders (policy, reference) and (reference, policy) of different libraries",
    theme="KL",
    symptom="The reported KL is negative and falls while the policy drifts; as a penalty it rewards the drift.",
    caught_by=("kl.k1.matches-definition", "kl.k3.matches-definition"),
)
in_numpy(
    "kl.k2-without-half",
    "kl:token_kl",
    "kl.patches:without_half",
    mistake="k2 is d² instead of d²/2",
    arises="log-ratio squared, without Schulman's half",
    theme="KL",
    symptom="The reported KL is twice as large; the policy stays closer to the reference than beta says.",
    caught_by=("kl.k2.matches-definition",),
)
in_numpy(
    "kl.k3-inverted",
    "terms:k3",
    "kl.patches:inverted",
    mistake="k3 of −d: the ratio is policy/reference instead of reference/policy",
    source=(
        "rlox 1.2 compute_token_kl_schulman: 1.0461 against 1.2310; walkinglabs/hands-on-modern-rl#27: k3 with "
        "the ratio inverted"
    ),
    theme="KL",
    symptom="The reported KL is about right while it is small; tokens that became much rarer cost almost nothing.",
    caught_by=("kl.k3.matches-definition",),
)
in_numpy(
    "kl.k3-expm1-minus-d",
    "terms:k3",
    "kl.patches:expm1_minus_d",
    mistake="expm1(d) − d cancels: 386 ulp off at d = 1e-2 in float32, 0 at 1e-8",
    arises="the obvious way to write exp(d) − d − 1 with expm1",
    source="unslothai/unsloth-zoo#1240: proposes expm1(d) − d for k3",
    theme="precision",
    symptom=("The KL is exactly 0 in the first steps and jumps later; the penalty has no effect near the reference."),
    caught_by=("kl.k3.matches-definition",),
)
in_numpy(
    "kl.clamp-one-sided",
    "kl:token_kl",
    "kl.patches:clamped_below",
    mistake="the clamp bounds the estimate from below only: a token with a huge k3 counts in full",
    arises="max(x, -c) instead of clamp(x, -c, c)",
    theme="KL",
    symptom="Spikes of the KL, and of the gradient with it, at single tokens that the reference finds likely.",
    caught_by=("kl.k3.matches-definition",),
)
in_numpy(
    "kl.ratio-level-swapped",
    "kl:token_kl",
    "kl.patches:swapped_levels",
    mistake="token and sequence ratios are exchanged in the weight of the KL",
    arises="a default that follows the loss's level in only one of two places",
    theme="KL",
    symptom="Only in off-policy steps: the KL pulls differently on long completions; on-policy curves are the same.",
    caught_by=("kl.ratio.matches-definition",),
)
in_numpy(
    "kl.ratio-inverted",
    "kl:token_kl",
    "kl.patches:inverted_ratio",
    mistake="the weight is exp(old − policy)",
    arises="the argument orders (policy, old) and (old, policy)",
    theme="KL",
    symptom=(
        "Only in off-policy steps: tokens that became rarer weigh more, so that the KL penalty grows with staleness."
    ),
    caught_by=("kl.ratio.matches-definition",),
)
in_numpy(
    "kl.ratio-ignored",
    "kl:token_kl",
    "kl.patches:no_ratio",
    mistake="the estimate ignores `old` and treats all tokens as on-policy",
    arises="kl_ratio read but not passed on",
    theme="KL",
    symptom="No effect on-policy; with several updates per rollout the KL lags behind the current policy.",
    caught_by=("kl.ratio.matches-definition",),
)
in_numpy(
    "kl.ratio-mean-over-padding",
    "kl:token_kl",
    "kl.patches:padded_mean",
    mistake="the mean log-ratio of a sequence divides by the padded width",
    arises="mean over the axis instead of over the mask",
    source="d2l-ai/d2l-en#2076: masked values, mean over the axis",
    theme="normalisation",
    symptom="The same completion gets another KL weight in a batch with a longer completion.",
    caught_by=("kl.ratio.matches-definition",),
)
in_numpy(
    "kl.full-reversed",
    "logprobs:full_kl",
    "kl.patches:reversed_arguments",
    mistake="KL(reference ‖ policy) instead of KL(policy ‖ reference)",
    arises="torch's kl_div(input, target), whose target comes second",
    source=(
        "paiml/aprender#2153: reverse KL where forward is meant; pytorch/pytorch#57459: kl_div's target comes second"
    ),
    theme="KL",
    symptom=("The policy covers modes that it should drop, or drops modes that it should cover."),
    caught_by=("kl.full.matches-definition",),
)
in_numpy(
    "kl.full-unweighted",
    "logprobs:row_divergence",
    "kl.patches:unweighted",
    mistake="log p − log q is averaged uniformly over the vocabulary instead of under p",
    arises="kl_div with reduction='mean'",
    theme="KL",
    symptom="The KL is dominated by implausible tokens; it is large from the start and hardly moves with training.",
    caught_by=("kl.full.matches-definition",),
)
in_numpy(
    "kl.full-float32-running-sum",
    "logprobs:row_divergence",
    "kl.patches:float32_divergence",
    mistake="terms of both signs are summed sequentially in float32",
    arises="a loop over the vocabulary in the logits' dtype",
    theme="precision",
    symptom="No curve shows it: the KL of two similar models is noise of 1e-5, sometimes negative.",
    caught_by=("kl.full.matches-definition",),
)
