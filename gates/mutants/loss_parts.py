"""Mistakes of the trainer's losses: denominators of parts, means over padding, gradients that leak."""

from gates.mutants.planting import in_trainer

PARTS, REWARD = "trainer.micro-batches.add-up", "loss.rloo.kl-in-reward"

in_trainer(
    "loss.denominators-of-parts",
    "algorithms.aggregation:row_weights",
    "trainer_loss:denominators_of_parts",
    mistake="each micro-batch divides by its own rows and tokens, and the micro-batches are averaged",
    arises="loss.mean() / accumulation_steps",
    source=(
        "ml-explore/mlx-lm#1413: mean of micro-batch means; PrimeIntellect-ai/prime-rl#583: normalised per "
        "micro-batch, not batch"
    ),
    theme="normalisation",
    symptom="Loss and gradient change with the micro-batch size at the same batch; short completions weigh more.",
    caught_by=(PARTS,),
)
in_trainer(
    "loss.token-means-of-parts",
    "algorithms.aggregation:row_weights",
    "trainer_loss:token_means_of_parts",
    mistake="every aggregation is the token mean of a micro-batch",
    arises="masked_mean in the loss, whatever the algorithm",
    source=(
        "verl-project/verl#5625: micro-batch token means, sample weights; verl-project/verl#906: token mean "
        "weighted as sequence mean"
    ),
    theme="normalisation",
    symptom="Every algorithm gives the same curve, and it moves with the micro-batch size.",
    caught_by=(PARTS, "loss.grpo.matches-definition"),
)
in_trainer(
    "loss.kl-over-padding",
    "algorithms.kl:weighted",
    "trainer_loss:mean_over_padding",
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
    "trainer_loss:sum_for_mean",
    mistake="the completion's log-ratio is the sum over its tokens where it should be their mean",
    arises="GSPO's length normalisation forgotten",
    source="walkinglabs/hands-on-modern-rl#75: ratio of summed log-probs",
    theme="ratio and rollout",
    symptom="The ratio of long rows is far from 1 at once: nearly every row is clipped, and learning stops.",
    caught_by=("loss.gspo.matches-definition", "loss.gspo-token.matches-definition", "ratio.matches-definition"),
)
in_trainer(
    "loss.old-is-new",
    "algorithms.ratio:token",
    "constant_ratio",
    mistake="with several updates of a batch the old log-probs are this update's own: the ratio is always 1",
    source=(
        "mlx-lm-lora 5.10.2: the same gradient for epsilon 1e-4 and 10; inclusionAI/AReno#68: ratio of new to itself"
    ),
    theme="ratio and rollout",
    symptom="Clip fraction 0 for ever; several updates a rollout drift without a bound and then collapse.",
    caught_by=("loss.gspo.matches-definition", "loss.dapo.matches-definition", "loss.rloo.matches-definition"),
)
in_trainer(
    "loss.gspo-detached-mean",
    "algorithms.ratio:sequence_mean",
    "trainer_loss:detached",
    mistake="the completion's mean ratio is a constant, so nothing is learned",
    arises="a stop-gradient copied from GSPO-token",
    source="Goekdeniz-Guelmez/mlx-lm-lora#50: constant ratio, no policy gradient",
    theme="lost gradients",
    symptom="The loss has the right value and the gradient norm is 0, or the KL's alone; reward is flat.",
    caught_by=("loss.gspo.matches-definition", "loss.luspo.matches-definition"),
)
in_trainer(
    "loss.kl-in-reward-leaks",
    "algorithms.objective:kl_penalty",
    "trainer_loss:leaking_kl",
    mistake="the KL in the reward keeps its gradient; the loss has the right value",
    arises="rewards - beta * kl, computed inside the loss",
    theme="lost gradients",
    symptom="Loss and KL look right; the policy is pulled to the reference twice, once through the reward.",
    caught_by=(REWARD,),
)
in_trainer(
    "loss.kl-in-reward-raises",
    "algorithms.advantages:penalised",
    "trainer_loss:raised_reward",
    mistake="the KL is added to the reward: drift is rewarded",
    arises="a sign: k1 is old - reference, and -log-ratio elsewhere",
    theme="KL",
    symptom="Reward with KL rises steadily while the text decays: drift itself is paid for.",
    caught_by=(REWARD,),
)
in_trainer(
    "loss.kl-in-reward-averaged",
    "algorithms.kl:in_reward",
    "trainer_loss:averaged_penalty",
    mistake="the KL in the reward is the mean over a completion's tokens instead of their sum",
    arises="the reduction of the loss's KL reused",
    theme="KL",
    symptom="KL grows linearly with completion length: a long answer pays no more than a short one.",
    caught_by=(REWARD,),
)
