"""Mistakes of an engine, written by somebody who had not seen the gates that replay its runs.

They were frozen by a commit before the first measurement, which results/replay/engine-first.json holds.
"""

from __future__ import annotations

from functools import partial

from gates.families.hosts import in_trainer

engine = partial(in_trainer, symptom="No curve shows it.")

engine(
    "trainer.engine.epoch-order-repeated",
    "data.order:permutation",
    "trainer.patches.engine_a:epoch_order_repeated",
    mistake="every epoch takes the prompts in the order of the first one",
    arises="the epoch is not passed to the sampler's seed",
    theme="sampling",
    caught_by=("trainer.replay.rollouts",),
    cases=("grpo-kl-resumed",),
)
engine(
    "trainer.engine.index-after-drop",
    "data.prompts:make",
    "trainer.patches.engine_a:index_after_drop",
    mistake="prompts are numbered after the filter for length, so that the draws of every prompt behind a dropped row have other keys",
    arises="enumerate after the filter",
    theme="sampling",
    caught_by=("trainer.replay.rollouts",),
    cases=("gmpo-soft-cap",),
)
engine(
    "trainer.engine.bos-missing",
    "data.prompts:encode",
    "trainer.patches.engine_a:bos_missing",
    mistake="plain prompts are encoded without the start token that the tokenizer adds",
    arises="add_special_tokens=False copied from the path of chat templates",
    theme="sampling",
    caught_by=("trainer.replay.rollouts",),
    cases=("reinforce-stored",),
)
engine(
    "trainer.engine.pair-ends-with-first-eos",
    "data.pairs:end_id",
    "trainer.patches.engine_a:pair_ends_with_first_eos",
    mistake="chosen and rejected completions end with the smallest of several end tokens, often the padding token, instead of the tokenizer's own",
    arises="eos_token_ids[0] in place of eos_token_id",
    theme="sampling",
    caught_by=("trainer.replay.rollouts",),
    cases=("dpo",),
)
engine(
    "trainer.engine.one-eos-only",
    "engine.rollout:eos_ids",
    "trainer.patches.engine_b:one_eos_only",
    mistake="completions stop at the tokenizer's own end token only; the other end tokens of generation_config are drawn and passed over",
    arises="stop tokens from the tokenizer instead of generation_config",
    theme="sampling",
    caught_by=("trainer.replay.rollouts",),
    cases=("gspo-truncated",),
)
engine(
    "trainer.engine.repeated-prompt-same-draws",
    "engine.rollout:_times_before",
    "trainer.patches.engine_b:repeated_prompt_same_draws",
    mistake="a prompt that occurs twice in a step gets the same completions twice",
    arises="draws keyed by prompt without its occurrence",
    theme="sampling",
    caught_by=("trainer.replay.rollouts",),
    cases=("grpo-kl-resumed",),
)
engine(
    "trainer.engine.resample-same-prompts",
    "engine.rollout:generate",
    "trainer.patches.engine_b:resample_same_prompts",
    mistake="dynamic sampling resamples the prompts of the first rollout instead of the next ones; a kept prompt can be in the step twice, and the next step skips prompts",
    arises="the iterator is not advanced inside the resampling loop",
    theme="sampling",
    caught_by=("trainer.replay.rollouts",),
    cases=("dapo-resampled",),
)
engine(
    "trainer.engine.filter-order-ignored",
    "rollout.sampler:keywords",
    "trainer.patches.engine_b:filter_order_ignored",
    mistake="the temperature is applied before top-p although the configured order has it last",
    arises="one fixed order of logits processors",
    theme="sampling",
    caught_by=("trainer.replay.rollouts",),
    cases=("rloo-llama",),
)
engine(
    "trainer.engine.behaviour-unfiltered",
    "rollout.sampler:Sampler.score",
    "trainer.patches.engine_b:behaviour_unfiltered",
    mistake="the log-probs recorded as those of the distribution drawn from are the unfiltered ones at the rollout's temperature",
    arises="the engine returns raw instead of processed log-probs",
    theme="sampling",
    caught_by=("trainer.replay.rollouts",),
    cases=("dr-grpo-4-bit",),
)
engine(
    "trainer.engine.rollout-one-step-stale",
    "engine.step:Engine.generate",
    "trainer.patches.engine_b:rollout_one_step_stale",
    mistake="from the second step on, completions are drawn with the adapters from before the last step's updates",
    arises="weights are sent to the sampler before the update",
    theme="sampling",
    caught_by=("trainer.replay.rollouts",),
    cases=("grpo-kl-resumed",),
)
engine(
    "trainer.engine.prefix-cache-kept",
    "rollout.prefix:_prefill",
    "trainer.patches.engine_b:prefix_cache_kept",
    mistake="the cache of a prompt is reused in later rollouts, with keys and values of older adapters",
    arises="prefix cache not reset after a weight update",
    theme="sampling",
    caught_by=("trainer.replay.rollouts",),
    cases=("gmpo-soft-cap",),
)
engine(
    "trainer.engine.truncated-loses-last-token",
    "engine.rollout:samples_of",
    "trainer.patches.engine_b:truncated_loses_last_token",
    mistake="the text that rewards read lacks the last token of truncated completions too, not only the end token",
    arises="tokens[:-1] to strip the end token",
    theme="advantages",
    caught_by=("trainer.replay.rewards",),
    cases=("gspo-truncated",),
)
engine(
    "trainer.engine.columns-tiled",
    "rewards.user:Own.__call__",
    "trainer.patches.engine_c:columns_tiled",
    mistake="a user's reward function gets the columns of the data in sample-major order: each completion sees the column of another prompt",
    arises="columns * G instead of repeating each value G times",
    theme="advantages",
    caught_by=("trainer.replay.rewards",),
    cases=("gmpo-soft-cap",),
)
engine(
    "trainer.engine.weights-by-sorted-name",
    "rewards.combine:score",
    "trainer.patches.engine_c:weights_by_sorted_name",
    mistake="reward weights are in the order of the functions' names, the columns in that of the configuration",
    arises="weights read from a sorted dict",
    theme="advantages",
    caught_by=("trainer.replay.rewards",),
    cases=("grpo-kl-resumed",),
)
engine(
    "trainer.engine.dynamic-sampling-by-total",
    "algorithms.dapo:Dapo.keep",
    "trainer.patches.engine_c:dynamic_sampling_by_total",
    mistake="groups are filtered by the total reward although the accuracy is configured",
    arises="filter moved behind the sum of rewards",
    theme="advantages",
    caught_by=("trainer.replay.advantages",),
    cases=("dapo-resampled",),
)
engine(
    "trainer.engine.overlong-after-limit",
    "algorithms.dapo:overlong",
    "trainer.patches.engine_c:overlong_after_limit",
    mistake="the over-long penalty begins at the limit instead of one buffer before it; no penalty is given if the limit is max_tokens",
    arises="the buffer is added to the limit",
    theme="advantages",
    caught_by=("trainer.replay.advantages",),
    cases=("dapo-resampled",),
)
engine(
    "trainer.engine.kl-in-reward-mean",
    "algorithms.ratio:kl_in_reward",
    "trainer.patches.engine_c:kl_in_reward_mean",
    mistake="the KL that lowers a reward is the mean over a completion's tokens instead of the sum",
    arises="masked_mean where the sum was meant",
    theme="advantages",
    caught_by=("trainer.replay.advantages",),
    cases=("rloo-llama",),
)
engine(
    "trainer.engine.kl-swapped",
    "algorithms.ratio:token_kl",
    "trainer.patches.engine_d:kl_swapped",
    mistake="k3 is computed of policy - reference instead of reference - policy: a difference of third order",
    arises="arguments swapped",
    theme="normalisation",
    caught_by=("trainer.replay.gradient",),
    cases=("grpo-kl-resumed",),
)
engine(
    "trainer.engine.entropy-threshold-per-micro-batch",
    "algorithms.entropy:of_step",
    "trainer.patches.engine_d:entropy_threshold_per_micro_batch",
    mistake="the top-entropy mask takes the quantile of each micro-batch instead of the step's",
    arises="quantile inside the loss function",
    theme="normalisation",
    caught_by=("trainer.replay.gradient",),
    cases=("sapo-hybrid",),
)
engine(
    "trainer.engine.truncation-by-length",
    "engine.micro_batches:without_truncated",
    "trainer.patches.engine_d:truncation_by_length",
    mistake="completions whose end token is the last one that max_tokens allows count as truncated and are left out of the loss",
    arises="length == max_tokens in place of a missing end token",
    theme="ratio and rollout",
    caught_by=("trainer.replay.log-probs",),
    cases=("gspo-truncated",),
)
engine(
    "trainer.engine.correction-from-current-policy",
    "algorithms.objective:_weights",
    "trainer.patches.engine_d:correction_from_current_policy",
    mistake="off-policy weights compare the current instead of the old policy with the sampler, so that they change within a rollout's updates",
    arises="log-probs of the forward pass at hand",
    theme="normalisation",
    caught_by=("trainer.replay.gradient",),
    cases=("dr-grpo-4-bit",),
)
engine(
    "trainer.engine.old-with-dropout",
    "engine.step:Engine._score_constants",
    "trainer.patches.engine_d:old_with_dropout",
    mistake="the old log-probs are computed with dropout on",
    arises="model.train() is left on in the scoring pass",
    theme="ratio and rollout",
    caught_by=("trainer.replay.log-probs",),
    cases=("best-of-n-dropout",),
)
engine(
    "trainer.engine.reference-keeps-embedding-adapters",
    "lora:to_switch_off",
    "trainer.patches.engine_d:reference_keeps_embedding_adapters",
    mistake="the reference pass keeps the adapters of the embedding table and of a tied head",
    arises="only linear adapters know the switch",
    theme="ratio and rollout",
    caught_by=("trainer.replay.log-probs",),
    cases=("cispo-experts",),
)
engine(
    "trainer.engine.head-without-cap",
    "heads:logits",
    "trainer.patches.engine_d:head_without_cap",
    mistake="scoring passes leave out the soft cap or the scale of the logits; rollouts have them",
    arises="a fused head that knows only the projection",
    theme="ratio and rollout",
    caught_by=("trainer.replay.log-probs",),
    cases=("gmpo-soft-cap",),
)
engine(
    "trainer.engine.head-scores-not-raised",
    "logprobs:_head_scores",
    "trainer.patches.engine_d:head_scores_not_raised",
    mistake="log-softmax and selection of the scoring passes run in the model's own type instead of float32",
    arises="the cast was removed to save memory",
    theme="ratio and rollout",
    caught_by=("scoring.half-logits.upcast",),
    at="robustness",  # half precision is asked as robustness
)
engine(
    "trainer.engine.micro-batches-equal-weight",
    "engine.step:Engine._gradient",
    "trainer.patches.engine_e:micro_batches_equal_weight",
    mistake="every micro-batch has the same weight in the sum of gradients, although the last one has fewer rows",
    arises="loss / accumulation steps",
    theme="normalisation",
    caught_by=("trainer.replay.gradient",),
    cases=("grpo-kl-resumed",),
)
engine(
    "trainer.engine.adam-without-bias-correction",
    "engine.optimizer:make",
    "trainer.patches.engine_e:adam_without_bias_correction",
    mistake="adam and AdamW run without bias correction",
    arises="the default of mlx.optimizers",
    theme="state and resume",
    caught_by=("trainer.replay.optimizer",),
    cases=("grpo-kl-resumed",),
)
engine(
    "trainer.engine.adapters-rounded",
    "engine.step:Engine._update",
    "trainer.patches.engine_e:adapters_rounded",
    mistake="the adapters are rounded to bfloat16 after each update",
    arises="no float32 master weights",
    theme="state and resume",
    caught_by=("trainer.replay.optimizer",),
    cases=("grpo-kl-resumed",),
)
engine(
    "trainer.engine.routers-adapted",
    "lora:find",
    "trainer.patches.engine_e:routers_adapted",
    mistake="the layers that choose experts get adapters and train, although adapter.routers is false",
    arises="target all linear layers",
    theme="state and resume",
    caught_by=("trainer.replay.optimizer",),
    cases=("cispo-experts",),
)
engine(
    "trainer.engine.adam-step-count-lost",
    "checkpoint.state:load",
    "trainer.patches.engine_f:adam_step_count_lost",
    mistake="after a resume the optimizer has its moments but counts its steps from 0, so that the bias correction is that of a fresh one",
    arises="only the moments are in the state dict",
    theme="state and resume",
    caught_by=("trainer.replay.optimizer",),
    cases=("grpo-kl-resumed",),
)
engine(
    "trainer.engine.checkpoint-before-update",
    "loop.run:Run._step",
    "trainer.patches.engine_f:checkpoint_before_update",
    mistake="the checkpoint of a step holds the adapters from before it, with the optimizer and the position from after it",
    arises="weights are copied at the start of the step",
    theme="state and resume",
    caught_by=("trainer.replay.optimizer",),
    cases=("grpo-kl-resumed",),
)
engine(
    "trainer.engine.evaluation-mean-of-means",
    "loop.evaluate:numbers",
    "trainer.patches.engine_f:evaluation_mean_of_means",
    mistake="evaluation averages the means of its batches, so that completions of a smaller last batch count more",
    arises="metrics reduced per batch",
    theme="metrics",
    caught_by=("trainer.replay.metrics",),
    cases=("grpo-kl-resumed",),
)
engine(
    "trainer.engine.metrics-of-last-update",
    "metrics.numbers:_updates",
    "trainer.patches.engine_f:metrics_of_last_update",
    mistake="loss, its summands and the gradient's norm are those of the step's last update instead of the mean",
    arises="the variable is overwritten in the loop",
    theme="metrics",
    caught_by=("trainer.replay.metrics",),
    cases=("grpo-kl-resumed",),
)
engine(
    "trainer.engine.robust-for-conservative",
    "preference.dpo:of_margin",
    "trainer.patches.engine_f:robust_for_conservative",
    mistake="label smoothing follows robust DPO: the swapped label's loss is subtracted, and the result divided by 1 - 2 s",
    arises="two variants share one name",
    theme="normalisation",
    caught_by=("trainer.replay.gradient",),
    cases=("dpo",),
)
engine(
    "trainer.engine.tie-prefers-second",
    "preference.margins:prefer",
    "trainer.patches.engine_f:tie_prefers_second",
    mistake="of two completions with equal rewards the second is chosen",
    arises=">= in place of >",
    theme="advantages",
    caught_by=("trainer.replay.advantages",),
    cases=("online-dpo-tied",),
)
engine(
    "trainer.engine.unscored-wins",
    "preference.best_of_n:winners",
    "trainer.patches.engine_f:unscored_wins",
    mistake="a completion without a score wins its group",
    arises="argmax of scores with NaN",
    theme="advantages",
    caught_by=("trainer.replay.advantages",),
    cases=("best-of-n-dropout",),
)
