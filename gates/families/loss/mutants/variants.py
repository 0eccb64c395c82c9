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
    symptom="A run called GSPO whose clip fraction is that of token ratios: single tokens are clipped, rows are not.",
    caught_by=("loss.gspo.matches-definition",),
)
in_numpy(
    "loss.gspo-detached",
    "loss:policy_loss",
    "loss.patches.baseline:detached_mean",
    mistake="one token's gradient misses the other tokens of its sequence's ratio: it is divided by n once more",
    arises="the mean ratio differentiated as if it stood once in its row's sum",
    theme="lost gradients",
    symptom="Learning slows with completion length: the gradient of a row of n tokens is n times too small.",
    caught_by=("loss.gspo.matches-definition", "loss.luspo.matches-definition"),
)
in_numpy(
    "loss.gspo-token-row-advantage",
    "loss:policy_loss",
    "loss.patches.edits:row_advantages",
    mistake="GSPO-token shares the mean of a row's advantages among its tokens, which makes it GSPO",
    arises="advantages reduced to one a row before the loss",
    theme="advantages",
    symptom="Token-wise advantages have no effect: the curve is GSPO's.",
    caught_by=("loss.gspo-token.matches-definition",),
)
in_numpy(
    "loss.gspo-token-token-ratio",
    "loss:policy_loss",
    "loss.patches.edits:token_ratio",
    mistake="GSPO-token weighs each token with its own ratio",
    arises="the stop-gradient trick written without the sequence's ratio",
    theme="ratio and rollout",
    symptom="The clip acts on single tokens instead of rows; the clip fraction is ten times lower than GSPO's.",
    caught_by=("loss.gspo-token.matches-definition",),
)
in_numpy(
    "loss.cispo-bounds-swapped",
    "loss:policy_loss",
    "loss.patches.edits:other_cap",
    mistake="CISPO's cap is ε_high where it is 1 + ε_high, and the other way round",
    arises="MiniMax-M1's and TRL's conventions under one name",
    theme="configuration",
    symptom="The weights are capped at 0.28 or at 5: the gradient is a quarter of what it should be, or hardly capped.",
    caught_by=("loss.cispo.matches-definition",),
)
in_numpy(
    "loss.cispo-live-ratio",
    "loss:policy_loss",
    "loss.patches.edits:live_cap",
    mistake="CISPO's gradient flows through the truncated ratio, and dies where it is capped",
    arises="a stop-gradient that is missing",
    theme="lost gradients",
    symptom="A CISPO run that behaves like PPO: rare reasoning tokens get no gradient once they are capped.",
    caught_by=("loss.cispo.matches-definition",),
)
in_numpy(
    "loss.cispo-clipped-away",
    "loss:policy_loss",
    "loss.patches.edits:dropped_tokens",
    mistake="CISPO drops the tokens beyond its cap instead of capping their weight",
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
    arises="τ_pos and τ_neg in the order of two where() branches",
    theme="configuration",
    symptom="Less stable than it should be: tokens of bad answers keep a wide gate.",
    caught_by=("loss.sapo.matches-definition",),
)
in_numpy(
    "loss.sapo-unnormalised",
    "loss:policy_loss",
    "loss.patches.edits:gate_without_factor",
    mistake="SAPO's gate is σ(τ(r − 1)) without 4/τ: a quarter of the gradient at r = 1",
    arises="the sigmoid taken for the gate",
    theme="normalisation",
    symptom="Learning is four times slower from the first step; it looks like too low a learning rate.",
    caught_by=("loss.sapo.matches-definition",),
)
in_numpy(
    "loss.sapo-log-ratio",
    "loss:policy_loss",
    "loss.patches.edits:gate_of_log_ratio",
    mistake="SAPO's gate opens with log r instead of r − 1",
    arises="a numerically kinder argument",
    theme="ratio and rollout",
    symptom=(
        "Nothing near the old policy; far from it, tokens that became rarer are pulled harder than those that gained."
    ),
    caught_by=("loss.sapo.matches-definition",),
)
in_numpy(
    "loss.gmpo-linear-clip",
    "loss:policy_loss",
    "loss.patches.edits:linear_clip",
    mistake="GMPO's bounds are 1 ± ε of the ratio instead of ±ε of its logarithm",
    arises="PPO's clip range reused",
    theme="ratio and rollout",
    symptom="Nothing for a small epsilon; with exp(0.4) the lower side clips earlier, and the clip fraction is higher.",
    caught_by=("loss.gmpo.matches-definition",),
)
in_numpy(
    "loss.gmpo-two-sided",
    "loss:policy_loss",
    "loss.patches.edits:both_sides",
    mistake="GMPO clips both sides whatever the advantage",
    arises="clamp(D, −ε, ε) without the minimum over signs",
    theme="lost gradients",
    symptom="Tokens that moved the wrong way get no gradient back; recovery after a bad step is slow.",
    caught_by=("loss.gmpo.matches-definition",),
)
in_numpy(
    "loss.luspo-without-length",
    "loss:policy_loss",
    "loss.patches.edits:row_mean",
    mistake="LUSPO's rows do not weigh by their length",
    arises="GSPO's aggregation kept",
    theme="normalisation",
    symptom="Length shrinks or grows as with GSPO: the correction that LUSPO promises is not there.",
    caught_by=("loss.luspo.matches-definition",),
)
in_numpy(
    "loss.luspo-mean-kl",
    "loss:policy_loss",
    "loss.patches.edits:kl_of_row_means",
    mistake="LUSPO's KL is averaged over a row's tokens instead of summed",
    arises="the KL added per sequence before the length multiplies",
    theme="KL",
    symptom="The KL grows in proportion to completion length, since each row's penalty is divided by its tokens.",
    caught_by=("loss.luspo.matches-definition",),
)
in_numpy(
    "loss.rloo-clip-forgotten",
    "loss:policy_loss",
    "loss.patches.edits:inert_clip",
    mistake="RLOO's ratio is not clipped where a clip is asked for",
    arises="the paper's loss kept when TRL's trainer was followed",
    theme="ratio and rollout",
    symptom="Nothing on-policy; later updates of a rollout move long completions much too far.",
    caught_by=("loss.rloo.matches-definition",),
)
in_numpy(
    "loss.kl-clamp-forgotten",
    "loss:policy_loss",
    "loss.patches.edits:kl_unclamped",
    mistake="the KL's estimate is not held at the clamp that is asked for",
    arises="a keyword that is read and not passed on",
    theme="KL",
    symptom="Rare steps with a huge KL loss, from tokens that the policy has given up.",
    caught_by=("loss.grpo.matches-definition", "loss.dapo.matches-definition", "loss.gspo.matches-definition"),
)
in_numpy(
    "loss.reinforce-with-ratio",
    "loss:policy_loss",
    "loss.patches.edits:token_ratio",
    mistake="REINFORCE differentiates r·A where its loss is A·log π",
    arises="PPO's surrogate with the clip taken out",
    theme="ratio and rollout",
    symptom="Nothing on-policy; with several updates a rollout steps grow where the policy has already moved.",
    caught_by=("loss.reinforce.matches-definition",),
)
in_numpy(
    "loss.reinforce++-row-mean",
    "loss:policy_loss",
    "loss.patches.edits:row_mean",
    mistake="REINFORCE++'s token mean over the step is taken row by row",
    arises="GRPO's loss kept beside REINFORCE++'s advantages",
    theme="normalisation",
    symptom="Length grows: tokens of long wrong answers weigh less than those of short ones.",
    caught_by=("loss.reinforcepp.matches-definition",),
)
in_numpy(
    "loss.ppo-without-dual-clip",
    "loss:policy_loss",
    "loss.patches.edits:delta_ignored",
    mistake="PPO's second bound for negative advantages is left out",
    arises="the clipped surrogate of the first PPO paper",
    source="verl's clip_ratio_c, which older trainers do not read",
    theme="ratio and rollout",
    symptom="Rare tokens with a ratio of ten and more give spikes of the gradient norm, always in rows with bad rewards.",
    caught_by=("loss.ppo.matches-definition",),
)
in_numpy(
    "loss.vespo-power-and-decay-swapped",
    "loss:policy_loss",
    "loss.patches.edits:power_and_decay_swapped",
    mistake="VESPO's k and λ are exchanged",
    arises="two numbers for each sign, passed by position",
    theme="configuration",
    symptom="Stale rows weigh more than meant on one side of 1 and less on the other; no curve shows it.",
    caught_by=("loss.vespo.matches-definition",),
)
in_numpy(
    "loss.aggregation-not-passed-on",
    "loss:policy_loss",
    "loss.patches.baseline:own_aggregation",
    mistake="another aggregation than the algorithm's is asked for and not passed on",
    arises="a loss that looks its denominator up by the algorithm's name",
    theme="configuration",
    symptom="Runs with a token mean and with a row mean are the same run.",
    caught_by=("loss.variants.match-definitions",),
)
in_numpy(
    "loss.ratio-level-not-passed-on",
    "loss:policy_loss",
    "loss.patches.edits:row_ratio",
    mistake="the row's mean ratio is taken whatever level is asked for",
    arises="GSPO's loss with its bound and its aggregation made options, and its ratio not",
    theme="ratio and rollout",
    symptom="Clip fractions are those of rows: nothing is clipped for long, then whole rows are.",
    caught_by=("loss.compositions.match-definitions",),
)
