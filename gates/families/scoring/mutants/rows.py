"""Mutations that let rows of a batch see each other."""

from __future__ import annotations

from gates.families.hosts import in_trainer

in_trainer(
    "agreement.one-prompt-length",
    "logprobs:scored",
    "scoring.patches:shared_prompt_length",
    mistake="completions are looked for where the shortest prompt of the batch ends",
    arises="logits[:, prompt_length - 1 : -1] with one number for the batch",
    theme="masks and shifts",
    symptom="Nothing while prompts have one length; with ragged prompts the ratio of fresh samples scatters and learning is slow.",
    caught_by=("scoring.rows-do-not-see-each-other",),
)
