"""Mutations between a model's hidden states and the scores of its completions."""

from gates.families.hosts import in_trainer

in_trainer(
    "scoring.head-before-the-last-norm",
    "heads:hidden",
    "scoring.patches:without_last_norm",
    mistake="the head reads the last block's output without the final norm",
    arises="hidden_states[-1] of a library that applies the final norm later",
    source=(
        "awslabs/keys_values#139: head without the last norm; vllm-project/speculators#313: last norm missing "
        "before lm_head"
    ),
    theme="ratio and rollout",
    symptom="Log-probs are far too low and ratios wild in the scoring pass; the sampled text is fine.",
    caught_by=("scoring.log-probs.match-logits", "scoring.entropies.match-logits"),
)
in_trainer(
    "scoring.slots-in-the-wrong-order",
    "logprobs:in_table",
    "scoring.patches:column_by_column",
    mistake="scores are gathered row by row and scattered column by column",
    arises="a reshape of values gathered with a mask",
    theme="masks and shifts",
    symptom="The mean log-prob is right and reward is flat: tokens are credited with their neighbours' gradients.",
    caught_by=("scoring.log-probs.match-logits", "scoring.entropies.match-logits"),
)
in_trainer(
    "scoring.entropy-untempered",
    "logprobs:token_entropy",
    "scoring.patches:untempered_entropy",
    mistake="entropies are those at temperature 1, while log-probs use the configured temperature",
    arises="two calls, only one of them with the temperature",
    source="OpenRLHF/OpenRLHF#1319: entropy of the unscaled logits",
    theme="metrics",
    symptom=(
        "The entropy curve is that of another temperature: it looks healthy while the sampled distribution has "
        "collapsed."
    ),
    caught_by=("scoring.entropies.match-logits",),
)
in_trainer(
    "scoring.half-logits-not-upcast",
    "logprobs:_head_scores",
    "scoring.patches:without_upcast",
    mistake="the log-softmax of a bfloat16 model's logits is computed in bfloat16",
    arises="log_softmax(logits), tested with a float32 model only",
    source=(
        "huggingface/trl#7084: selective log-softmax skips float32 upcast; genlm/genlm-backend#66: log-softmax in the "
        "logits' half precision"
    ),
    theme="precision",
    symptom=(
        "With a model in half precision the ratio of a fresh batch scatters by some percent; float32 models are fine."
    ),
    caught_by=("scoring.half-logits.upcast",),
)
