"""Mutations of policy losses; those of the losses after DAPO are in `variants`."""

from gates.families.hosts import in_numpy, in_trainer
from gates.families.loss.mutants import variants  # noqa: F401  importing registers them

in_numpy(
    "loss.dr-grpo-padded-length",
    "loss:policy_loss",
    "loss.patches.edits:padded_width",
    mistake="Dr. GRPO divides by the longest completion of the batch instead of the configured L_max",
    source="mlxrl 0.2.4 DrGRPOAlgorithm without max_tokens: `float(self.max_tokens or mask.shape[1])`",
    theme="normalisation",
    symptom=(
        "The gradient norm jumps with the longest completion of the batch, and long answers are again punished less."
    ),
    caught_by=("loss.dr-grpo.matches-definition",),
)
in_numpy(
    "loss.dapo-per-row-mean",
    "loss:policy_loss",
    "loss.patches.edits:row_mean",
    mistake="DAPO's token mean over the step is replaced by row means, so that tokens of long answers weigh less",
    arises="GRPO's aggregation left in place when the clip was widened",
    theme="normalisation",
    symptom="Length grows: tokens of long wrong answers weigh less than those of short ones.",
    caught_by=("loss.dapo.matches-definition",),
)
in_numpy(
    "loss.bnpo-one-micro-batch",
    "loss:policy_loss",
    "loss.patches.edits:token_mean",
    mistake="the token mean covers the whole batch instead of each micro-batch",
    arises="gradient accumulation rewritten as one batch",
    theme="normalisation",
    symptom="No effect while micro-batches are alike; otherwise the curve depends on the micro-batch size.",
    caught_by=("loss.bnpo-trl.matches-definition",),
)
in_numpy(
    "loss.rloo-constant-ratio",
    "loss:policy_loss",
    "loss.patches.edits:ratio_of_one",
    mistake="old log-probs are ignored: every sequence ratio is 1",
    source="mlxrl 0.2.4 RLOOAlgorithm.compute_loss: `del old_policy_logprobs`",
    theme="ratio and rollout",
    symptom="No effect on-policy; with several updates per rollout the policy diverges on stale samples.",
    caught_by=("loss.rloo.matches-definition",),
)
in_numpy(
    "loss.ratio-constant",
    "loss:policy_loss",
    "loss.patches.edits:ratio_of_one",
    mistake="old log-probs are those of the current policy: every ratio is 1, and epsilon has no effect",
    source=(
        "mlx-lm-lora 5.10.2: the same gradient for epsilon 1e-4 and 10; inclusionAI/AReno#68: old log-probs "
        "carried, never used"
    ),
    theme="ratio and rollout",
    symptom="The clip fraction is always 0 for every epsilon; several updates per rollout end in a sudden collapse.",
    caught_by=("loss.grpo.matches-definition",),
)
in_numpy(
    "loss.clip-never-acts",
    "loss:policy_loss",
    "loss.patches.edits:inert_clip",
    mistake="the bounds of the clip are so wide that no ratio is clipped",
    arises="an epsilon that is read but not passed on",
    source="automl/Mighty#31: PPO clip parameter not passed through",
    theme="configuration",
    symptom=(
        "The clip fraction is 0 and the curve is the same for every epsilon; late updates of a rollout move the "
        "policy too far."
    ),
    caught_by=("loss.grpo.matches-definition",),
)
in_numpy(
    "loss.nan-times-zero-plain",
    "terms:select",
    "loss.patches.baseline:multiply_by_mask",
    mistake="masked slots are multiplied by 0 instead of being selected away",
    arises="values * mask",
    source="modelscope/ms-swift#9767: masked after exp, inf times 0",
    theme="masks and shifts",
    symptom="The loss is NaN on the first batch with a ragged row, or when padding's log-probs are -inf.",
    at="hardening",
    caught_by=("loss.padding-is-inert",),
)
in_numpy(
    "loss.padding-trains",
    "loss:policy_loss",
    "loss.patches.edits:padding_counted",
    mistake="values in masked slots enter the loss",
    arises="a mask applied to the denominators only",
    theme="masks and shifts",
    symptom="Short completions get a gradient for their padding, which grows with its length.",
    caught_by=("loss.padding-is-inert", "loss.grpo.matches-definition"),
)
in_trainer(
    "loss.nan-times-zero",
    "algorithms.ratio:select",
    "loss.patches.trainer:multiply_by_mask",
    mistake="masked slots are multiplied by 0 instead of being selected away",
    source="mlxrl 0.2.4 masked_mean: `mx.sum(values * mask)`; NVIDIA-NeMo/RL#4120: zero mask on an overflowed exp",
    theme="masks and shifts",
    symptom="The loss is NaN on the first batch with a ragged row, or when padding's log-probs are -inf.",
    at="hardening",
    caught_by=("loss.padding-is-inert",),
)
in_trainer(
    "loss.token-mean",
    "algorithms.objective:row_weights",
    "loss.patches.trainer:token_mean",
    mistake="all tokens of the batch are averaged, instead of the rows' own means",
    source=(
        "mlxrl 0.2.4 GRPOAlgorithm: −0.0979 against +0.0963; huggingface/trl#3187: denominator is the batch's "
        "tokens; allenai/open-instruct#636: per-batch token mean for GRPO"
    ),
    theme="normalisation",
    symptom="Length drifts: long completions carry most of the gradient, short ones little.",
    caught_by=("loss.grpo.matches-definition",),
)
in_trainer(
    "loss.kl-inverted",
    "algorithms.ratio:token_kl",
    "loss.patches.trainer:inverted_kl",
    mistake="policy and reference are swapped in the loss's k3",
    source="rlox 1.2 compute_token_kl_schulman; walkinglabs/hands-on-modern-rl#27: k3 with the ratio inverted",
    theme="KL",
    symptom="The reported KL is about right while it is small; tokens that became much rarer cost almost nothing.",
    caught_by=("loss.grpo.matches-definition",),
)
in_numpy(
    "loss.dapo-denominators-swapped",
    "loss:policy_loss",
    "loss.patches.edits:token_mean_for_prompts",
    mistake="DAPO's token mean covers the step instead of each prompt",
    arises="the paper's equation 8 is per prompt, its code and verl's per step",
    source=(
        "verl-project/verl#2776: token mean per batch, not group; huggingface/trl#5375: DAPO's tokens over the batch"
    ),
    theme="normalisation",
    symptom="No effect with answers of equal length; otherwise prompts with long answers are over- or underweighted.",
    caught_by=("loss.dapo.matches-definition", "loss.cispo.matches-definition"),
)
in_numpy(
    "loss.dapo-counts-dropped-rows",
    "loss:_block_mean",
    "loss.patches.baseline:dropped_rows_count",
    mistake="fully masked rows, such as truncated completions, still count in the denominator",
    arises="tokens counted at generation and masked afterwards",
    source=(
        "huggingface/trl#6369: denominator ignores mask_truncated_completions; huggingface/trl#6439: truncated tokens "
        "counted in the denominator"
    ),
    theme="normalisation",
    symptom=(
        "The more completions are cut off, the smaller the step; it looks like a learning rate that falls with length."
    ),
    caught_by=("loss.dapo.matches-definition", "loss.cispo.matches-definition"),
)
in_numpy(
    "loss.row-mask-forgotten",
    "loss:policy_loss",
    "loss.patches.edits:row_mask_ignored",
    mistake="excluded rows still train",
    arises="a flag such as mask_truncated_completions that reaches the metrics and not the loss",
    theme="masks and shifts",
    symptom="Length stays at its limit: truncated completions are rewarded or punished although they are unfinished.",
    caught_by=("loss.grpo.matches-definition",),
)
in_numpy(
    "loss.excluded-rows-leave-the-batch",
    "loss:policy_loss",
    "loss.patches.edits:rows_with_tokens",
    mistake="excluded rows also leave the denominator B",
    arises="rows filtered before the mean, whereas TRL clears their mask",
    theme="normalisation",
    symptom=(
        "The more completions are excluded, the larger the step of the others; it looks like a noisy learning rate."
    ),
    caught_by=("loss.grpo.matches-definition",),
)
in_numpy(
    "loss.dapo-window-forgotten",
    "loss:policy_loss",
    "loss.patches.edits:token_mean_of_window",
    mistake="a window divides by its own tokens instead of its share of the tokens in the generation batch",
    arises="a denominator computed per micro-batch",
    source="verl-project/verl#7321: fallback counts the micro-batch's tokens",
    theme="normalisation",
    symptom="The gradient norm grows with the number of accumulation steps; it looks like a higher learning rate.",
    caught_by=("loss.dapo.matches-definition",),
)
in_numpy(
    "loss.clip-sides-swapped",
    "loss:policy_loss",
    "loss.patches.edits:swapped_widths",
    mistake="ε_low bounds the ratio from above and ε_high from below",
    arises="clip-higher applied to the wrong side",
    theme="ratio and rollout",
    symptom="Entropy collapses although clip-higher is on: good tokens are clipped early and bad ones fall too far.",
    caught_by=("loss.dapo.matches-definition", "loss.gspo.matches-definition", "loss.gmpo.matches-definition"),
)
in_numpy(
    "loss.delta-forgotten",
    "loss:policy_loss",
    "loss.patches.edits:delta_ignored",
    mistake="the second bound δ is not applied",
    arises="a keyword that is read but not passed on",
    source="THUDM/slime#2247: dual-clip bound never passed on",
    theme="configuration",
    symptom="Rare steps have a huge loss and gradient norm, from tokens of bad answers with extreme ratios.",
    caught_by=("loss.grpo.matches-definition",),
)
in_numpy(
    "loss.delta-for-gains",
    "loss:policy_loss",
    "loss.patches.edits:delta_for_gains",
    mistake="for positive advantages, δ replaces 1 + ε_high",
    arises="min(r, δ) mistaken for the clip",
    theme="ratio and rollout",
    symptom="Ratios of good tokens exceed 1 + epsilon by far; the KL rises abruptly.",
    caught_by=("loss.grpo.matches-definition",),
)
in_numpy(
    "loss.kl-estimators-swapped",
    "loss:policy_loss",
    "loss.patches.edits:kl_estimators_swapped",
    mistake="k1 and k2 are swapped in the loss",
    arises="different kl_penalty names in two libraries",
    theme="KL",
    symptom=(
        "With k2 configured, the KL gradient is zero on average and beta has no effect; with k1 it pulls to the reference."
    ),
    caught_by=("loss.grpo.matches-definition", "loss.gmpo.matches-definition"),
)
in_numpy(
    "loss.kl-ratio-levels-swapped",
    "loss:policy_loss",
    "loss.patches.edits:kl_levels_swapped",
    mistake="token and sequence ratios are exchanged in the KL term of the loss",
    arises="the KL's ratio taken from the other branch of the loss",
    theme="KL",
    symptom=(
        "Only in off-policy steps: the weight of the KL varies within a row although it should not, or the other way "
        "round."
    ),
    caught_by=("loss.dapo.matches-definition", "loss.gspo.matches-definition"),
)
in_numpy(
    "loss.kl-ratio-constant",
    "loss:policy_loss",
    "loss.patches.edits:kl_ratio_detached",
    mistake="the ratio that multiplies the KL is detached, so the gradient is r(1 − exp d) instead of −r d",
    arises="a stop-gradient on the ratio before the multiplication",
    source="NVIDIA-NeMo/RL#2506: KL term misses its score gradient",
    theme="KL",
    symptom="The reported KL is right, but it falls more slowly than expected for this beta.",
    caught_by=("loss.grpo.matches-definition", "loss.sapo.matches-definition"),
)
in_numpy(
    "loss.weights-lower-denominator",
    "loss:policy_loss",
    "loss.patches.baseline:lowered_denominator",
    mistake="tokens with an off-policy weight of 0 leave the denominator",
    arises="masked importance sampling implemented by a smaller mask",
    theme="normalisation",
    symptom="The staler the rollout, the larger the step: fewer tokens share the same loss.",
    caught_by=("loss.grpo.matches-definition", "loss.dapo.matches-definition"),
)
in_numpy(
    "loss.weights-on-kl",
    "loss:policy_loss",
    "loss.patches.edits:weights_on_kl",
    mistake="off-policy weights multiply the KL too",
    arises="the weight applied after +β·KL",
    theme="KL",
    symptom="Where sampler and trainer disagree, the KL has little weight and rises on stale data.",
    caught_by=("loss.grpo.matches-definition",),
)
in_numpy(
    "loss.weights-forgotten",
    "loss:policy_loss",
    "loss.patches.edits:weights_ignored",
    mistake="off-policy weights are not applied",
    arises="a keyword that is read but not passed on",
    theme="configuration",
    symptom="The settings of the correction have no effect; a mismatch of sampler and trainer ends in a slow collapse.",
    caught_by=("loss.rloo.matches-definition", "loss.luspo.matches-definition"),
)
in_numpy(
    "loss.lengths-off-by-one",
    "loss:policy_loss",
    "loss.patches.edits:without_last_token",
    mistake="the last token of a row, its EOS, is not counted",
    arises="a mask that ends before the first EOS",
    source="mll-lab-nu/RAGEN#59: EOS token is masked out; NVIDIA-NeMo/Megatron-Bridge#4660: mask by pad id drops EOS",
    theme="masks and shifts",
    symptom="Completions grow up to the length limit, because the policy never learns to stop.",
    caught_by=("loss.grpo.matches-definition", "loss.cispo.matches-definition"),
)
in_numpy(
    "loss.last-column-dropped",
    "loss:policy_loss",
    "loss.patches.baseline:without_last_column",
    mistake=(
        "the last column of the batch is left out of the loss: a completion cut by the length limit loses its last "
        "token"
    ),
    arises="labels shifted with [:, 1:] although log-probs are shifted already, and the mask cut to fit",
    theme="masks and shifts",
    symptom="No effect while completions end before the limit; truncated completions never learn their last token.",
    caught_by=("loss.grpo.matches-definition", "loss.gspo.matches-definition", "loss.cispo.matches-definition"),
)
in_numpy(
    "loss.float32-sum",
    "terms:total",
    "loss.patches.baseline:float32_sum",
    mistake="the terms of the loss are summed sequentially in float32",
    arises="an accumulator in the dtype of the data",
    theme="precision",
    symptom=(
        "No curve shows it: the loss of a million tokens is wrong in its fifth digit, and depends on the order of rows."
    ),
    caught_by=("loss.full-precision",),
)
in_numpy(
    "loss.negated-twice",
    "loss:policy_loss",
    "loss.patches.edits:negated",
    mistake="the objective is negated once per token and once more in the reduction",
    arises="a reduction copied from the paper, which maximises, applied to a per-token loss",
    source="fla-org/flash-linear-attention#1073: GRPO loss negated twice",
    theme="lost gradients",
    symptom="Reward falls from the first step and the KL rises: good completions become rarer.",
    caught_by=("loss.grpo.matches-definition", "loss.dapo.matches-definition"),
)
in_numpy(
    "loss.kl-subtracted",
    "loss:policy_loss",
    "loss.patches.edits:kl_subtracted",
    mistake="the KL is subtracted from the loss instead of added, so that drift is rewarded",
    arises="the sign of the paper's objective, which is maximised, kept in a loss",
    source=("qiancheng0/ToolRL#52: KL loss with wrong sign; mll-lab-nu/RAGEN#58: KL loss is maximised"),
    theme="KL",
    symptom="The KL accelerates; reward rises for a while, then training collapses.",
    caught_by=("loss.grpo.matches-definition", "loss.gmpo.matches-definition"),
)
in_numpy(
    "loss.clip-floor-at-epsilon",
    "loss:policy_loss",
    "loss.patches.edits:floor_at_epsilon",
    mistake="the lower bound of the ratio is ε instead of 1 − ε",
    arises="clamp(ratio, eps, 1 + eps)",
    source="ChenmienTan/RL2#21: clip range starts at ε",
    theme="ratio and rollout",
    symptom="The low clip fraction is 0: tokens of bad answers may fall to a fifth of their probability within a step.",
    caught_by=("loss.grpo.matches-definition", "loss.dapo.matches-definition"),
)
in_numpy(
    "loss.infinity-times-zero",
    "loss:_scaled",
    "loss.patches.baseline:gain_times_infinity",
    mistake="a ratio that overflows is multiplied by an advantage of 0",
    arises="exp(log_ratio) * advantage, without a clamp of either",
    source="OpenRLHF/OpenRLHF#1314: inf times 0 of a filtered ratio",
    theme="precision",
    symptom="The loss is NaN at the first stale token of a group whose rewards are all equal.",
    at="hardening",
    caught_by=("loss.extreme-ratios-stay-numbers",),
)
in_numpy(
    "loss.longest-row-is-the-width",
    "loss:policy_loss",
    "loss.patches.baseline:cut_to_the_longest",
    mistake="with lengths instead of a mask, the arrays are assumed to be as wide as the longest row",
    arises="lengths.max() instead of the array's width",
    source="speechbrain/speechbrain#3086: mask only as wide as the longest row",
    theme="masks and shifts",
    symptom=(
        "No effect while a batch is padded to its longest row; shapes do not match once it is padded to a multiple of "
        "64."
    ),
    caught_by=("loss.grpo.matches-definition",),
)
in_numpy(
    "loss.summed-without-mask",
    "loss:policy_loss",
    "loss.patches.baseline:summed_without_mask",
    mistake="without a mask the loss is a sum without a denominator",
    arises="denominator = mask.sum() if mask is not None else 1",
    theme="normalisation",
    symptom=(
        "Batches of equal lengths, which need no mask, make steps a thousand times too large; ragged batches are right."
    ),
    caught_by=("loss.grpo.matches-definition",),
)
