"""Mistakes in off-policy corrections inside a loss, in the top-entropy mask, the bonus, and DAPO's filter."""

from gates.mutants.planting import in_trainer

OPTIONS, KEEP, LENGTH = (
    "loss.options.match-definition",
    "loss.dapo.keeps-groups-that-differ",
    "loss.dapo.overlong-penalty",
)

in_trainer(
    "options.mask-lowers-denominator",
    "algorithms.aggregation:row_weights",
    "trainer_options:lowered_denominator",
    mistake="tokens that the top-entropy mask leaves out leave the denominator too",
    arises="the mask multiplied into the completion mask",
    caught_by=(OPTIONS,),
)
in_trainer(
    "options.lowest-entropy",
    "algorithms.entropy:chosen",
    "trainer_options:lowest",
    mistake="the tokens of lowest entropy train",
    arises="`<=` for `>=`",
    caught_by=(OPTIONS,),
)
in_trainer(
    "options.quantile-of-part",
    "algorithms.entropy:of_step",
    "trainer_options:quantile_of_part",
    mistake="each micro-batch takes its own quantile",
    arises="torch.quantile inside compute_loss",
    caught_by=(OPTIONS,),
)
in_trainer(
    "options.quantile-of-share",
    "algorithms.entropy:threshold",
    "trainer_options:wrong_end",
    mistake="the threshold is the ρ-quantile instead of the (1 − ρ)-quantile",
    arises="share and threshold under one name",
    caught_by=(OPTIONS,),
)
in_trainer(
    "options.bonus-of-part",
    "algorithms.entropy:bonus",
    "trainer_options:bonus_of_part",
    mistake="the bonus divides by the part's own tokens instead of the step's",
    arises="masked_mean of the micro-batch",
    caught_by=(OPTIONS,),
)
in_trainer(
    "options.weights-on-kl",
    "algorithms.kl:weighted",
    "trainer_options:no_kl",
    mistake="where the policy's part is masked the KL is dropped too, here all of it",
    arises="the weight applied after +β·KL",
    caught_by=(OPTIONS,),
)
in_trainer(
    "options.tis-one-sided",
    "algorithms.corrections:corrected",
    "trainer_options:one_sided",
    mistake="c_min is not applied",
    arises="TRL's first TIS had an upper cap only",
    caught_by=(OPTIONS, "weights.matches-definition"),
)
in_trainer(
    "options.tis-for-mis",
    "algorithms.corrections:corrected",
    "trainer_options:clamped",
    mistake="weights outside MIS's interval are clamped instead of dropped",
    arises="the mode's name read, its branch not written",
    caught_by=(OPTIONS, "weights.matches-definition"),
)
in_trainer(
    "options.keeps-every-group",
    "algorithms.dapo:differs",
    "trainer_options:keep_all",
    mistake="groups that are all right or all wrong are kept",
    arises="`>=` for `>`",
    caught_by=(KEEP,),
)
in_trainer(
    "options.unscored-counts-zero",
    "algorithms.dapo:differs",
    "trainer_options:nan_is_zero",
    mistake="a completion that was not scored counts as wrong, and keeps its group",
    arises="nan_to_num before the comparison",
    caught_by=(KEEP,),
)
in_trainer(
    "options.penalty-for-short",
    "algorithms.dapo:overlong",
    "trainer_options:without_buffer",
    mistake="the penalty starts at L_max: a cliff instead of a slope",
    arises="only truncated completions are punished",
    caught_by=(LENGTH,),
)
