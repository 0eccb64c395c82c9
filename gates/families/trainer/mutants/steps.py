"""Mutations of whole updates, between functions that are right by themselves."""

from __future__ import annotations

from functools import partial

from gates.families.hosts import in_trainer

PATCHES = "trainer.patches.steps"
STEP = "trainer.step"

of_definition = partial(in_trainer, caught_by=("trainer.step.matches-definition",))

in_trainer(
    f"{STEP}.shifted-rows",
    "engine.micro_batches:_packed",
    f"{PATCHES}:shifted_rows",
    mistake="the scored tokens begin one before the completion: the prompt's last token trains, the closing token does not",
    arises="labels that are shifted in the collator and again in the loss",
    theme="masks and shifts",
    symptom="Completions stop ending; no curve shows why.",
    caught_by=("trainer.step.rows", "trainer.step.matches-definition"),
)
of_definition(
    f"{STEP}.old-of-each-update",
    "engine.step:Engine._scored",
    f"{PATCHES}:old_of_each_update",
    mistake="old log-probs are those of the policy in every update, so that each ratio is 1",
    arises="per_token_logps.detach() as the old log-probs where a rollout gets several updates",
    source="huggingface/trl#2769: ratio is always 1 without the old policy",
    theme="ratio and rollout",
    symptom="The clip never acts and its fraction is 0.",
)
of_definition(
    f"{STEP}.reference-of-the-policy",
    "engine.step:Engine._scored",
    f"{PATCHES}:reference_of_the_policy",
    mistake="the reference is the policy itself, so that the KL and its gradient are 0",
    arises="adapters that stay on in the pass of the reference",
    theme="KL",
    symptom="The KL is 0 and the policy drifts as with β = 0.",
)
in_trainer(
    f"{STEP}.advantages-of-other-rows",
    "engine.step:Engine._advantages",
    f"{PATCHES}:advantages_of_other_rows",
    mistake="each row has the advantage of its neighbour",
    arises="a batch that is shuffled after its rewards were computed",
    theme="advantages",
    symptom="The reward stays where it was, or falls.",
    caught_by=("trainer.step.matches-definition", "trainer.step.rows"),
)
in_trainer(
    f"{STEP}.decay-by-default",
    "engine.optimizer:make",
    f"{PATCHES}:decay_by_default",
    mistake="the optimizer decays weights although the configuration has no decay",
    arises="the default of AdamW, 0.01, where the configuration's 0 is dropped as false",
    theme="configuration",
    symptom="Adapters shrink slowly; the loss hides it.",
    caught_by=("trainer.step.optimizer",),
)
in_trainer(
    f"{STEP}.norm-after-the-clip",
    "engine.step:Engine._update",
    f"{PATCHES}:norm_after_the_clip",
    mistake="the norm of the gradient is reported after it was clipped",
    arises="the norm is measured once more for the log",
    theme="metrics",
    symptom="The curve of the norm is flat at the limit.",
    caught_by=("trainer.step.metrics",),
)
in_trainer(
    f"{STEP}.width-not-in-force",
    "algorithms.registry:create",
    f"{PATCHES}:width_not_in_force",
    mistake="the lower clip width of the configuration is dropped, and the default holds",
    arises="a key that was renamed between two versions",
    theme="configuration",
    symptom="Another clip width changes nothing.",
    caught_by=("trainer.config.in-force",),
)
