"""Mutations of micro-batches."""

from __future__ import annotations

from gates.families.hosts import in_trainer

in_trainer(
    "loss.denominators-of-parts",
    "algorithms.objective:row_weights",
    "trainer.patches.micro_batches:denominators_of_parts",
    mistake="each micro-batch divides by its own rows and tokens, and the micro-batches are averaged",
    arises="loss.mean() / accumulation_steps",
    source=(
        "ml-explore/mlx-lm#1413: mean of micro-batch means; PrimeIntellect-ai/prime-rl#583: normalised per "
        "micro-batch, not batch"
    ),
    theme="normalisation",
    symptom=(
        "Loss and gradient change with the micro-batch size at the same batch; tokens of short completions weigh more."
    ),
    caught_by=("trainer.micro-batches.add-up",),
)
in_trainer(
    "loss.token-means-of-parts",
    "algorithms.objective:row_weights",
    "trainer.patches.micro_batches:token_means_of_parts",
    mistake="every aggregation is computed as the token mean of the micro-batch",
    arises="masked_mean in the loss of every algorithm",
    source=(
        "verl-project/verl#5625: micro-batch token means, sample weights; verl-project/verl#906: token mean "
        "weighted as sequence mean"
    ),
    theme="normalisation",
    symptom="Every algorithm gives the same curve, which depends on the micro-batch size.",
    caught_by=("trainer.micro-batches.add-up", "loss.grpo.matches-definition"),
)
