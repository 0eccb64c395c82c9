"""Mutations of dropout in adapters."""

from gates.families.hosts import in_trainer

LAYER, STEP = ("trainer.lora-dropout.matches-definition",), ("trainer.dropout.acts-in-updates-only",)

in_trainer(
    "dropout.not-divided",
    "adapters.dropout:Dropout.__call__",
    "trainer.patches.dropout:not_divided",
    mistake="what is kept is not divided by 1 − p",
    arises="a mask multiplied into the input",
    theme="normalisation",
    symptom="Reward jumps when the adapter is used without dropout: its scale is 1/(1 − p) of the one it was trained at.",
    caught_by=LAYER,
)
in_trainer(
    "dropout.on-the-base-too",
    "adapters.layers:wrap",
    "trainer.patches.dropout:on_the_base_too",
    mistake="the frozen layer reads the dropped input too",
    arises="x = dropout(x) at the top of the layer",
    theme="masks and shifts",
    symptom="Log-probs in the update are far from those of the sampler; the clip fraction is high from the first step.",
    caught_by=LAYER,
)
in_trainer(
    "dropout.same-mask-each-time",
    "adapters.dropout:drawn",
    "trainer.patches.dropout:same_each_time",
    mistake="every update draws the same mask",
    arises="the generator is seeded in each forward pass",
    theme="state and resume",
    symptom="Nothing in the curves: a part of each adapter's inputs never trains.",
    caught_by=LAYER,
)
in_trainer(
    "dropout.in-the-old-pass",
    "logprobs:of_policy",
    "trainer.patches.dropout:in_the_old_pass",
    mistake="old log-probs are taken with dropout on",
    arises="the model stays in training mode from one update to the next rollout",
    source="huggingface/trl#3000: sampling and scoring stay in training mode",
    theme="ratio and rollout",
    symptom="Ratios are off from 1 before the first update, by more with a larger p, and clip what should train.",
    caught_by=STEP,
)
in_trainer(
    "dropout.in-rollouts",
    "engine.rollout:Source.once",
    "trainer.patches.dropout:in_rollouts",
    mistake="completions are drawn with dropout on",
    arises="nobody calls model.eval() before sampling",
    source="huggingface/trl#3000: sampling and scoring stay in training mode",
    theme="ratio and rollout",
    symptom="Training reward stays below the reward in evaluation, by more with a larger p.",
    caught_by=STEP,
)
in_trainer(
    "dropout.masks-of-the-process",
    "adapters.dropout:drawn",
    "trainer.patches.dropout:of_the_process",
    mistake="masks come from a counter of the process, which starts again with a resume",
    arises="the framework's global random state, which no checkpoint holds",
    source="modelscope/ms-swift#9935: resume resets the random state",
    theme="state and resume",
    symptom="A resumed run leaves the curve of one that was not killed, a little, and never comes back.",
    caught_by=("trainer.resume.bit-exact", *STEP),
)
