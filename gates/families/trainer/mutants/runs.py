"""Mutations of whole training runs."""

from gates.families.hosts import in_trainer

in_trainer(
    "training.optimizer-not-restored",
    "checkpoint.state:load",
    "trainer.patches.runs:forget_the_optimizer",
    mistake="a resumed run starts with fresh optimizer moments",
    arises="a checkpoint of the adapters alone",
    source="google/brax#655: Adam state not restored",
    theme="state and resume",
    symptom="A jump in loss or reward right after each resume, and some hundred steps to recover.",
    caught_by=("trainer.resume.bit-exact",),
)
in_trainer(
    "training.round-not-restored",
    "checkpoint.state:load",
    "trainer.patches.runs:forget_the_round",
    mistake="a resumed run repeats the random numbers of the first rollouts",
    arises="a generator seeded at start-up whose state is not saved",
    source="modelscope/ms-swift#9935: resume resets the random state",
    theme="state and resume",
    symptom="After a resume the first rollouts are drawn with the numbers of the run's start; curves look the same.",
    caught_by=("trainer.resume.bit-exact",),
)
in_trainer(
    "training.data-position-not-restored",
    "checkpoint.state:load",
    "trainer.patches.runs:forget_the_data",
    mistake="a resumed run restarts its data, so that the first prompts are trained on twice",
    arises="a data loader without state",
    source=(
        "allenai/open-instruct#1523: dataloaders restart at the beginning; OpenRLHF/OpenRLHF#1103: dataloader "
        "not loaded with checkpoint"
    ),
    theme="state and resume",
    symptom="After each resume reward is suspiciously high, because the first prompts repeat.",
    caught_by=("trainer.resume.bit-exact",),
)
in_trainer(
    "training.encoded-again",
    "engine.micro_batches:_packed",
    "trainer.patches.runs:encode_again",
    mistake="completions are decoded and encoded again for the loss",
    arises="a rollout that returns text and a trainer that tokenises it",
    source=(
        "NovaSky-AI/SkyRL#123: text tokenised again for training; rllm-org/rllm#272: history tokenised again each step"
    ),
    theme="tokenizer",
    symptom="Ratios of a fresh batch are far from 1 in a few rows; the KL has occasional spikes.",
    caught_by=("trainer.trains-on-sampled-ids",),
)
in_trainer(
    "training.old-taken-anew",
    "engine.step:Engine._scored",
    "trainer.patches.runs:old_taken_anew",
    mistake=(
        "old = stop_gradient(new) in every pass, so that the ratio is always 1 even with several passes over a rollout"
    ),
    arises="the shortcut for one update per rollout, kept with num_iterations above 1",
    source="xiaomi-research/time-r1#20: old is detached new each pass",
    theme="ratio and rollout",
    symptom=(
        "The clip fraction is 0 even with several passes over a rollout; the policy drifts within the step and then collapses."
    ),
    caught_by=("trainer.clip-acts-after-the-first-update",),
)
