"""Mistakes in filters and draws."""

from gates.mutants.planting import in_family

in_family(
    "sampling",
    "sampling.order-of-the-other-library",
    "plan",
    "other_order",
    mistake="the filters run in the other library's order",
    arises="one sampler behind two names",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_family(
    "sampling",
    "sampling.temperature-after-the-filters",
    "plan",
    "temperature_last",
    mistake="transformers' filters see the untempered distribution",
    arises="temperature applied to what the filters left",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_family(
    "sampling",
    "sampling.top-p-exclusive",
    "top_p_length",
    "exclusive",
    mistake="the token whose mass reaches p is dropped",
    arises="cumulative mass ≤ p instead of the mass before it < p",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_family(
    "sampling",
    "sampling.top-k-off-by-one",
    "top_k_length",
    "one_more",
    mistake="k + 1 tokens stay",
    arises="an inclusive slice",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_family(
    "sampling",
    "sampling.top-k-keeps-the-tied",
    "top_k_length",
    "all_tied",
    mistake="every token as likely as the k-th stays",
    source="transformers TopKLogitsWarper: logits < the k-th largest are removed",
    caught_by=("sampling.filters.ties",),
)
in_family(
    "sampling",
    "sampling.top-p-keeps-the-tied",
    "top_p_length",
    "all_tied",
    mistake="every token as likely as the last one kept stays",
    source="mlx-lm apply_top_p keeps all tied tokens",
    caught_by=("sampling.filters.ties",),
)
in_family(
    "sampling",
    "sampling.min-p-of-the-whole",
    "min_p_length",
    "absolute_floor",
    mistake="a token stays if its probability is min_p, whatever the largest is",
    arises="min_p read as a floor of the probability",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_family(
    "sampling",
    "sampling.xtc-removes-the-least-likely",
    "xtc_skip",
    "all_above",
    mistake="the least likely token above the threshold goes too",
    arises="probs > threshold masked as a whole",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_family(
    "sampling",
    "sampling.xtc-inert",
    "xtc_skip",
    "nothing_above",
    mistake="no token is removed",
    arises="a threshold compared with log-probs",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_family(
    "sampling",
    "sampling.xtc-without-coin",
    "filtered_logprobs",
    "coin_ignored",
    mistake="XTC acts on every draw",
    arises="xtc_probability read as a switch",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_family(
    "sampling",
    "sampling.penalty-divides-always",
    "penalise",
    "divide_always",
    mistake="negative logits are divided, so earlier tokens become likelier",
    arises="the penalty written for positive logits",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_family(
    "sampling",
    "sampling.penalty-of-padding",
    "penalise",
    "padding_is_a_token",
    mistake="the −1 of the padding penalises the last token of the vocabulary",
    arises="history used as an index as it is",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_family(
    "sampling",
    "sampling.penalty-twice",
    "penalise",
    "penalty_twice",
    mistake="the penalty acts twice",
    arises="applied in the processor and again in the sampler",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_family(
    "sampling",
    "sampling.draw-reaches",
    "draw",
    "reaches",
    mistake="≥ instead of >: u = 0 picks token 0, which was filtered out",
    arises="searchsorted with its default side",
    caught_by=("sampling.draw.inverse-cdf",),
)
in_family(
    "sampling",
    "sampling.draw-float32-running-sum",
    "draw",
    "float32_running_sum",
    mistake="a float32 running sum ends at 0.99999 for 152k tokens",
    arises="cumsum of float32 probabilities on the device",
    caught_by=("sampling.draw.inverse-cdf",),
)
in_family(
    "sampling",
    "sampling.draw-by-likelihood",
    "draw",
    "by_likelihood",
    mistake="the intervals are laid out from likely to unlikely",
    arises="the draw taken from the rows that top-p had sorted",
    caught_by=("sampling.draw.inverse-cdf",),
)
in_family(
    "sampling",
    "sampling.recorded-unfiltered",
    "behaviour",
    "model_logprobs",
    mistake="the log-prob recorded is the model's, not that of the distribution drawn from",
    arises="one of three log-probs, under the name of another",
    caught_by=("sampling.draw.inverse-cdf",),
)
in_family(
    "sampling",
    "sampling.greedy-highest-id",
    "largest_token",
    "highest_id",
    mistake="the last of the tokens on the maximum is taken",
    arises="an arg-max that runs backwards, or ≥ in its loop",
    caught_by=("sampling.temperature-zero.lowest-id",),
)
