"""Mutations that let rows of a batch see each other."""

from __future__ import annotations

from gates.families.hosts import in_trainer

in_trainer(
    "agreement.one-prompt-length",
    "logprobs:scored",
    "scoring.patches:shared_prompt_length",
    mistake="completions are read from the end of the batch's shortest prompt",
    arises="logits[:, prompt_length - 1 : -1] with one number for the batch",
    theme="masks and shifts",
    symptom=(
        "No effect while prompts have one length; with ragged prompts the ratio of fresh samples scatters and "
        "learning is slow."
    ),
    caught_by=("scoring.rows-do-not-see-each-other",),
)
