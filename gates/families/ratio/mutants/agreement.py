"""Mutations that make sampling and scoring disagree."""

from __future__ import annotations

from gates.families.hosts import in_trainer

in_trainer(
    "agreement.scored-at-one",
    "logprobs:token_logprobs",
    "ratio.trainer_patches:untempered",
    mistake="tokens are drawn at the configured temperature and scored at temperature 1",
    arises="log_softmax(logits) in the trainer, logits / temperature in the sampler",
    theme="ratio and rollout",
    symptom=(
        "The ratio of fresh samples differs from 1 from the first step, and clip fractions are high for every "
        "learning rate."
    ),
    caught_by=("ratio.sampler-and-scorer-agree",),
)
