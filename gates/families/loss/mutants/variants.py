"""Mutations of the policy losses that came after DAPO: GSPO, CISPO, SAPO, GMPO, LUSPO."""

from gates.families.hosts import in_numpy

in_numpy(
    "loss.gspo-token-ratio",
    "loss:policy_loss",
    "loss.patches.edits:token_ratio",
    mistake="GSPO is computed with token ratios instead of the sequence's",
    arises="importance_sampling_level left at its default, token",
    source="MakazhanAlpamys/Soup#723: gspo without a sequence ratio",
    theme="ratio and rollout",
    symptom="A GSPO run has the clip fraction of token ratios: single tokens are clipped instead of rows.",
    caught_by=("loss.gspo.matches-definition",),
)
in_numpy(
    "loss.gspo-detached",
    "loss:policy_loss",
    "loss.patches.baseline:detached_mean",
    mistake="a token's gradient ignores the other tokens of its sequence's ratio: it is divided by n once more",
    arises="the mean ratio differentiated as if only one token used it",
    theme="lost gradients",
    symptom="Learning slows with completion length: the gradient of a row of n tokens is n times too small.",
    caught_by=("loss.gspo.matches-definition", "loss.luspo.matches-definition"),
)
in_numpy(
    "loss.gspo-token-row-advantage",
    "loss:policy_loss",
    "loss.patches.edits:row_advantages",
    mistake="GSPO-token uses the mean of a row's advantages for all its tokens, which makes it GSPO",
    arises="advantages reduced to one per row before the loss",
    theme="advantages",
    symptom="Token-wise advantages have no effect: the curve is GSPO's.",
    caught_by=("loss.gspo-token.matches-definition",),
)
in_numpy(
    "loss.gspo-token-token-ratio",
    "loss:policy_loss",
    "loss.patches.edits:token_ratio",
    mistake="GSPO-token weights each token by its own ratio",
    arises="the stop-gradient trick written without the sequence's ratio",
    theme="ratio and rollout",
    symptom="Single tokens are clipped instead of rows; the clip fraction is ten times lower than GSPO's.",
    caught_by=("loss.gspo-token.matches-definition",),
)
in_numpy(
    "loss.cispo-bounds-swapped",
    "loss:policy_loss",
    "loss.patches.edits:other_cap",
    mistake="CISPO's two caps, ε_high and 1 + ε_high, are exchanged",
    arises="MiniMax-M1's and TRL's conventions under one name",
    theme="configuration",
    symptom=(
        "The weights are capped at 0.28 instead of 1.28, or at 6 instead of 5: the gradient is a quarter of the "
        "correct one, or slightly too large."
    ),
    caught_by=("loss.cispo.matches-definition",),
)
in_numpy(
    "loss.cispo-live-ratio",
    "loss:policy_loss",
    "loss.patches.edits:live_cap",
    mistake="CISPO's gradient flows through the truncated ratio and is 0 where it is capped",
    arises="a missing stop-gradient",
    theme="lost gradients",
    symptom="A CISPO run behaves like PPO: rare reasoning tokens get no gradient once they are capped.",
    caught_by=("loss.cispo.matches-definition",),
)
in_numpy(
    "loss.cispo-clipped-away",
    "loss:policy_loss",
    "loss.patches.edits:dropped_tokens",
    mistake="CISPO drops tokens beyond its cap instead of capping their weight",
    arises="PPO's clip kept under CISPO's name",
    theme="lost gradients",
    symptom=(
        "Rare tokens such as 'However' stop appearing: their gradient is dropped when their weight reaches the cap."
    ),
    caught_by=("loss.cispo.matches-definition",),
)
in_numpy(
    "loss.sapo-temperatures-swapped",
    "loss:policy_loss",
    "loss.patches.edits:swapped_temperatures",
    mistake="SAPO's temperatures are swapped: bad tokens get the milder gate",
    arises="τ_pos and τ_neg swapped in the branches of a where()",
    theme="configuration",
    symptom="Training is less stable, because tokens of bad answers keep a wide gate.",
    caught_by=("loss.sapo.matches-definition",),
)
in_numpy(
    "loss.sapo-unnormalised",
    "loss:policy_loss",
    "loss.patches.edits:gate_without_factor",
    mistake="SAPO's gate lacks the factor 4/τ: a quarter of the gradient at r = 1",
    arises="the plain sigmoid used as the gate",
    theme="normalisation",
    symptom="Learning is four times slower from the first step; it looks like too low a learning rate.",
    caught_by=("loss.sapo.matches-definition",),
)
in_numpy(
    "loss.sapo-log-ratio",
    "loss:policy_loss",
    "loss.patches.edits:gate_of_log_ratio",
    mistake="SAPO's gate depends on log r instead of r − 1",
    arises="the log-ratio as the numerically more convenient argument",
    theme="ratio and rollout",
    symptom=(
        "No effect near the old policy; far from it, tokens that became rarer get larger gradients than those that gained."
    ),
    caught_by=("loss.sapo.matches-definition",),
)
in_numpy(
    "loss.gmpo-linear-clip",
    "loss:policy_loss",
    "loss.patches.edits:linear_clip",
    mistake="GMPO clips the ratio to 1 ± ε instead of its logarithm to ±ε",
    arises="PPO's clip range reused",
    theme="ratio and rollout",
    symptom=(
        "No effect for a small epsilon; with exp(0.4) the lower side clips earlier, and the clip fraction is higher."
    ),
    caught_by=("loss.gmpo.matches-definition",),
)
in_numpy(
    "loss.gmpo-two-sided",
    "loss:policy_loss",
    "loss.patches.edits:both_sides",
    mistake="GMPO clips both sides for every sign of the advantage",
    arises="clamp(D, −ε, ε) without the minimum over signs",
    theme="lost gradients",
    symptom="Tokens that moved in the wrong direction get no gradient back; recovery after a bad step is slow.",
    caught_by=("loss.gmpo.matches-definition",),
)
in_numpy(
    "loss.luspo-without-length",
    "loss:policy_loss",
    "loss.patches.edits:row_mean",
    mistake="LUSPO's rows are not weighted by their length",
    arises="GSPO's aggregation kept",
    theme="normalisation",
    symptom="Length shrinks or grows as with GSPO: LUSPO's length correction is missing.",
    caught_by=("loss.luspo.matches-definition",),
)
in_numpy(
    "loss.luspo-mean-kl",
    "loss:policy_loss",
    "loss.patches.edits:kl_of_row_means",
    mistake="LUSPO's KL is averaged over a row's tokens instead of summed",
    arises="the KL averaged per sequence, as in GSPO",
    theme="KL",
    symptom="The KL grows in proportion to completion length, since each row's penalty is divided by its tokens.",
    caught_by=("loss.luspo.matches-definition",),
)
in_numpy(
    "loss.rloo-clip-forgotten",
    "loss:policy_loss",
    "loss.patches.edits:inert_clip",
    mistake="RLOO's ratio is not clipped although a clip is set",
    arises="the paper's loss, while TRL's trainer clips",
    theme="ratio and rollout",
    symptom="No effect on-policy; later updates of a rollout move long completions much too far.",
    caught_by=("loss.rloo.matches-definition",),
)
in_numpy(
    "loss.kl-clamp-forgotten",
    "loss:policy_loss",
    "loss.patches.edits:kl_unclamped",
    mistake="the clamp of the KL estimate is not applied",
    arises="a keyword that is read but not passed on",
    theme="KL",
    symptom="Rare steps have a huge KL loss, from tokens that became very unlikely for the policy.",
    caught_by=("loss.grpo.matches-definition", "loss.dapo.matches-definition", "loss.gspo.matches-definition"),
)
in_numpy(
    "loss.reinforce-with-ratio",
    "loss:policy_loss",
    "loss.patches.edits:token_ratio",
    mistake="REINFORCE uses r·A instead of A·log π",
    arises="PPO's surrogate without the clip",
    theme="ratio and rollout",
    symptom="No effect on-policy; with several updates per rollout, steps grow where the policy has already moved.",
    caught_by=("loss.reinforce.matches-definition",),
)
in_numpy(
    "loss.reinforce++-row-mean",
    "loss:policy_loss",
    "loss.patches.edits:row_mean",
    mistake="REINFORCE++'s token mean over the step is taken row by row",
    arises="GRPO's loss used with REINFORCE++'s advantages",
    theme="normalisation",
    symptom="Length grows: tokens of long wrong answers weigh less than those of short ones.",
    caught_by=("loss.reinforcepp.matches-definition",),
)
in_numpy(
    "loss.ppo-without-dual-clip",
    "loss:policy_loss",
    "loss.patches.edits:delta_ignored",
    mistake="PPO's dual clip for negative advantages is missing",
    arises="the clipped surrogate of the original PPO paper",
    source="verl's clip_ratio_c, which older trainers do not read",
    theme="ratio and rollout",
    symptom=(
        "Rare tokens with a ratio of ten or more cause spikes of the gradient norm, always in rows with bad rewards."
    ),
    caught_by=("loss.ppo.matches-definition",),
)
in_numpy(
    "loss.vespo-power-and-decay-swapped",
    "loss:policy_loss",
    "loss.patches.edits:power_and_decay_swapped",
    mistake="VESPO's k and λ are exchanged",
    arises="two numbers per sign, passed by position",
    theme="configuration",
    symptom="Stale rows weigh too much on one side of 1 and too little on the other; no curve shows it.",
    caught_by=("loss.vespo.matches-definition",),
)
in_numpy(
    "loss.aggregation-not-passed-on",
    "loss:policy_loss",
    "loss.patches.baseline:own_aggregation",
    mistake="a configured aggregation other than the algorithm's default is not passed on",
    arises="a loss that selects its denominator by the algorithm's name",
    theme="configuration",
    symptom="Runs with a token mean and runs with a row mean are identical.",
    caught_by=("loss.variants.match-definitions",),
)
in_numpy(
    "loss.ratio-level-not-passed-on",
    "loss:policy_loss",
    "loss.patches.edits:row_ratio",
    mistake="the row's mean ratio is used for every configured level",
    arises="GSPO's loss with options for bound and aggregation, but not for the ratio",
    theme="ratio and rollout",
    symptom="Clip fractions are those of rows: at first no row is clipped, later whole rows are.",
    caught_by=("loss.compositions.match-definitions",),
)
