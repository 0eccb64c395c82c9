"""Mistakes of whole runs, which only the run's own predecessors show."""

from __future__ import annotations

from functools import partial

from gates.families.hosts import in_trainer

ROWS, UPDATES = "trainer.patches.replayed_rows", "trainer.patches.replayed_updates"
SHOWN = "No curve shows it."


def _replayed(
    name: str, target: str, patch: str, mistake: str, arises: str, *, case: str, caught_by: str, theme: str
) -> None:
    in_trainer(
        f"trainer.replay.{name}",
        target,
        patch,
        mistake=mistake,
        arises=arises,
        theme=theme,
        symptom=SHOWN,
        caught_by=(f"trainer.replay.{caught_by}",),
        cases=(case,),
    )


rollouts = partial(_replayed, caught_by="rollouts", theme="sampling")
rewards = partial(_replayed, caught_by="rewards", theme="advantages")
advantages = partial(_replayed, caught_by="advantages", theme="advantages")
log_probs = partial(_replayed, caught_by="log-probs", theme="ratio and rollout")
gradient = partial(_replayed, caught_by="gradient", theme="normalisation")
optimizer = partial(_replayed, caught_by="optimizer", theme="state and resume")
metrics = partial(_replayed, caught_by="metrics", theme="metrics")

rollouts(
    "position-at-rest",
    "data.order:take",
    f"{ROWS}:position_at_rest",
    "every step takes the first prompts of the data",
    "a data loader that is made anew in each step",
    case="grpo-kl-resumed",
)
rollouts(
    "order-of-the-first-epoch",
    "data.order:permutation",
    f"{ROWS}:order_of_the_first_epoch",
    "every epoch has the order of the first",
    "a sampler whose epoch is never set",
    case="grpo-kl-resumed",
)
rollouts(
    "round-at-rest",
    "engine.rollout:request",
    f"{ROWS}:round_at_rest",
    "a prompt that comes again draws the completions of its first time",
    "a seed of the rollout that does not depend on the step",
    case="grpo-kl-resumed",
)
rollouts(
    "tokenizers-end-alone",
    "engine.rollout:eos_ids",
    f"{ROWS}:tokenizers_end_alone",
    "rows end at the tokenizer's end token, and go on past those of generation_config.json",
    "stop ids that are read from the tokenizer alone",
    case="gspo-truncated",
)
rollouts(
    "filters-dropped",
    "engine.rollout:request",
    f"{ROWS}:filters_dropped",
    "top-k and top-p are configured and not asked for",
    "a request that is built from some of the settings",
    case="dr-grpo-4-bit",
)
rollouts(
    "evaluation-on-the-same-keys",
    "loop.evaluate:generations",
    f"{ROWS}:evaluation_on_the_same_keys",
    "an evaluation draws with keys that a rollout used",
    "a seed that evaluation and training share",
    case="grpo-kl-resumed",
)
rewards(
    "end-token-in-text",
    "engine.rollout:samples_of",
    f"{ROWS}:end_token_in_text",
    "reward functions see the end token as text",
    "decoding without skipping what ends a row",
    case="gspo-truncated",
)
rewards(
    "rewards-of-the-next-row",
    "rewards.combine:column",
    f"{ROWS}:rewards_of_the_next_row",
    "each completion has the reward of the one before it",
    "results of a pool of workers in the order in which they ended",
    case="grpo-kl-resumed",
)
rewards(
    "weights-left-out",
    "rewards.combine:score",
    f"{ROWS}:weights_left_out",
    "rewards are added up without their weights",
    "weights that are read and not passed on",
    case="grpo-kl-resumed",
)
advantages(
    "first-groups-kept",
    "engine.rollout:kept",
    f"{ROWS}:first_rows_of_a_step",
    "as many groups are kept as have a signal, but the first ones",
    "a count in place of a mask",
    case="dapo-resampled",
)
advantages(
    "whole-batch-as-group",
    "algorithms.advantages:of_rewards",
    f"{ROWS}:whole_batch_as_group",
    "the baseline of a completion is the mean of all prompts",
    "rewards that are flattened before they are compared",
    case="grpo-kl-resumed",
)
advantages(
    "penalty-added",
    "algorithms.advantages:of_rewards",
    f"{ROWS}:penalty_added",
    "the KL raises the reward",
    "a sign that is put in twice",
    case="rloo-llama",
)
advantages(
    "masked-rows-without-kl",
    "engine.step:Engine._advantages",
    f"{ROWS}:masked_rows_without_kl",
    "completions that leave the loss have no KL in their reward, which the baseline of their group reads",
    "one mask for the loss and for the reward",
    case="rloo-llama",
)
log_probs(
    "reference-late-by-one",
    "logprobs:of_reference",
    f"{ROWS}:late_by_one",
    "log-probs of the reference are one slot late",
    "labels that are shifted once more",
    case="grpo-kl-resumed",
)
log_probs(
    "reference-at-one",
    "logprobs:of_reference",
    f"{ROWS}:reference_at_one",
    "the reference is scored at temperature 1, the policy at another",
    "a temperature that only one of two passes divides by",
    case="online-dpo-tied",
)
log_probs(
    "reference-with-adapters",
    "logprobs:of_reference",
    f"{ROWS}:reference_with_adapters",
    "the reference is the policy of the step, adapters included",
    "adapters that are not switched off",
    case="grpo-kl-resumed",
)
log_probs(
    "truncated-rows-train",
    "engine.micro_batches:without_truncated",
    f"{ROWS}:truncated_rows_train",
    "completions without an end token train although they should be masked",
    "an option that is read and never applied",
    case="gspo-truncated",
)
log_probs(
    "entropy-at-one",
    "logprobs:token_entropy",
    f"{ROWS}:entropy_at_one",
    "the entropy is that of temperature 1",
    "an entropy of raw logits",
    case="sapo-hybrid",
)
log_probs(
    "dropout-not-divided",
    "adapters.dropout:Dropout.__call__",
    f"{UPDATES}:dropout_not_divided",
    "dropout does not divide by the share of elements that it keeps",
    "a mask that is multiplied in by hand",
    case="best-of-n-dropout",
)
log_probs(
    "masks-of-the-first-update",
    "engine.step:Engine._dropout",
    f"{UPDATES}:masks_of_the_first_update",
    "each update of a step drops the same elements",
    "a seed that is set once for a step",
    case="best-of-n-dropout",
)
gradient(
    "last-micro-batch-lost",
    "engine.micro_batches:cut",
    f"{UPDATES}:last_micro_batch_lost",
    "the last micro-batch of a step is left out",
    "drop_last in a loader of micro-batches",
    case="grpo-kl-resumed",
)
gradient(
    "mean-of-micro-batches",
    "engine.step:Engine._gradient",
    f"{UPDATES}:mean_of_micro_batches",
    "the gradient is divided by the number of micro-batches once more",
    "a loss that already divides by the counts of the step",
    case="grpo-kl-resumed",
)
gradient(
    "clip-of-each-micro-batch",
    "engine.step:Engine._gradient",
    f"{UPDATES}:clip_of_each_micro_batch",
    "the norm of each micro-batch's gradient is clipped",
    "a clip that is called after each backward pass",
    case="grpo-kl-resumed",
)
gradient(
    "entropy-lowered",
    "algorithms.entropy:bonus",
    f"{UPDATES}:entropy_lowered",
    "the entropy bonus lowers the entropy",
    "a sign that is wrong",
    case="dapo-resampled",
)
gradient(
    "kl-weighed-twice",
    "algorithms.objective:kl_penalty",
    f"{UPDATES}:kl_weighed_twice",
    "the KL is multiplied by beta twice",
    "a coefficient in the estimate and in the loss",
    case="grpo-kl-resumed",
)
gradient(
    "one-token-too-many",
    "algorithms.protocol:step_totals",
    f"{UPDATES}:tokens_of_all_slots",
    "each row counts one token too many in the denominators",
    "lengths that include the last prompt token",
    case="dapo-resampled",
)
optimizer(
    "schedule-a-step-late",
    "engine.optimizer:learning_rate",
    f"{UPDATES}:schedule_a_step_late",
    "each step has the learning rate of the one before",
    "a schedule that is advanced after it is read",
    case="grpo-kl-resumed",
)
optimizer(
    "warm-up-from-zero",
    "engine.optimizer:learning_rate",
    f"{UPDATES}:warm_up_from_zero",
    "the first step has rate 0",
    "a warm-up that counts from 0",
    case="grpo-kl-resumed",
)
optimizer(
    "moments-lost-on-resume",
    "checkpoint.state:load",
    f"{UPDATES}:moments_lost_on_resume",
    "a resumed run begins with empty moments",
    "a checkpoint without the optimizer",
    case="grpo-kl-resumed",
)
rollouts(
    "position-lost-on-resume",
    "checkpoint.state:load",
    f"{UPDATES}:position_lost_on_resume",
    "a resumed run begins with the first prompts of the data",
    "a loader whose place is not saved",
    case="grpo-kl-resumed",
)
optimizer(
    "no-bias-correction",
    "engine.optimizer:make",
    f"{UPDATES}:no_bias_correction",
    "Adam's moments are not corrected",
    "the default of the library",
    case="grpo-kl-resumed",
)
optimizer(
    "norm-not-clipped",
    "engine.step:clipped",
    f"{UPDATES}:no_clip",
    "the norm of the gradient is measured and not clipped",
    "a clip whose result is not used",
    case="grpo-kl-resumed",
)
optimizer(
    "norm-after-the-clip-unclipped",
    "engine.step:Engine._apply",
    f"{UPDATES}:norm_before_as_after",
    "the gradient is clipped, and the norm that is recorded as the clipped one is that before",
    "one variable for both norms",
    case="grpo-kl-resumed",
)
optimizer(
    "norm-of-one-array",
    "engine.step:global_norm",
    f"{UPDATES}:norm_of_the_last_array",
    "the norm is that of the largest array alone",
    "a norm for each parameter",
    case="grpo-kl-resumed",
)
optimizer(
    "adapters-in-half",
    "engine.step:Engine._update",
    f"{UPDATES}:weights_in_half",
    "adapters are rounded to bfloat16 after each update",
    "master weights that were left out",
    case="grpo-kl-resumed",
)
metrics(
    "reward-of-first-rows",
    "metrics.numbers:_rewards",
    f"{UPDATES}:mean_with_unscored",
    "the mean reward is that of the first completion of each prompt",
    "a stride that is left over",
    case="grpo-kl-resumed",
)
metrics(
    "length-without-end",
    "metrics.numbers:_lengths",
    f"{UPDATES}:length_without_end",
    "the mean length does not count end tokens",
    "lengths of decoded text",
    case="gspo-truncated",
)
metrics(
    "rewards-of-other-rows-shown",
    "loop.run:Run._completions",
    f"{UPDATES}:first_rows_shown_with_other_rewards",
    "completions are shown beside the rewards of other rows",
    "a table that is sorted in one column",
    case="grpo-kl-resumed",
)
metrics(
    "console-a-step-late",
    "metrics.progress:measures",
    f"{UPDATES}:numbers_of_the_step_before",
    "the console shows the numbers of the step before",
    "a line that is written before the numbers are updated",
    case="grpo-kl-resumed",
)
