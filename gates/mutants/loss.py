"""Mistakes in policy losses."""

from gates.mutants.planting import in_numpy, in_trainer

in_numpy(
    "loss.dr-grpo-padded-length",
    "numpy_loss:dr_grpo_denominator",
    "padded_length",
    mistake="Dr. GRPO divides by the longest completion of the batch instead of the configured L_max",
    source="mlxrl 0.2.4 DrGRPOAlgorithm without max_tokens: `float(self.max_tokens or mask.shape[1])`",
    caught_by=("loss.dr-grpo.matches-definition",),
)
in_numpy(
    "loss.dapo-per-row-mean",
    "numpy_loss:policy_loss",
    "per_row_mean",
    mistake="DAPO's token mean over the step is taken row by row, so long answers weigh less",
    arises="GRPO's aggregation kept when the clip was widened",
    caught_by=("loss.dapo.matches-definition",),
)
in_numpy(
    "loss.bnpo-one-micro-batch",
    "numpy_loss:policy_loss",
    "one_micro_batch",
    mistake="the token mean runs over the whole batch where each micro-batch has its own",
    arises="gradient accumulation rewritten as one batch",
    caught_by=("loss.bnpo-trl.matches-definition",),
)
in_numpy(
    "loss.gspo-token-ratio",
    "numpy_loss:policy_loss",
    "per_row_mean",
    mistake="GSPO is computed with token ratios instead of the sequence's",
    arises="importance_sampling_level left at its default, token",
    caught_by=("loss.gspo.matches-definition",),
)
in_numpy(
    "loss.rloo-constant-ratio",
    "numpy_ratio:sequence_ratio",
    "constant_ratio",
    mistake="old log-probs are ignored: every sequence ratio is 1",
    source="mlxrl 0.2.4 RLOOAlgorithm.compute_loss: `del old_policy_logprobs`",
    caught_by=("loss.rloo.matches-definition",),
)
in_numpy(
    "loss.ratio-constant",
    "numpy_ratio:token_ratio",
    "constant_ratio",
    mistake="old log-probs are those of this very step: every ratio is 1, and epsilon is inert",
    source="mlx-lm-lora 5.10.2: the same gradient for epsilon 1e-4 and 10",
    caught_by=("loss.grpo.matches-definition",),
)
in_numpy(
    "loss.clip-never-acts",
    "numpy_loss:policy_loss",
    "inert_clip",
    mistake="the clip's bounds are so wide that they never act",
    arises="an epsilon that is read and not passed on",
    caught_by=("loss.grpo.matches-definition",),
)
in_numpy(
    "loss.nan-times-zero-plain",
    "numpy_terms:select",
    "multiply_by_mask",
    mistake="masked slots are multiplied by 0 instead of selected away",
    arises="values * mask",
    caught_by=("loss.padding-is-inert",),
)
in_trainer(
    "loss.nan-times-zero",
    "algorithms.ratio:select",
    "multiply_by_mask",
    mistake="masked slots are multiplied by 0 instead of selected away",
    source="mlxrl 0.2.4 masked_mean: `mx.sum(values * mask)`",
    caught_by=("loss.padding-is-inert",),
)
in_trainer(
    "loss.token-mean",
    "algorithms.aggregation:row_weights",
    "token_mean",
    mistake="tokens of the batch are averaged where rows of their own means should be",
    source="mlxrl 0.2.4 GRPOAlgorithm: −0.0979 against +0.0963",
    caught_by=("loss.grpo.matches-definition",),
)
in_trainer(
    "loss.kl-inverted",
    "algorithms.kl:token_kl",
    "inverted_kl",
    mistake="policy and reference are swapped in the loss's k3",
    source="rlox 1.2 compute_token_kl_schulman",
    caught_by=("loss.grpo.matches-definition",),
)
in_numpy(
    "loss.dapo-denominators-swapped",
    "numpy_loss:policy_loss",
    "loss:denominators_swapped",
    mistake="DAPO's token mean runs over the step where prompts have their own, and the other way round",
    arises="the paper's equation 8 is per prompt, its code and verl's per step",
    caught_by=("loss.dapo.matches-definition", "loss.cispo.matches-definition"),
)
in_numpy(
    "loss.dapo-window-forgotten",
    "numpy_loss:policy_loss",
    "loss:window_forgotten",
    mistake="a window divides by its own tokens instead of its share of the generation batch's",
    arises="a per-micro-batch denominator, which micro-batching may not have",
    caught_by=("loss.dapo.matches-definition",),
)
in_numpy(
    "loss.clip-sides-swapped",
    "numpy_loss:policy_loss",
    "loss:sides_swapped",
    mistake="ε_low bounds the ratio from above and ε_high from below",
    arises="clip-higher applied to the wrong side",
    caught_by=("loss.dapo.matches-definition", "loss.gspo.matches-definition", "loss.gmpo.matches-definition"),
)
in_numpy(
    "loss.delta-forgotten",
    "numpy_loss:policy_loss",
    "loss:delta_forgotten",
    mistake="the second bound δ is not applied",
    arises="a keyword that is read and not passed on",
    caught_by=("loss.grpo.matches-definition",),
)
in_numpy(
    "loss.delta-for-gains",
    "numpy_loss:clipped",
    "loss:delta_for_gains",
    mistake="δ replaces 1 + ε_high under a positive advantage",
    arises="min(r, δ) taken for the clip",
    caught_by=("loss.grpo.matches-definition",),
)
in_numpy(
    "loss.gspo-detached",
    "numpy_loss:policy_loss",
    "loss:detached_mean",
    mistake="one token's gradient misses the other tokens of its sequence's ratio: it is divided by n once more",
    arises="the mean ratio differentiated as if it stood once in its row's sum",
    caught_by=("loss.gspo.matches-definition", "loss.luspo.matches-definition"),
)
in_numpy(
    "loss.gspo-token-row-advantage",
    "numpy_loss:policy_loss",
    "loss:row_advantage",
    mistake="GSPO-token shares the mean of a row's advantages among its tokens, which makes it GSPO",
    arises="advantages reduced to one a row before the loss",
    caught_by=("loss.gspo-token.matches-definition",),
)
in_numpy(
    "loss.gspo-token-token-ratio",
    "numpy_loss:policy_loss",
    "loss:token_ratio_for_sequence",
    mistake="GSPO-token weighs each token with its own ratio",
    arises="the stop-gradient trick written without the sequence's ratio",
    caught_by=("loss.gspo-token.matches-definition",),
)
in_numpy(
    "loss.cispo-bounds-swapped",
    "numpy_loss:policy_loss",
    "loss:cispo_bounds_swapped",
    mistake="CISPO's cap is ε_high where it is 1 + ε_high, and the other way round",
    arises="MiniMax-M1's and TRL's conventions under one name",
    caught_by=("loss.cispo.matches-definition",),
)
in_numpy(
    "loss.cispo-live-ratio",
    "numpy_loss:truncated",
    "loss:live_ratio",
    mistake="CISPO's gradient flows through the truncated ratio, and dies where it is capped",
    arises="a stop-gradient that is missing",
    caught_by=("loss.cispo.matches-definition",),
)
in_numpy(
    "loss.cispo-clipped-away",
    "numpy_loss:truncated",
    "loss:clipped_away",
    mistake="CISPO drops the tokens beyond its cap instead of capping their weight",
    arises="PPO's clip kept under CISPO's name",
    caught_by=("loss.cispo.matches-definition",),
)
in_numpy(
    "loss.sapo-temperatures-swapped",
    "numpy_loss:policy_loss",
    "loss:temperatures_swapped",
    mistake="SAPO's temperatures are swapped: bad tokens get the milder gate",
    arises="τ_pos and τ_neg in the order of two where() branches",
    caught_by=("loss.sapo.matches-definition",),
)
in_numpy(
    "loss.sapo-unnormalised",
    "numpy_loss:gate",
    "loss:unnormalised_gate",
    mistake="SAPO's gate is σ(τ(r − 1)) without 4/τ: a quarter of the gradient at r = 1",
    arises="the sigmoid taken for the gate",
    caught_by=("loss.sapo.matches-definition",),
)
in_numpy(
    "loss.sapo-log-ratio",
    "numpy_loss:gate",
    "loss:gate_of_log_ratio",
    mistake="SAPO's gate opens with log r instead of r − 1",
    arises="a numerically kinder argument",
    caught_by=("loss.sapo.matches-definition",),
)
in_numpy(
    "loss.gmpo-linear-clip",
    "numpy_loss:held",
    "loss:linear_clip",
    mistake="GMPO's bounds are 1 ± ε of the ratio instead of ±ε of its logarithm",
    arises="PPO's clip range reused",
    caught_by=("loss.gmpo.matches-definition",),
)
in_numpy(
    "loss.gmpo-two-sided",
    "numpy_loss:held",
    "loss:both_sides",
    mistake="GMPO clips both sides whatever the advantage",
    arises="clamp(D, −ε, ε) without the minimum over signs",
    caught_by=("loss.gmpo.matches-definition",),
)
in_numpy(
    "loss.luspo-without-length",
    "numpy_loss:policy_loss",
    "loss:luspo_as_gspo",
    mistake="LUSPO's rows do not weigh by their length",
    arises="GSPO's aggregation kept",
    caught_by=("loss.luspo.matches-definition",),
)
in_numpy(
    "loss.luspo-mean-kl",
    "numpy_loss:kl_term",
    "loss:mean_kl",
    mistake="LUSPO's KL is averaged over a row's tokens instead of summed",
    arises="the KL added per sequence before the length multiplies",
    caught_by=("loss.luspo.matches-definition",),
)
in_numpy(
    "loss.kl-estimators-swapped",
    "numpy_loss:estimate",
    "loss:estimators_swapped",
    mistake="k1 and k2 are swapped in the loss",
    arises="kl_penalty names of two libraries",
    caught_by=("loss.grpo.matches-definition", "loss.gmpo.matches-definition"),
)
in_numpy(
    "loss.kl-ratio-levels-swapped",
    "numpy_loss:kl_term",
    "loss:kl_levels_swapped",
    mistake="the KL is multiplied by the token's ratio where the sequence's is asked for, and the other way round",
    arises="the KL's ratio taken from the loss's other branch",
    caught_by=("loss.dapo.matches-definition", "loss.gspo.matches-definition"),
)
in_numpy(
    "loss.kl-ratio-constant",
    "numpy_loss:kl_term",
    "loss:kl_ratio_constant",
    mistake="the ratio that multiplies the KL is detached, so the gradient is r(1 − exp d) instead of −r d",
    arises="a stop-gradient on the ratio before it meets the KL",
    caught_by=("loss.grpo.matches-definition", "loss.sapo.matches-definition"),
)
in_numpy(
    "loss.weights-lower-denominator",
    "numpy_loss:policy_loss",
    "loss:lowered_denominator",
    mistake="tokens whose off-policy weight is 0 leave the denominator",
    arises="masked importance sampling written as a smaller mask",
    caught_by=("loss.grpo.matches-definition", "loss.dapo.matches-definition"),
)
in_numpy(
    "loss.weights-on-kl",
    "numpy_loss:policy_loss",
    "loss:weights_on_kl",
    mistake="off-policy weights multiply the KL too",
    arises="the weight applied after +β·KL",
    caught_by=("loss.grpo.matches-definition",),
)
in_numpy(
    "loss.weights-forgotten",
    "numpy_loss:policy_loss",
    "loss:weights_forgotten",
    mistake="off-policy weights are not applied",
    arises="a keyword that is read and not passed on",
    caught_by=("loss.rloo.matches-definition", "loss.luspo.matches-definition"),
)
in_numpy(
    "loss.lengths-off-by-one",
    "numpy_loss:policy_loss",
    "loss:without_last_token",
    mistake="the last token of a row, its EOS, is not counted",
    arises="a mask that ends before the first EOS",
    caught_by=("loss.grpo.matches-definition", "loss.cispo.matches-definition"),
)
in_numpy(
    "loss.float32-sum",
    "numpy_terms:total",
    "loss:float32_sum",
    mistake="the terms of the loss are added one by one in float32",
    arises="an accumulator of the data's dtype",
    caught_by=("loss.full-precision",),
)
