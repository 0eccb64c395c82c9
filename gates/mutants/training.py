"""Mistakes of whole training runs."""

from gates.mutants.planting import in_trainer

in_trainer(
    "training.optimizer-not-restored",
    "checkpoint.state:load",
    "training:forget_the_optimizer",
    mistake="a resumed run starts with fresh moment estimates",
    arises="saving the adapters and calling that a checkpoint",
    caught_by=("trainer.resume.bit-exact",),
)
in_trainer(
    "training.round-not-restored",
    "checkpoint.state:load",
    "training:forget_the_round",
    mistake="a resumed run draws the first rollouts' uniforms again",
    arises="seeding the generator at start-up and not saving how far it has come",
    caught_by=("trainer.resume.bit-exact",),
)
in_trainer(
    "training.data-position-not-restored",
    "checkpoint.state:load",
    "training:forget_the_data",
    mistake="a resumed run starts its data again, so the first prompts are trained on twice",
    arises="a data loader without state",
    caught_by=("trainer.resume.bit-exact",),
)
in_trainer(
    "training.encoded-again",
    "engine_parts:_packed",
    "training:encode_again",
    mistake="completions are decoded, and encoded again for the loss",
    arises="a rollout that returns text and a trainer that tokenises it",
    caught_by=("trainer.trains-on-sampled-ids",),
)
in_trainer(
    "training.old-taken-anew",
    "engine:Engine._scored",
    "training:old_taken_anew",
    mistake="old = stop_gradient(new) at every pass: with several passes over a rollout the ratio is still always 1",
    arises="the shortcut for one update per rollout, kept when num_iterations grows",
    caught_by=("trainer.clip-acts-after-the-first-update",),
)
