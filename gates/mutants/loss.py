"""Mistakes in policy losses."""

from gates.mutants.planting import in_numpy, in_trainer

in_numpy(
    "loss.dr-grpo-padded-length",
    "dr_grpo_denominator",
    "padded_length",
    mistake="Dr. GRPO divides by the longest completion of the batch instead of the configured L_max",
    source="mlxrl 0.2.4 DrGRPOAlgorithm without max_tokens: `float(self.max_tokens or mask.shape[1])`",
    caught_by=("loss.dr-grpo.matches-definition",),
)
in_numpy(
    "loss.dapo-per-row-mean",
    "policy_loss",
    "per_row_mean",
    mistake="DAPO's token mean over the step is taken row by row, so long answers weigh less",
    arises="GRPO's aggregation kept when the clip was widened",
    caught_by=("loss.dapo.matches-definition",),
)
in_numpy(
    "loss.bnpo-one-micro-batch",
    "policy_loss",
    "one_micro_batch",
    mistake="the token mean runs over the whole batch where each micro-batch has its own",
    arises="gradient accumulation rewritten as one batch",
    caught_by=("loss.bnpo-trl.matches-definition",),
)
in_numpy(
    "loss.gspo-token-ratio",
    "policy_loss",
    "per_row_mean",
    mistake="GSPO is computed with token ratios instead of the sequence's",
    arises="importance_sampling_level left at its default, token",
    caught_by=("loss.gspo.matches-definition",),
)
in_numpy(
    "loss.rloo-constant-ratio",
    "sequence_ratio",
    "constant_ratio",
    mistake="old log-probs are ignored: every sequence ratio is 1",
    source="mlxrl 0.2.4 RLOOAlgorithm.compute_loss: `del old_policy_logprobs`",
    caught_by=("loss.rloo.matches-definition",),
)
in_numpy(
    "loss.ratio-constant",
    "token_ratio",
    "constant_ratio",
    mistake="old log-probs are those of this very step: every ratio is 1, and epsilon is inert",
    source="mlx-lm-lora 5.10.2: the same gradient for epsilon 1e-4 and 10",
    caught_by=("loss.grpo.matches-definition",),
)
in_numpy(
    "loss.clip-never-acts",
    "policy_loss",
    "inert_clip",
    mistake="the clip's bounds are so wide that they never act",
    arises="an epsilon that is read and not passed on",
    caught_by=("loss.grpo.matches-definition",),
)
in_numpy(
    "loss.nan-times-zero-plain",
    "select",
    "multiply_by_mask",
    mistake="masked slots are multiplied by 0 instead of selected away",
    arises="values * mask",
    caught_by=("loss.padding-is-inert",),
)
in_trainer(
    "loss.nan-times-zero",
    "algorithms.grpo:select",
    "multiply_by_mask",
    mistake="masked slots are multiplied by 0 instead of selected away",
    source="mlxrl 0.2.4 masked_mean: `mx.sum(values * mask)`",
    caught_by=("loss.padding-is-inert",),
)
in_trainer(
    "loss.token-mean",
    "algorithms.grpo:aggregate",
    "token_mean",
    mistake="tokens of the batch are averaged where rows of their own means should be",
    source="mlxrl 0.2.4 GRPOAlgorithm: −0.0979 against +0.0963",
    caught_by=("loss.grpo.matches-definition",),
)
in_trainer(
    "loss.kl-inverted",
    "algorithms.grpo:token_kl",
    "inverted_kl",
    mistake="policy and reference are swapped in the loss's k3",
    source="rlox 1.2 compute_token_kl_schulman",
    caught_by=("loss.grpo.matches-definition",),
)
