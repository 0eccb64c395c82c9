"""Mutations of log-probs, entropies and their gradients."""

from gates.families.hosts import in_numpy

in_numpy(
    "logprobs.temperature-forgotten",
    "logprobs:selective_log_softmax",
    "logprobs.patches:untempered",
    mistake="the logits are not divided by the temperature",
    arises="samples drawn at another temperature silently scored at τ = 1",
    source=(
        "databricks/compose-rl#105: log-probs scored without the temperature; radixark/miles#1345: scoring path "
        "hardcodes another temperature"
    ),
    theme="ratio and rollout",
    symptom=(
        "With a temperature of 0.7 the ratio of a fresh batch is far from 1, and tokens are clipped from the first "
        "step."
    ),
    caught_by=("logprobs.selective.matches-definition", "logprobs.entropy.matches-definition"),
)
in_numpy(
    "logprobs.mean-instead-of-maximum",
    "logprobs:row_offset",
    "logprobs.patches:mean_offset",
    mistake="the mean is subtracted instead of the maximum, so that a peak of 1,000 overflows",
    arises="centring logits, as for a temperature fit",
    theme="precision",
    symptom=(
        "A NaN loss on one step, when a logit exceeds the others by some hundreds; the run stops or skips the step."
    ),
    caught_by=("logprobs.selective.matches-definition",),
)
in_numpy(
    "logprobs.nothing-subtracted",
    "logprobs:row_offset",
    "logprobs.patches:no_offset",
    mistake="the maximum is not subtracted, so that logits of 10,000 overflow",
    arises="log(sum(exp(x))) implemented literally",
    theme="precision",
    symptom="A NaN loss as soon as logits are large; small models train for a long time before it occurs.",
    caught_by=("logprobs.selective.matches-definition",),
)
in_numpy(
    "logprobs.float32-running-sum",
    "logprobs:log_sum_exp",
    "logprobs.patches:float32_running_sum",
    mistake="151,936 exponentials are summed sequentially in float32",
    source="MLX 0.32 logsumexp on Linux CPU: off by 1.5e-5 to 2.3e-4 nats",
    theme="precision",
    symptom="No curve shows it: every log-prob is off by 1e-5 to 2e-4, and the ratio of a fresh batch is not 1.",
    caught_by=("logprobs.selective.matches-definition",),
)
in_numpy(
    "logprobs.half-precision-sum",
    "logprobs:log_sum_exp",
    "logprobs.patches:half_sum",
    mistake="exponentials are rounded to float16 before they are summed",
    arises="log_softmax in the dtype of the logits",
    source=(
        "genlm/genlm-backend#66: log-softmax in the logits' half precision; huggingface/trl#7084: selective "
        "log-softmax skips float32 upcast"
    ),
    theme="precision",
    symptom="The ratio of a fresh batch scatters by some percent; the clip fraction is above 0 on the first update.",
    caught_by=("logprobs.selective.matches-definition",),
)
in_numpy(
    "logprobs.entropy-untempered",
    "logprobs:selective_log_softmax",
    "logprobs.patches:untempered_entropy",
    mistake="the entropy is that at temperature 1, while log-probs use the configured temperature",
    arises="two calls, only one of them with the temperature",
    source="OpenRLHF/OpenRLHF#1319: entropy of the unscaled logits",
    theme="metrics",
    symptom=(
        "The entropy curve is that of another temperature: it looks healthy while the sampled distribution has "
        "collapsed."
    ),
    caught_by=("logprobs.entropy.matches-definition",),
)
in_numpy(
    "logprobs.entropy-nan",
    "logprobs:entropy_of",
    "logprobs.patches:nan_entropy",
    mistake="0 · log 0 is NaN for tokens of probability 0",
    arises="−(p · log p).sum() over masked logits",
    source=(
        "huggingface/trl#7264: entropy is NaN at zero probability; NovaSky-AI/SkyRL#2259: 0 times -inf in the entropy"
    ),
    theme="precision",
    symptom="The entropy curve is NaN once a filter or a mask is on; with an entropy bonus the loss is NaN too.",
    caught_by=("logprobs.entropy.matches-definition",),
)
in_numpy(
    "logprobs.entropy-in-bits",
    "logprobs:selective_log_softmax",
    "logprobs.patches:bits",
    mistake="the entropy is in bits instead of nats",
    arises="log2, as in information theory",
    theme="metrics",
    symptom="The entropy curve is 1.44 times higher: two frameworks cannot be compared.",
    caught_by=("logprobs.entropy.matches-definition",),
)
in_numpy(
    "logprobs.backward-without-temperature",
    "logprobs:selective_log_softmax_backward",
    "logprobs.patches:temperature_forgotten",
    mistake="the factor 1/τ of the chain rule is missing",
    arises="a backward pass written for τ = 1",
    theme="lost gradients",
    symptom=(
        "The gradient is too small at high temperatures and too large at low ones; it looks like a badly tuned "
        "learning rate."
    ),
    caught_by=("logprobs.backward.matches-definition",),
)
in_numpy(
    "logprobs.backward-sign",
    "logprobs:chosen_slope",
    "logprobs.patches:wrong_sign",
    mistake="the gradient has the wrong sign: that of −log p",
    arises="a backward pass copied from cross-entropy",
    theme="lost gradients",
    symptom="Reward falls from the first step: good completions become rarer.",
    caught_by=("logprobs.backward.matches-definition",),
)
in_numpy(
    "logprobs.backward-without-softmax",
    "logprobs:selective_log_softmax_backward",
    "logprobs.patches:no_softmax",
    mistake="the softmax normaliser is treated as a constant",
    arises="a stop-gradient around logsumexp",
    theme="lost gradients",
    symptom="Logits grow without bound and the loss seems to improve; entropy does not follow.",
    caught_by=("logprobs.backward.matches-definition",),
)
in_numpy(
    "logprobs.backward-entropy-ignored",
    "logprobs:selective_log_softmax_backward",
    "logprobs.patches:entropy_ignored",
    mistake="the entropy has no gradient",
    arises="an entropy computed under no_grad",
    theme="lost gradients",
    symptom="The entropy coefficient has no effect: entropy collapses as if the bonus were 0.",
    caught_by=("logprobs.backward.matches-definition",),
)
in_numpy(
    "logprobs.backward-entropy-without-mean",
    "logprobs:entropy_slope",
    "logprobs.patches:entropy_without_mean",
    mistake="the entropy's gradient is −p (log p + 1)",
    arises="the derivative of p log p without that of the normaliser",
    theme="lost gradients",
    symptom="The entropy bonus shifts all logits together; its effect on entropy is weaker than its coefficient says.",
    caught_by=("logprobs.backward.matches-definition",),
)
in_numpy(
    "logprobs.temperature-after-the-softmax",
    "logprobs:selective_log_softmax",
    "logprobs.patches:divided_afterwards",
    mistake="the log-probs are divided by the temperature instead of the logits",
    arises="log-probs at temperature 1 from an engine, scaled as if they were logits",
    source=(
        "PrimeIntellect-ai/prime-rl#697: log-probs scaled, not logits; MoonshotAI/Kimi-Audio#161: temperature after log-softmax"
    ),
    theme="ratio and rollout",
    symptom=(
        "With a temperature below 1 all log-probs are too low, and the ratio between trainer and sampler is far from 1."
    ),
    caught_by=("logprobs.selective.matches-definition",),
)
in_numpy(
    "logprobs.ignore-index-scored",
    "logprobs:counted",
    "logprobs.patches:every_id",
    mistake="an id of −100 is scored: it indexes from the end of the vocabulary",
    arises="gathering with labels made for cross_entropy, which ignores −100",
    theme="masks and shifts",
    symptom="Prompt and padding train the policy towards the vocabulary's 100th token from the end, without an error.",
    caught_by=(
        "logprobs.selective.matches-definition",
        "logprobs.entropy.matches-definition",
        "logprobs.backward.matches-definition",
    ),
)
in_numpy(
    "logprobs.only-the-first-id",
    "logprobs:counted",
    "logprobs.patches:first_id",
    mistake="of several ids at a position only the first is scored",
    arises="index.unsqueeze(-1) on an index that already has its last dimension, then squeeze",
    theme="lost gradients",
    symptom=(
        "Top-k distillation and speculative checks see one token per position; the other log-probs are 0, a "
        "probability of 1."
    ),
    caught_by=("logprobs.selective.matches-definition", "logprobs.backward.matches-definition"),
)
for _name, _target, _gate in (
    ("logprobs.time-first", "selective_log_softmax", "logprobs.selective.matches-definition"),
    ("logprobs.backward-time-first", "selective_log_softmax_backward", "logprobs.backward.matches-definition"),
    ("kl.full-time-first", "full_kl", "kl.full.matches-definition"),
):
    in_numpy(
        _name,
        f"logprobs:{_target}",
        "logprobs.patches:time_first",
        mistake="values of token t in row b are returned for another token: the batch is read as (T, B, V)",
        arises="a kernel or layer with time first, and a view instead of a transpose",
        theme="masks and shifts",
        symptom="No effect with one row, or with as many tokens as rows; otherwise rewards train the wrong tokens.",
        caught_by=(_gate,),
    )
