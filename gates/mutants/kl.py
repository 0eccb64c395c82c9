"""Mistakes in the KL estimators."""

from gates.mutants.planting import in_numpy

in_numpy(
    "kl.k1-swapped",
    "token_kl",
    "swapped_arguments",
    mistake="policy and reference are swapped in the call: the sign of k1 turns",
    arises="argument order (policy, reference) against (reference, policy) between libraries",
    caught_by=("kl.k1.matches-definition", "kl.k3.matches-definition"),
)
in_numpy(
    "kl.k2-without-half",
    "token_kl",
    "without_half",
    mistake="k2 is d² instead of d²/2",
    arises="log-ratio squared, without Schulman's half",
    caught_by=("kl.k2.matches-definition",),
)
in_numpy(
    "kl.k3-inverted",
    "numpy_terms:k3",
    "inverted",
    mistake="k3 of −d: the ratio is policy/reference where reference/policy is right",
    source="rlox 1.2 compute_token_kl_schulman: 1.0461 against 1.2310",
    caught_by=("kl.k3.matches-definition",),
)
in_numpy(
    "kl.k3-expm1-minus-d",
    "numpy_terms:k3",
    "expm1_minus_d",
    mistake="expm1(d) − d cancels: 386 ulp off at d = 1e-2 in float32, 0 at 1e-8",
    arises="the obvious way to write exp(d) − d − 1 with expm1",
    caught_by=("kl.k3.matches-definition",),
)
