"""Mistakes that let a gradient through a constant, or a prompt into a loss."""

from gates.mutants.planting import in_numpy, in_trainer

in_numpy(
    "detach.old-keeps-its-graph",
    "numpy_loss:policy_loss",
    "detach:live_old",
    mistake="on-policy, old is the policy itself with its graph: every ratio is 1 and every gradient of it 0",
    arises="old = policy without a stop-gradient",
    theme="lost gradients",
    symptom="The loss has its usual value and the policy never moves: the reward curve is flat, the gradient norm 0 but for the KL.",
    caught_by=("loss.old-is-a-constant",),
)
in_trainer(
    "detach.prompt-enters-the-loss",
    "logprobs:completion_slots",
    "detach:last_prompt_token_too",
    mistake="each completion token is scored by the logits of the position before the right one",
    arises="labels shifted by the model and by the trainer",
    theme="masks and shifts",
    symptom="Learning is slow and noisy: each token is credited for its neighbour, most visibly for the first one of a completion.",
    caught_by=("loss.prompt-does-not-matter",),
)
