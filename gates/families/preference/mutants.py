"""Mutations of preference losses and of who is chosen."""

from gates.families.hosts import in_numpy, in_trainer

DPO, HINGE, IPO = (f"preference.{name}.matches-definition" for name in ("dpo", "hinge", "ipo"))
ONLINE, BEST = "preference.online.prefers-the-higher", "preference.best-of-n.selects"

in_numpy(
    "preference.sides-swapped",
    "preference:preference_loss",
    "preference.patches:swapped_sides",
    mistake="chosen and rejected completions are exchanged",
    arises="rows concatenated in the other order",
    theme="preference",
    symptom="Accuracy falls below one half and margins turn negative from the first step.",
    caught_by=(DPO, HINGE, IPO, "preference.simpo.matches-definition"),
)
in_numpy(
    "preference.smoothing-ignored",
    "preference:preference_loss",
    "preference.patches:without_smoothing",
    mistake="label smoothing is accepted and not applied",
    source="TRL 1.16 DPOTrainer: loss_type sigmoid ignores label_smoothing",
    theme="configuration",
    symptom="The curve is the same for every label smoothing; the model overfits noisy pairs.",
    caught_by=(DPO,),
)
in_numpy(
    "preference.mean-for-sum",
    "preference:added",
    "preference.patches:mean_for_sum",
    mistake="log-ratios are averaged over a completion's tokens instead of summed",
    arises="the length normalisation of IPO or SimPO, also applied here",
    source="jingyaogong/minimind#298: DPO averages log-probs",
    theme="preference",
    symptom="Margins are tiny and learning is slow, most for long completions; beta seems to have no effect.",
    caught_by=(DPO, HINGE, "preference.dpop.matches-definition", "preference.kto.matches-definition"),
)
in_numpy(
    "preference.beta-outside",
    "preference:preference_loss",
    "preference.patches:beta_outside",
    mistake="β multiplies the loss instead of the margin inside the sigmoid",
    arises="beta * -logsigmoid(x)",
    theme="preference",
    symptom="The loss starts at 0.07 instead of 0.69, and margins grow without bound.",
    caught_by=(DPO, "preference.cpo.matches-definition"),
)
in_numpy(
    "preference.prompt-counted",
    "preference:preference_loss",
    "preference.patches:prompt_counts",
    mistake="the prompt's tokens are part of the completion",
    arises="the attention mask used as the loss mask",
    source=(
        "OpenRLHF/OpenRLHF#235: prompt tokens count in DPO; huggingface/trl#1676: ORPO's likelihood includes the prompt"
    ),
    theme="masks and shifts",
    symptom="No effect on margins of pairs with a common prompt, but rewards and likelihood terms include the prompt's log-probs.",
    caught_by=(DPO, HINGE, IPO, "preference.orpo.matches-definition", "preference.cpo.matches-definition"),
)
in_numpy(
    "preference.last-column-dropped",
    "preference:counted",
    "preference.patches:without_last_column",
    mistake="the last column of the batch is not counted: the longest completion loses its last token",
    arises="a mask cut with [:, :-1] although the log-probs are one shorter already",
    theme="masks and shifts",
    symptom="No effect on padded rows; the longest completion of each batch never learns its last token.",
    caught_by=(DPO, HINGE, IPO, "preference.kto.matches-definition"),
)
in_numpy(
    "preference.shifted-twice",
    "preference:counted",
    "preference.patches:without_first_column",
    mistake=(
        "the first column of the batch is not counted: a completion without a prompt before it loses its first token"
    ),
    arises="labels shifted by the collator and once more in the loss",
    theme="masks and shifts",
    symptom=(
        "No effect after a prompt of two tokens or more; a completion without a prompt never learns its first token."
    ),
    caught_by=(DPO, HINGE, IPO, "preference.kto.matches-definition"),
)
in_numpy(
    "preference.free-of-everything",
    "preference:against",
    "preference.patches:own_reference",
    mistake="without a reference the policy itself is used as one, so that every margin is 0",
    arises="reference = policy as the default",
    theme="preference",
    symptom="The loss stays at 0.693 and the margin at 0; the model does not learn.",
    caught_by=("preference.reference-free",),
)
in_numpy(
    "preference.ipo-target",
    "preference:preference_loss",
    "preference.patches:doubled_target",
    mistake="IPO's target is 1/β instead of 1/(2β)",
    arises="the paper's τ⁻¹/2 read as τ⁻¹",
    theme="preference",
    symptom="Margins converge to twice the target for this beta.",
    caught_by=(IPO,),
)
in_numpy(
    "preference.ipo-summed",
    "preference:preference_loss",
    "preference.patches:not_averaged",
    mistake="IPO's log-ratios are summed instead of averaged",
    arises="two conventions in TRL: Online DPO sums log-ratios, DPO averages them",
    source="huggingface/trl#1265: IPO must average log-probs; meta-pytorch/torchtune#1291: IPO given summed log-probs",
    theme="preference",
    symptom="Margins depend on length: long pairs reach the target at once and have no gradient.",
    caught_by=(IPO, "preference.simpo.matches-definition"),
)
in_numpy(
    "preference.dpop-reversed",
    "preference:preference_loss",
    "preference.patches:negated_ratios",
    mistake="DPOP penalises chosen completions that became likelier instead of less likely",
    arises="the ratio inside max(0, ·) inverted",
    theme="preference",
    symptom="The likelihood of chosen answers falls together with that of rejected ones, which DPOP should prevent.",
    caught_by=("preference.dpop.matches-definition",),
)
in_numpy(
    "preference.simpo-scaled-margin",
    "preference:preference_loss",
    "preference.patches:scaled_margin",
    mistake="SimPO's γ is multiplied by β",
    arises="the γ/β of the paper's experiments used as γ",
    theme="configuration",
    symptom=(
        "The target margin is beta·gamma instead of gamma; with beta 2 it is twice as large, and the loss stays high."
    ),
    caught_by=("preference.simpo.matches-definition",),
)
in_numpy(
    "preference.orpo-probabilities",
    "preference:preference_loss",
    "preference.patches:log_probabilities",
    mistake="ORPO compares probabilities instead of odds",
    arises="the denominator of the odds dropped because it is near 1",
    source="huggingface/diffusers#7465: the log-odds part is missing",
    theme="preference",
    symptom="No effect while probabilities are small; for short certain answers the preference term is too weak.",
    caught_by=("preference.orpo.matches-definition",),
)
in_numpy(
    "preference.orpo-likelihood-of-padding",
    "preference:of_all_tokens",
    "preference.patches:padding_too",
    mistake="ORPO's likelihood of all tokens counts the padding too",
    arises="labels copied from the ids without -100 at padding",
    theme="masks and shifts",
    symptom=(
        "The loss falls at once, because the padding token is learned; it depends on the longest row of each batch."
    ),
    caught_by=("preference.orpo.matches-definition",),
)
in_numpy(
    "preference.cpo-row-means",
    "preference:preference_loss",
    "preference.patches:row_mean_likelihood",
    mistake="CPO's likelihood is averaged per completion and then over pairs",
    arises="a mean per sequence instead of the batch's cross-entropy",
    theme="normalisation",
    symptom="Short answers weigh more in the likelihood term; length drifts down.",
    caught_by=("preference.cpo.matches-definition",),
)
in_numpy(
    "preference.kto-negative-anchor",
    "preference:kto_loss",
    "preference.patches:unclamped_anchor",
    mistake="KTO's reference point is not clamped at 0",
    arises="the clamp at 0 forgotten",
    theme="preference",
    symptom=(
        "Rewards of desirable and undesirable completions drift down together, because the reference point follows "
        "below 0."
    ),
    caught_by=("preference.kto.matches-definition",),
)
in_numpy(
    "preference.tie-prefers-second",
    "preference:wins",
    "preference.patches:second_on_ties",
    mistake="a tie prefers the second completion",
    arises="`first > second` instead of `first >= second`",
    theme="preference",
    symptom="No curve shows it, unless judges tie often: then the second of a pair is trained.",
    caught_by=(ONLINE,),
)
in_numpy(
    "preference.nan-wins",
    "preference:highest",
    "preference.patches:nan_wins",
    mistake="an unscored completion wins",
    arises="np.argmax, which returns the position of a NaN",
    theme="preference",
    symptom=("Unscored answers are sometimes trained as the best: reward fluctuates with the scorer's failures."),
    caught_by=(BEST,),
)
in_numpy(
    "preference.last-of-equals",
    "preference:highest",
    "preference.patches:last_of_equals",
    mistake="of several best completions the last is selected instead of the first",
    arises="`>=` in the scan for the maximum",
    theme="preference",
    symptom="No curve shows it: of equally good answers another one is trained.",
    caught_by=(BEST,),
)
in_trainer(
    "preference.trainer-sides-swapped",
    "preference.margins:signs_of",
    "preference.trainer_patches:negated",
    mistake="the trainer exchanges chosen and rejected completions",
    arises="the sign of the advantage inverted",
    theme="preference",
    symptom="Accuracy falls below one half and margins turn negative from the first step.",
    caught_by=(DPO, HINGE, IPO),
)
in_trainer(
    "preference.trainer-smoothing-ignored",
    "preference.dpo:of_margin",
    "preference.trainer_patches:without_smoothing",
    mistake="label smoothing is accepted and not applied",
    source="TRL 1.16 DPOTrainer: loss_type sigmoid ignores label_smoothing",
    theme="configuration",
    symptom="The curve is the same for every label smoothing; the model overfits noisy pairs.",
    caught_by=(DPO,),
)
in_trainer(
    "preference.trainer-mean-for-sum",
    "preference.margins:log_ratios",
    "preference.trainer_patches:averaged",
    mistake="log-ratios are averaged over a completion's tokens instead of summed",
    arises="a length normalisation that is always applied",
    source="jingyaogong/minimind#298: DPO averages log-probs",
    theme="preference",
    symptom="Margins are tiny and learning is slow, most for long completions; beta seems to have no effect.",
    caught_by=(DPO, HINGE, IPO),
)
in_trainer(
    "preference.trainer-reference-kept",
    "preference.margins:log_ratios",
    "preference.trainer_patches:always_free",
    mistake="the reference is never subtracted",
    arises="reference_free read as a string, which is always true",
    theme="preference",
    symptom=(
        "Margins start far from 0 and the policy moves away from the reference: text degrades while accuracy is high."
    ),
    caught_by=(DPO, "preference.reference-free"),
)
in_trainer(
    "preference.trainer-tie-prefers-second",
    "preference.margins:prefer",
    "preference.trainer_patches:second_on_ties",
    mistake="a tie prefers the second completion",
    arises="`first > second` instead of `first >= second`",
    theme="preference",
    symptom="No curve shows it, unless judges tie often: then the second of a pair is trained.",
    caught_by=(ONLINE,),
)
in_trainer(
    "preference.trainer-nan-wins",
    "preference.best_of_n:winners",
    "preference.trainer_patches:nan_wins",
    mistake="an unscored completion wins",
    arises="np.argmax, which returns the position of a NaN",
    theme="preference",
    symptom=("Unscored answers are sometimes trained as the best: reward fluctuates with the scorer's failures."),
    caught_by=(BEST,),
)
in_trainer(
    "preference.losers-train-too",
    "preference.best_of_n:trained",
    "preference.trainer_patches:everyone",
    mistake="every completion is trained, not only the winner",
    arises="a likelihood loss that ignores advantages of 0",
    theme="preference",
    symptom="Likelihood rises for good and bad answers alike; reward stays that of the starting model.",
    caught_by=("preference.best-of-n.trains-on-the-winner",),
)
in_numpy(
    "preference.mean-of-nothing",
    "preference:averaged",
    "preference.patches:mean_of_nothing",
    mistake="the mean of an empty completion is 0 / 0",
    source="allenai/open-instruct#1625: mean over zero tokens is NaN; huggingface/trl#5343: the same in CPO",
    theme="normalisation",
    symptom="The loss is NaN at the first pair whose prompt fills the window, and the weights stay NaN from then on.",
    caught_by=(IPO, "preference.simpo.matches-definition"),
    at="robustness",
)
