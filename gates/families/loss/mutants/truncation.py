"""Mutations of the mask of truncated completions."""

from gates.families.hosts import in_trainer

GATE = ("loss.truncated-completions.are-masked",)

in_trainer(
    "truncation.tokens-stay-in-denominators",
    "engine.micro_batches:cut",
    "loss.patches.truncation:tokens_stay",
    mistake="tokens of truncated completions leave the loss but stay in its denominators",
    arises="tokens counted at generation and masked afterwards",
    source="huggingface/trl#6369: denominator counts masked truncated tokens",
    theme="normalisation",
    symptom=(
        "The gradient norm falls as more completions are truncated; it looks like a smaller learning rate early in a "
        "run."
    ),
    caught_by=GATE,
)
in_trainer(
    "truncation.rows-leave-the-batch",
    "engine.micro_batches:cut",
    "loss.patches.truncation:rows_leave",
    mistake="truncated completions are not counted among the rows of the batch",
    arises="the batch is filtered instead of masked",
    theme="normalisation",
    symptom="A batch with few complete answers moves the policy as much as a full one: early steps are noisy.",
    caught_by=GATE,
)
in_trainer(
    "truncation.by-length",
    "engine.micro_batches:without_truncated",
    "loss.patches.truncation:by_length",
    mistake="a completion that ends exactly at the limit counts as truncated",
    arises="length == max_tokens for `has no end token`",
    theme="masks and shifts",
    symptom="Few runs show it; with a tight limit, answers that just fit are never learned.",
    caught_by=GATE,
)
in_trainer(
    "truncation.accepted-and-ignored",
    "engine.micro_batches:without_truncated",
    "loss.patches.truncation:ignored",
    mistake="truncated completions stay in the loss",
    arises="an option read by the collator but not for the trainer's own batches",
    theme="configuration",
    symptom="Long answers are punished for being truncated: completions and their reasoning get shorter.",
    caught_by=GATE,
)
