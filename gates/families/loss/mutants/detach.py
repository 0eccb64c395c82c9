"""Mutations that let a gradient through a constant, or a prompt into a loss."""

from gates.families.hosts import in_numpy, in_trainer

in_numpy(
    "detach.old-keeps-its-graph",
    "loss:policy_loss",
    "loss.patches.edits:live_old",
    mistake="on-policy, old is the policy without a stop-gradient: every ratio is 1 and has gradient 0",
    arises="old = policy without a stop-gradient",
    theme="lost gradients",
    symptom=(
        "The loss has its usual value, but the policy never moves: the reward curve is flat, and only the KL has a "
        "gradient."
    ),
    caught_by=("loss.old-is-a-constant",),
)
in_trainer(
    "detach.prompt-enters-the-loss",
    "logprobs:completion_slots",
    "loss.patches.trainer:last_prompt_token_too",
    mistake="each completion token is scored with logits one position too early",
    arises="labels shifted by both the model and the trainer",
    theme="masks and shifts",
    symptom=(
        "Learning is slow and noisy: each token gets the credit of its neighbour, most visibly the first one of a "
        "completion."
    ),
    caught_by=("loss.prompt-does-not-matter",),
)
in_trainer(
    "detach.reference-keeps-its-graph",
    "algorithms.ratio:token_kl",
    "loss.patches.trainer:live_reference",
    mistake="the reference's log-probs keep their gradient, so that the KL trains the reference too",
    arises="a reference pass inside the loss, with weights shared with the policy",
    theme="KL",
    symptom=(
        "The KL has its usual value but falls more slowly or not at all, because part of its gradient moves the "
        "reference."
    ),
    caught_by=("loss.constants-get-no-gradient",),
)
in_trainer(
    "detach.given-old-keeps-its-graph",
    "algorithms.ratio:token",
    "loss.patches.trainer:live_given_old",
    mistake="recorded old log-probs keep their gradient",
    arises="old log-probs computed in the forward pass of the loss and never detached",
    theme="lost gradients",
    symptom=(
        "The loss has its usual value; if the old log-probs share weights with the policy, their gradient cancels the "
        "policy's."
    ),
    caught_by=("loss.constants-get-no-gradient",),
)
in_trainer(
    "detach.weights-keep-their-graph",
    "algorithms.corrections:weights",
    "loss.patches.trainer:live_weights",
    mistake="off-policy weights keep their gradient",
    arises="weights computed from the loss's own forward pass when no old log-probs exist",
    theme="lost gradients",
    symptom=(
        "No effect while the sampler agrees; with a mismatch tokens are trained for their weight instead of their "
        "advantage, and reward is noisy."
    ),
    caught_by=("loss.constants-get-no-gradient",),
)
