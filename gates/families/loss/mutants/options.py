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
    mistake="tokens that the top-entropy mask leaves out leave the denominator too",
    arises="the mask multiplied into the completion mask",
    theme="normalisation",
    symptom="The gradient norm grows five-fold at a share of 0.2; it looks like a higher learning rate.",
    caught_by=(OPTIONS,),
)
in_trainer(
    "options.lowest-entropy",
    "algorithms.entropy:chosen",
    "loss.patches.options:lowest",
    mistake="the tokens of lowest entropy train",
    arises="`<=` for `>=`",
    theme="masks and shifts",
    symptom="Reward hardly moves and entropy falls: only tokens that were certain anyway are trained.",
    caught_by=(OPTIONS,),
)
in_trainer(
    "options.quantile-of-part",
    "algorithms.entropy:of_step",
    "loss.patches.options:quantile_of_part",
    mistake="each micro-batch takes its own quantile",
    arises="torch.quantile inside compute_loss",
    source="huggingface/trl#3833: entropy threshold from local tokens",
    theme="normalisation",
    symptom=(
        "The share of trained tokens is right, but which ones depends on the micro-batch; curves part with its size."
    ),
    caught_by=(OPTIONS,),
)
in_trainer(
    "options.quantile-of-share",
    "algorithms.entropy:threshold",
    "loss.patches.options:wrong_end",
    mistake="the threshold is the ρ-quantile instead of the (1 − ρ)-quantile",
    arises="share and threshold under one name",
    theme="configuration",
    symptom="With a share of 0.2, 80 % of the tokens train: the curve is almost that of no mask.",
    caught_by=(OPTIONS,),
)
in_trainer(
    "options.bonus-of-part",
    "algorithms.entropy:bonus",
    "loss.patches.options:bonus_of_part",
    mistake="the bonus divides by the part's own tokens instead of the step's",
    arises="masked_mean of the micro-batch",
    theme="normalisation",
    symptom="The entropy bonus grows with the number of micro-batches; entropy rises with accumulation.",
    caught_by=(OPTIONS,),
)
in_trainer(
    "options.weights-on-kl",
    "algorithms.ratio:weighted_kl",
    "loss.patches.options:no_kl",
    mistake="where the policy's part is masked the KL is dropped too, here all of it",
    arises="the weight applied after +β·KL",
    theme="KL",
    symptom="The KL runs free as soon as any token is masked; the KL curve rises and nothing holds it.",
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
    symptom="Nothing in most curves: tokens that the trainer finds unlikely get a weight near 0 instead of c_min.",
    caught_by=(OPTIONS, "weights.matches-definition"),
)
in_trainer(
    "options.tis-for-mis",
    "algorithms.corrections:corrected",
    "loss.patches.options:clamped",
    mistake="weights outside MIS's interval are clamped instead of dropped",
    arises="the mode's name read, its branch not written",
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
    mistake="groups that are all right or all wrong are kept",
    arises="`>=` for `>`",
    theme="advantages",
    symptom=(
        "Steps get slower than promised and the gradient norm falls as tasks are solved: solved groups fill the batch."
    ),
    caught_by=(KEEP,),
)
in_trainer(
    "options.keeps-by-the-shaped-reward",
    "algorithms.dapo:Dapo.keep",
    "loss.patches.options:keep_by_the_shaped",
    mistake="groups are kept by the shaped reward, style and length penalties in it, where the accuracy was asked for",
    arises="the filter reads the one reward tensor, after the shaping has been added to it",
    source="NVIDIA-NeMo/RL#2431: dynamic sampling filters shaped reward",
    theme="advantages",
    symptom=(
        "Groups that are all wrong stay in the batch and differ by length alone: short and empty wrong answers are "
        "rewarded, and completions shrink."
    ),
    caught_by=(KEEP,),
)
in_trainer(
    "options.unscored-counts-zero",
    "algorithms.dapo:differs",
    "loss.patches.options:nan_is_zero",
    mistake="a completion that was not scored counts as wrong, and keeps its group",
    arises="nan_to_num before the comparison",
    theme="advantages",
    symptom="Groups that are all right but for a scorer's failure stay in the batch and punish the unscored answer.",
    caught_by=(KEEP,),
)
in_trainer(
    "options.penalty-for-short",
    "algorithms.dapo:overlong",
    "loss.patches.options:without_buffer",
    mistake="the penalty starts at L_max: a cliff instead of a slope",
    arises="only truncated completions are punished",
    theme="advantages",
    symptom="Length piles up just below the limit: reward falls off a cliff there instead of a slope.",
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
    symptom="The share of trained tokens moves with the amount of padding: nearly all of them in ragged batches.",
    caught_by=(OPTIONS,),
)
in_trainer(
    "options.bonus-of-every-token",
    "algorithms.entropy:bonus",
    "loss.patches.options:bonus_of_every_token",
    mistake="the entropy bonus acts on every token, also on those that the top-entropy mask leaves out",
    arises="a bonus added after the mask, with the completion mask",
    source="huggingface/trl#6140: entropy bonus ignores quantile mask",
    theme="masks and shifts",
    symptom="Entropy rises everywhere, also inside words: spelling errors appear while reward stays flat.",
    caught_by=(OPTIONS,),
)
