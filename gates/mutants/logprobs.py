"""Mistakes in log-probs, entropies and their gradients."""

from gates.mutants.planting import in_family

in_family(
    "logprobs",
    "logprobs.temperature-forgotten",
    "tempered",
    "untempered",
    mistake="the logits are not divided by the temperature",
    arises="scoring at τ = 1 what was sampled at another τ, without saying so",
    caught_by=("logprobs.selective.matches-definition", "logprobs.entropy.matches-definition"),
)
in_family(
    "logprobs",
    "logprobs.mean-instead-of-maximum",
    "row_offset",
    "mean_offset",
    mistake="the mean is subtracted, so a peak of 1,000 overflows",
    arises="centring logits, as for a temperature fit",
    caught_by=("logprobs.selective.matches-definition",),
)
in_family(
    "logprobs",
    "logprobs.nothing-subtracted",
    "row_offset",
    "no_offset",
    mistake="nothing is subtracted, so logits of 10,000 overflow",
    arises="log(sum(exp(x))) as the formula is written",
    caught_by=("logprobs.selective.matches-definition",),
)
in_family(
    "logprobs",
    "logprobs.float32-running-sum",
    "log_sum_exp",
    "float32_running_sum",
    mistake="151,936 exponentials are added one after the other in float32",
    source="MLX 0.32 logsumexp on Linux CPU: off by 1.5e-5 to 2.3e-4 nats",
    caught_by=("logprobs.selective.matches-definition",),
)
in_family(
    "logprobs",
    "logprobs.half-precision-sum",
    "log_sum_exp",
    "half_sum",
    mistake="exponentials are rounded to float16 before they are summed",
    arises="log_softmax of logits in the dtype they came in",
    caught_by=("logprobs.selective.matches-definition",),
)
in_family(
    "logprobs",
    "logprobs.entropy-untempered",
    "entropy_of",
    "untempered_entropy",
    mistake="the entropy is that of temperature 1 beside log-probs of another",
    arises="two calls, one of which was given the temperature",
    caught_by=("logprobs.entropy.matches-definition",),
)
in_family(
    "logprobs",
    "logprobs.entropy-nan",
    "entropy_of",
    "nan_entropy",
    mistake="0 · log 0 is NaN where a token cannot be drawn",
    arises="−(p · log p).sum() over masked logits",
    caught_by=("logprobs.entropy.matches-definition",),
)
in_family(
    "logprobs",
    "logprobs.entropy-in-bits",
    "entropy_of",
    "bits",
    mistake="the entropy is in bits",
    arises="log2, as in information theory",
    caught_by=("logprobs.entropy.matches-definition",),
)
in_family(
    "logprobs",
    "logprobs.backward-without-temperature",
    "selective_log_softmax_backward",
    "temperature_forgotten",
    mistake="the 1/τ of the chain rule is left out",
    arises="a backward written for τ = 1",
    caught_by=("logprobs.backward.matches-definition",),
)
in_family(
    "logprobs",
    "logprobs.backward-sign",
    "chosen_slope",
    "wrong_sign",
    mistake="the gradient is that of −lp",
    arises="a backward copied from cross-entropy",
    caught_by=("logprobs.backward.matches-definition",),
)
in_family(
    "logprobs",
    "logprobs.backward-without-softmax",
    "chosen_slope",
    "no_softmax",
    mistake="the normaliser is held constant",
    arises="a stop-gradient round logsumexp",
    caught_by=("logprobs.backward.matches-definition",),
)
in_family(
    "logprobs",
    "logprobs.backward-entropy-ignored",
    "entropy_slope",
    "entropy_ignored",
    mistake="nothing flows back through the entropy",
    arises="an entropy computed under no_grad",
    caught_by=("logprobs.backward.matches-definition",),
)
in_family(
    "logprobs",
    "logprobs.backward-entropy-without-mean",
    "entropy_slope",
    "entropy_without_mean",
    mistake="the entropy's gradient is −p (log p + 1)",
    arises="the derivative of p log p, without that of the normaliser",
    caught_by=("logprobs.backward.matches-definition",),
)
