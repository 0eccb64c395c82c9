"""Mutations between logits and loss."""

from gates.families.hosts import in_trainer

in_trainer(
    "gradient.mask-shifted-by-one",
    "logprobs:completion_slots",
    "loss.patches.trainer:shifted_by_one",
    mistake="`[:, :-1]` where `[:, 1:]` is right: each token is scored with logits that have already seen it",
    arises="the classic shift of labels against logits",
    source="lucidrains/PaLM-rlhf-pytorch#31: action logits shifted wrongly",
    theme="masks and shifts",
    symptom=(
        "Log-probs are strangely high and the loss moves, but reward stays flat: the gradient teaches copying "
        "the input."
    ),
    caught_by=("loss.prompt-gets-no-gradient",),
)
