"""Mutations of dropout in adapters."""

from gates.families.hosts import in_trainer

LAYER, STEP = ("trainer.lora-dropout.matches-definition",), ("trainer.dropout.acts-in-updates-only",)

in_trainer(
    "dropout.not-divided",
    "adapters.dropout:Dropout.__call__",
    "trainer.patches.dropout:not_divided",
    mistake="kept inputs are not divided by 1 − p",
    arises="a mask multiplied into the input",
    theme="normalisation",
    symptom="Reward changes when the adapter runs without dropout: its scale is then 1/(1 − p) times that of training.",
    caught_by=LAYER,
)
in_trainer(
    "dropout.on-the-base-too",
    "adapters.layers:wrap",
    "trainer.patches.dropout:on_the_base_too",
    mistake="dropout is applied to the input of the frozen base layer too",
    arises="x = dropout(x) at the top of the layer",
    theme="masks and shifts",
    symptom=(
        "In the update, log-probs differ strongly from the sampler's; the clip fraction is high from the first step."
    ),
    caught_by=LAYER,
)
in_trainer(
    "dropout.same-mask-each-time",
    "adapters.dropout:drawn",
    "trainer.patches.dropout:same_each_time",
    mistake="every update draws the same mask",
    arises="a generator seeded in each forward pass",
    theme="state and resume",
    symptom="No curve shows it: some inputs of each adapter never train.",
    caught_by=LAYER,
)
in_trainer(
    "dropout.in-the-old-pass",
    "logprobs:of_policy",
    "trainer.patches.dropout:in_the_old_pass",
    mistake="old log-probs are computed with dropout on",
    arises="the model stays in training mode from one update to the next rollout",
    source="huggingface/trl#3000: sampling and scoring stay in training mode",
    theme="ratio and rollout",
    symptom=(
        "Ratios differ from 1 before the first update, the more the larger p is, and tokens are clipped that should "
        "train."
    ),
    caught_by=STEP,
)
in_trainer(
    "dropout.in-rollouts",
    "engine.rollout:Source.once",
    "trainer.patches.dropout:in_rollouts",
    mistake="completions are drawn with dropout on",
    arises="no call of model.eval() before sampling",
    source="huggingface/trl#3000: sampling and scoring stay in training mode",
    theme="ratio and rollout",
    symptom="Training reward stays below evaluation reward, the more the larger p is.",
    caught_by=STEP,
)
in_trainer(
    "dropout.masks-of-the-process",
    "adapters.dropout:drawn",
    "trainer.patches.dropout:of_the_process",
    mistake="dropout masks come from a counter of the process, which restarts when a run is resumed",
    arises="the framework's global random state, which no checkpoint holds",
    source="modelscope/ms-swift#9935: resume resets the random state",
    theme="state and resume",
    symptom="The curve of a resumed run deviates slightly from that of an uninterrupted one, for good.",
    caught_by=("trainer.resume.bit-exact", *STEP),
)
