"""Mistakes in preference losses and in who is chosen."""

from gates.mutants.planting import in_numpy, in_trainer

DPO, HINGE, IPO = (f"preference.{name}.matches-definition" for name in ("dpo", "hinge", "ipo"))
ONLINE, BEST = "preference.online.prefers-the-higher", "preference.best-of-n.selects"

in_numpy(
    "preference.sides-swapped",
    "numpy_preference:sides",
    "preference:swapped_sides",
    mistake="the rejected completion is taught and the chosen one unlearned",
    arises="rows concatenated in the other order",
    caught_by=(DPO, HINGE, IPO, "preference.simpo.matches-definition"),
)
in_numpy(
    "preference.smoothing-ignored",
    "numpy_preference:logistic",
    "preference:without_smoothing",
    mistake="label smoothing is accepted and not applied",
    source="TRL 1.16 DPOTrainer: loss_type sigmoid ignores label_smoothing",
    caught_by=(DPO,),
)
in_numpy(
    "preference.mean-for-sum",
    "numpy_preference:added",
    "preference:mean_for_sum",
    mistake="log-ratios are averaged over a completion's tokens where they should be summed",
    arises="the length normalisation of IPO or SimPO left on",
    caught_by=(DPO, HINGE, "preference.dpop.matches-definition", "preference.kto.matches-definition"),
)
in_numpy(
    "preference.beta-outside",
    "numpy_preference:logistic",
    "preference:beta_outside",
    mistake="β multiplies the loss instead of the margin inside the sigmoid",
    arises="beta * -logsigmoid(x)",
    caught_by=(DPO, "preference.cpo.matches-definition"),
)
in_numpy(
    "preference.prompt-counted",
    "numpy_preference:counted",
    "preference:prompt_counts",
    mistake="the prompt's tokens are part of the completion",
    arises="the attention mask used for the loss mask",
    caught_by=(DPO, HINGE, IPO, "preference.orpo.matches-definition", "preference.cpo.matches-definition"),
)
in_numpy(
    "preference.free-of-everything",
    "numpy_preference:against",
    "preference:own_reference",
    mistake="without a reference the policy itself is taken for one, and every margin is 0",
    arises="reference = policy as the default",
    caught_by=("preference.reference-free",),
)
in_numpy(
    "preference.ipo-target",
    "numpy_preference:target",
    "preference:doubled_target",
    mistake="IPO's target is 1/β instead of 1/(2β)",
    arises="the paper's τ⁻¹/2 read as τ⁻¹",
    caught_by=(IPO,),
)
in_numpy(
    "preference.ipo-summed",
    "numpy_preference:averaged",
    "preference:not_averaged",
    mistake="IPO's log-ratios are summed where they should be averaged",
    arises="TRL's Online DPO sums them, its DPO averages them",
    caught_by=(IPO, "preference.simpo.matches-definition"),
)
in_numpy(
    "preference.dpop-reversed",
    "numpy_preference:shortfall",
    "preference:negated_ratios",
    mistake="DPOP's penalty falls on the chosen completions that gained",
    arises="the ratio inside max(0, ·) the wrong way up",
    caught_by=("preference.dpop.matches-definition",),
)
in_numpy(
    "preference.simpo-scaled-margin",
    "numpy_preference:with_margin",
    "preference:scaled_margin",
    mistake="SimPO's γ is multiplied by β",
    arises="γ/β of the paper's experiments taken for γ",
    caught_by=("preference.simpo.matches-definition",),
)
in_numpy(
    "preference.orpo-probabilities",
    "numpy_preference:log_odds",
    "preference:log_probabilities",
    mistake="ORPO compares probabilities instead of odds",
    arises="the odds' denominator dropped for being near 1",
    caught_by=("preference.orpo.matches-definition",),
)
in_numpy(
    "preference.cpo-row-means",
    "numpy_preference:likelihood",
    "preference:row_mean_likelihood",
    mistake="CPO's likelihood is averaged over each completion and then over pairs",
    arises="a mean per sequence instead of the batch's cross-entropy",
    caught_by=("preference.cpo.matches-definition",),
)
in_numpy(
    "preference.kto-negative-anchor",
    "numpy_preference:anchor",
    "preference:unclamped_anchor",
    mistake="KTO's reference point may fall below 0",
    arises="the clamp at 0 forgotten",
    caught_by=("preference.kto.matches-definition",),
)
in_numpy(
    "preference.tie-prefers-second",
    "numpy_preference:wins",
    "preference:second_on_ties",
    mistake="a tie prefers the second completion",
    arises="`first > second` for `first >= second`",
    caught_by=(ONLINE,),
)
in_numpy(
    "preference.nan-wins",
    "numpy_preference:highest",
    "preference:nan_wins",
    mistake="a completion that was not scored wins",
    arises="np.argmax returns the place of a NaN",
    caught_by=(BEST,),
)
in_numpy(
    "preference.last-of-equals",
    "numpy_preference:highest",
    "preference:last_of_equals",
    mistake="of several best completions the last wins",
    arises="`>=` in the scan for the maximum",
    caught_by=(BEST,),
)
in_trainer(
    "preference.trainer-sides-swapped",
    "preference.margins:signs_of",
    "trainer_preference:negated",
    mistake="the trainer unlearns the chosen completion",
    arises="the sign of the advantage read the other way round",
    caught_by=(DPO, HINGE, IPO),
)
in_trainer(
    "preference.trainer-smoothing-ignored",
    "preference.dpo:of_margin",
    "trainer_preference:without_smoothing",
    mistake="label smoothing is accepted and not applied",
    source="TRL 1.16 DPOTrainer: loss_type sigmoid ignores label_smoothing",
    caught_by=(DPO,),
)
in_trainer(
    "preference.trainer-mean-for-sum",
    "preference.margins:log_ratios",
    "trainer_preference:averaged",
    mistake="log-ratios are averaged over a completion's tokens where they should be summed",
    arises="a length normalisation that is always on",
    caught_by=(DPO, HINGE, IPO),
)
in_trainer(
    "preference.trainer-reference-kept",
    "preference.margins:log_ratios",
    "trainer_preference:always_free",
    mistake="the reference is never subtracted",
    arises="reference_free read as a string, and true",
    caught_by=(DPO, "preference.reference-free"),
)
in_trainer(
    "preference.trainer-tie-prefers-second",
    "preference.margins:prefer",
    "trainer_preference:second_on_ties",
    mistake="a tie prefers the second completion",
    arises="`first > second` for `first >= second`",
    caught_by=(ONLINE,),
)
in_trainer(
    "preference.trainer-nan-wins",
    "preference.best_of_n:winners",
    "trainer_preference:nan_wins",
    mistake="a completion that was not scored wins",
    arises="np.argmax returns the place of a NaN",
    caught_by=(BEST,),
)
