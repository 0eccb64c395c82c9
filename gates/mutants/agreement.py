"""Mistakes that part sampling from scoring, or tie rows to their batch."""

from gates.mutants.planting import in_trainer

in_trainer(
    "agreement.scored-at-one",
    "logprobs:token_logprobs",
    "agreement:untempered",
    mistake="tokens are drawn at a temperature and scored at 1",
    arises="log_softmax(logits) in the trainer, logits / temperature in the sampler",
    theme="ratio and rollout",
    symptom="The ratio of fresh samples is not 1 from the first step, and clip fractions are high whatever the learning rate.",
    caught_by=("ratio.sampler-and-scorer-agree",),
)
in_trainer(
    "agreement.one-prompt-length",
    "logprobs:scored",
    "agreement:shared_prompt_length",
    mistake="completions are looked for where the shortest prompt of the batch ends",
    arises="logits[:, prompt_length - 1 : -1] with one number for the batch",
    theme="masks and shifts",
    symptom="Nothing while prompts have one length; with ragged prompts the ratio of fresh samples scatters and learning is slow.",
    caught_by=("scoring.rows-do-not-see-each-other",),
)
