"""Mutations of the trainer's losses."""

from __future__ import annotations

from gates.families.hosts import in_trainer

in_trainer(
    "loss.kl-over-padding",
    "algorithms.ratio:weighted_kl",
    "loss.patches.trainer:mean_over_padding",
    mistake="the KL is averaged over the padded width instead of the tokens",
    arises="kl.mean(axis=1) of masked values",
    source="peremartra/optipfair#34: KL averaged over padding too",
    theme="normalisation",
    symptom="The KL is too small when one completion of the batch is long; the policy drifts more in ragged batches.",
    caught_by=("loss.grpo.matches-definition", "loss.sapo.matches-definition"),
)
in_trainer(
    "loss.sequence-sum-for-mean",
    "algorithms.ratio:sequence_mean",
    "loss.patches.trainer:sum_for_mean",
    mistake="the completion's log-ratio is the sum over its tokens instead of their mean",
    arises="GSPO's length normalisation forgotten",
    source="walkinglabs/hands-on-modern-rl#75: ratio of summed log-probs",
    theme="ratio and rollout",
    symptom="The ratio of long rows is far from 1 at once: nearly every row is clipped, and learning stops.",
    caught_by=("loss.gspo.matches-definition", "loss.gspo-token.matches-definition", "ratio.matches-definition"),
)
in_trainer(
    "loss.old-is-new",
    "algorithms.ratio:token",
    "loss.patches.trainer:constant_ratio",
    mistake=(
        "the old log-probs are those of the current update: the ratio is always 1, even with several updates per batch"
    ),
    source=(
        "mlx-lm-lora 5.10.2: the same gradient for epsilon 1e-4 and 10; inclusionAI/AReno#68: ratio of new to itself"
    ),
    theme="ratio and rollout",
    symptom=(
        "The clip fraction is always 0; with several updates per rollout the policy drifts without a bound and "
        "collapses."
    ),
    caught_by=("loss.gspo.matches-definition", "loss.dapo.matches-definition", "loss.rloo.matches-definition"),
)
in_trainer(
    "loss.gspo-detached-mean",
    "algorithms.ratio:sequence_mean",
    "loss.patches.trainer:detached",
    mistake="the completion's mean ratio is detached, so that the policy term has no gradient",
    arises="a stop-gradient copied from GSPO-token",
    source="Goekdeniz-Guelmez/mlx-lm-lora#50: constant ratio, no policy gradient",
    theme="lost gradients",
    symptom="The loss has the right value and the gradient norm is 0, or the KL's alone; reward is flat.",
    caught_by=("loss.gspo.matches-definition", "loss.luspo.matches-definition"),
)
