"""Mutations that let a gradient through a constant, or a prompt into a loss."""

from gates.families.hosts import in_numpy, in_trainer

in_numpy(
    "detach.old-keeps-its-graph",
    "loss:policy_loss",
    "loss.patches.edits:live_old",
    mistake="on-policy, old is the policy itself with its graph: every ratio is 1 and every gradient of it 0",
    arises="old = policy without a stop-gradient",
    theme="lost gradients",
    symptom="The loss has its usual value and the policy never moves: the reward curve is flat, the gradient norm 0 but for the KL.",
    caught_by=("loss.old-is-a-constant",),
)
in_trainer(
    "detach.prompt-enters-the-loss",
    "logprobs:completion_slots",
    "loss.patches.trainer:last_prompt_token_too",
    mistake="each completion token is scored by the logits of the position before the right one",
    arises="labels shifted by the model and by the trainer",
    theme="masks and shifts",
    symptom="Learning is slow and noisy: each token is credited for its neighbour, most visibly for the first one of a completion.",
    caught_by=("loss.prompt-does-not-matter",),
)
in_trainer(
    "detach.reference-keeps-its-graph",
    "algorithms.ratio:token_kl",
    "loss.patches.trainer:live_reference",
    mistake="the reference's log-probs keep their graph, so the KL pulls on the reference too",
    arises="a reference pass inside the loss, with weights that it shares with the policy",
    theme="KL",
    symptom="The KL has its usual value and falls more slowly, or not at all: half of its pull goes into the reference.",
    caught_by=("loss.constants-get-no-gradient",),
)
in_trainer(
    "detach.given-old-keeps-its-graph",
    "algorithms.ratio:token",
    "loss.patches.trainer:live_given_old",
    mistake="old log-probs that are given keep their graph",
    arises="old log-probs computed in the pass of the loss, and never detached",
    theme="lost gradients",
    symptom="The loss has its usual value; where old shares weights with the policy, its gradient cancels the policy's.",
    caught_by=("loss.constants-get-no-gradient",),
)
in_trainer(
    "detach.weights-keep-their-graph",
    "algorithms.corrections:weights",
    "loss.patches.trainer:live_weights",
    mistake="off-policy weights keep their graph, on-policy that of the policy itself",
    arises="weights from the log-probs of the loss's own forward pass where there are no old ones",
    theme="lost gradients",
    symptom="Nothing while the sampler agrees; with a mismatch tokens are pushed for their weight, not for their advantage, and reward is noisy.",
    caught_by=("loss.constants-get-no-gradient",),
)
