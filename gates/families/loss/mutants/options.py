"""Mutations of off-policy corrections inside a loss, in the top-entropy mask, the bonus, and DAPO's filter."""

from gates.families.hosts import in_trainer

OPTIONS, KEEP, LENGTH = (
    "loss.options.match-definition",
    "loss.dapo.keeps-groups-that-differ",
    "loss.dapo.overlong-penalty",
)

in_trainer(
    "options.mask-lowers-denominator",
    "algorithms.objective:row_weights",
    "loss.patches.options:lowered_denominator",
    mistake="tokens excluded by the top-entropy mask leave the denominator too",
    arises="the mask multiplied into the completion mask",
    theme="normalisation",
    symptom="The gradient norm grows five-fold at a share of 0.2; it looks like a higher learning rate.",
    caught_by=(OPTIONS,),
)
in_trainer(
    "options.lowest-entropy",
    "algorithms.entropy:chosen",
    "loss.patches.options:lowest",
    mistake="the tokens with the lowest entropy train instead of the highest",
    arises="`<=` for `>=`",
    theme="masks and shifts",
    symptom="Reward hardly moves and entropy falls: only tokens that were almost certain already are trained.",
    caught_by=(OPTIONS,),
)
in_trainer(
    "options.quantile-of-part",
    "algorithms.entropy:of_step",
    "loss.patches.options:quantile_of_part",
    mistake="each micro-batch computes its own entropy quantile",
    arises="torch.quantile inside compute_loss",
    source="huggingface/trl#3833: entropy threshold from local tokens",
    theme="normalisation",
    symptom="The share of trained tokens is right, but their choice depends on the micro-batch.",
    caught_by=(OPTIONS,),
)
in_trainer(
    "options.quantile-of-share",
    "algorithms.entropy:threshold",
    "loss.patches.options:wrong_end",
    mistake="the threshold is the ρ-quantile instead of the (1 − ρ)-quantile",
    arises="one name for share and threshold",
    theme="configuration",
    symptom="With a share of 0.2, 80% of the tokens train: the curve is almost that without a mask.",
    caught_by=(OPTIONS,),
)
in_trainer(
    "options.bonus-of-part",
    "algorithms.entropy:bonus",
    "loss.patches.options:bonus_of_part",
    mistake="the entropy bonus divides by the micro-batch's tokens instead of the step's",
    arises="masked_mean of the micro-batch",
    theme="normalisation",
    symptom="The entropy bonus grows with the number of micro-batches; entropy rises with accumulation.",
    caught_by=(OPTIONS,),
)
in_trainer(
    "options.weights-on-kl",
    "algorithms.ratio:weighted_kl",
    "loss.patches.options:no_kl",
    mistake="off-policy masking drops the KL too, in this mutant for every token",
    arises="the weight applied after +β·KL",
    theme="KL",
    symptom="Masked tokens have no KL penalty; the KL curve rises.",
    caught_by=(OPTIONS,),
)
in_trainer(
    "options.tis-one-sided",
    "algorithms.corrections:corrected",
    "loss.patches.options:one_sided",
    mistake="c_min is not applied",
    arises="TRL's first TIS had an upper cap only",
    source="huggingface/trl#5413: inline clamp ignores the lower bound",
    theme="configuration",
    symptom="Few curves show it: tokens that are unlikely for the trainer get a weight near 0 instead of c_min.",
    caught_by=(OPTIONS, "weights.matches-definition"),
)
in_trainer(
    "options.tis-for-mis",
    "algorithms.corrections:corrected",
    "loss.patches.options:clamped",
    mistake="weights outside MIS's interval are clamped instead of dropped",
    arises="a mode that is accepted without an implementation",
    theme="configuration",
    symptom=(
        "Rows that should be dropped still train with the cap's weight; slow drift when sampler and trainer disagree."
    ),
    caught_by=(OPTIONS, "weights.matches-definition"),
)
in_trainer(
    "options.keeps-every-group",
    "algorithms.dapo:differs",
    "loss.patches.options:keep_all",
    mistake="groups with only right or only wrong answers are kept",
    arises="`>=` for `>`",
    theme="advantages",
    symptom=("The gradient norm falls as tasks are solved, because solved groups fill the batch."),
    caught_by=(KEEP,),
)
in_trainer(
    "options.keeps-by-the-shaped-reward",
    "algorithms.dapo:Dapo.keep",
    "loss.patches.options:keep_by_the_shaped",
    mistake="groups are kept by the shaped reward, including style and length penalties, instead of the accuracy",
    arises="the filter reads the reward tensor after shaping was added",
    source="NVIDIA-NeMo/RL#2431: dynamic sampling filters shaped reward",
    theme="advantages",
    symptom=(
        "Groups with only wrong answers stay in the batch: short wrong answers are rewarded, and completions shrink."
    ),
    caught_by=(KEEP,),
)
in_trainer(
    "options.unscored-counts-zero",
    "algorithms.dapo:differs",
    "loss.patches.options:nan_is_zero",
    mistake="an unscored completion counts as wrong, so that its group is kept",
    arises="nan_to_num before the comparison",
    theme="advantages",
    symptom="Groups with only right answers and a scorer's failure stay in the batch and punish the unscored answer.",
    caught_by=(KEEP,),
)
in_trainer(
    "options.penalty-for-short",
    "algorithms.dapo:overlong",
    "loss.patches.options:without_buffer",
    mistake="the overlong penalty starts at L_max, as a cliff instead of a slope",
    arises="a penalty for truncated completions only",
    theme="advantages",
    symptom="Lengths accumulate just below the limit, where the penalty starts abruptly.",
    caught_by=(LENGTH,),
)
in_trainer(
    "options.quantile-counts-padding",
    "algorithms.entropy:threshold",
    "loss.patches.options:padding_counts",
    mistake="the entropy of padding enters the quantile",
    arises="torch.quantile(entropies.flatten(), …), padding and all",
    source="huggingface/trl#3709: entropy threshold counts padding",
    theme="masks and shifts",
    symptom="The share of trained tokens depends on the amount of padding; in ragged batches nearly all tokens train.",
    caught_by=(OPTIONS,),
)
in_trainer(
    "options.bonus-of-every-token",
    "algorithms.entropy:bonus",
    "loss.patches.options:bonus_of_every_token",
    mistake="the entropy bonus acts on every token, even on tokens excluded by the top-entropy mask",
    arises="a bonus added after the mask, with the completion mask",
    source="huggingface/trl#6140: entropy bonus ignores quantile mask",
    theme="masks and shifts",
    symptom="Entropy rises everywhere, even inside words: spelling errors appear while reward stays flat.",
    caught_by=(OPTIONS,),
)
