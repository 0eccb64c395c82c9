"""Mutations of preference losses and of who is chosen."""

from gates.families.hosts import in_numpy, in_trainer

DPO, HINGE, IPO = (f"preference.{name}.matches-definition" for name in ("dpo", "hinge", "ipo"))
ONLINE, BEST = "preference.online.prefers-the-higher", "preference.best-of-n.selects"

in_numpy(
    "preference.sides-swapped",
    "preference:preference_loss",
    "preference.patches:swapped_sides",
    mistake="the rejected completion is taught and the chosen one unlearned",
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
    symptom="The curve is the same for every label smoothing; noisy pairs are fitted to the end.",
    caught_by=(DPO,),
)
in_numpy(
    "preference.mean-for-sum",
    "preference:added",
    "preference.patches:mean_for_sum",
    mistake="log-ratios are averaged over a completion's tokens where they should be summed",
    arises="the length normalisation of IPO or SimPO left on",
    source="jingyaogong/minimind#298: DPO averages log-probs",
    theme="preference",
    symptom="Margins are tiny and learning is slow, most for long completions; beta seems to do nothing.",
    caught_by=(DPO, HINGE, "preference.dpop.matches-definition", "preference.kto.matches-definition"),
)
in_numpy(
    "preference.beta-outside",
    "preference:preference_loss",
    "preference.patches:beta_outside",
    mistake="β multiplies the loss instead of the margin inside the sigmoid",
    arises="beta * -logsigmoid(x)",
    theme="preference",
    symptom="The loss starts at 0.07 instead of 0.69 and margins grow without a bound.",
    caught_by=(DPO, "preference.cpo.matches-definition"),
)
in_numpy(
    "preference.prompt-counted",
    "preference:preference_loss",
    "preference.patches:prompt_counts",
    mistake="the prompt's tokens are part of the completion",
    arises="the attention mask used for the loss mask",
    source=(
        "OpenRLHF/OpenRLHF#235: prompt tokens count in DPO; huggingface/trl#1676: ORPO's likelihood includes the prompt"
    ),
    theme="masks and shifts",
    symptom="Nothing for pairs with a common prompt; rewards and likelihood terms carry the prompt's log-probs.",
    caught_by=(DPO, HINGE, IPO, "preference.orpo.matches-definition", "preference.cpo.matches-definition"),
)
in_numpy(
    "preference.last-column-dropped",
    "preference:counted",
    "preference.patches:without_last_column",
    mistake="the last column of the batch is not counted: the longest completion loses its last token",
    arises="a mask cut by [:, :-1] beside log-probs that are one shorter already",
    theme="masks and shifts",
    symptom="Nothing in pairs that are padded; the longest one of each batch is never taught to end.",
    caught_by=(DPO, HINGE, IPO, "preference.kto.matches-definition"),
)
in_numpy(
    "preference.shifted-twice",
    "preference:counted",
    "preference.patches:without_first_column",
    mistake="the first column of the batch is not counted: a completion without a prompt before it loses its first token",
    arises="labels shifted by the collator and once more in the loss",
    theme="masks and shifts",
    symptom="Nothing behind a prompt of two tokens or more; a completion that stands alone is not taught how to begin.",
    caught_by=(DPO, HINGE, IPO, "preference.kto.matches-definition"),
)
in_numpy(
    "preference.free-of-everything",
    "preference:against",
    "preference.patches:own_reference",
    mistake="without a reference the policy itself is taken for one, and every margin is 0",
    arises="reference = policy as the default",
    theme="preference",
    symptom="The loss stands at 0.693 and the margin at 0; nothing is learned.",
    caught_by=("preference.reference-free",),
)
in_numpy(
    "preference.ipo-target",
    "preference:preference_loss",
    "preference.patches:doubled_target",
    mistake="IPO's target is 1/β instead of 1/(2β)",
    arises="the paper's τ⁻¹/2 read as τ⁻¹",
    theme="preference",
    symptom="Margins settle at twice the height that beta asks for.",
    caught_by=(IPO,),
)
in_numpy(
    "preference.ipo-summed",
    "preference:preference_loss",
    "preference.patches:not_averaged",
    mistake="IPO's log-ratios are summed where they should be averaged",
    arises="TRL's Online DPO sums them, its DPO averages them",
    source="huggingface/trl#1265: IPO must average log-probs; meta-pytorch/torchtune#1291: IPO given summed log-probs",
    theme="preference",
    symptom="Margins depend on length: long pairs reach the target at once and stop teaching.",
    caught_by=(IPO, "preference.simpo.matches-definition"),
)
in_numpy(
    "preference.dpop-reversed",
    "preference:preference_loss",
    "preference.patches:negated_ratios",
    mistake="DPOP's penalty falls on the chosen completions that gained",
    arises="the ratio inside max(0, ·) the wrong way up",
    theme="preference",
    symptom="The likelihood of chosen answers falls together with that of rejected ones: what DPOP was to prevent.",
    caught_by=("preference.dpop.matches-definition",),
)
in_numpy(
    "preference.simpo-scaled-margin",
    "preference:preference_loss",
    "preference.patches:scaled_margin",
    mistake="SimPO's γ is multiplied by β",
    arises="γ/β of the paper's experiments taken for γ",
    theme="configuration",
    symptom="The target margin is beta times what gamma says; with beta 2 twice as far, and the loss stays high.",
    caught_by=("preference.simpo.matches-definition",),
)
in_numpy(
    "preference.orpo-probabilities",
    "preference:preference_loss",
    "preference.patches:log_probabilities",
    mistake="ORPO compares probabilities instead of odds",
    arises="the odds' denominator dropped for being near 1",
    source="huggingface/diffusers#7465: the log-odds part is missing",
    theme="preference",
    symptom="Nothing while probabilities are small; for short certain answers the preference term is too weak.",
    caught_by=("preference.orpo.matches-definition",),
)
in_numpy(
    "preference.orpo-likelihood-of-padding",
    "preference:of_all_tokens",
    "preference.patches:padding_too",
    mistake="ORPO's likelihood of all tokens counts the padding too",
    arises="labels taken from the ids, where -100 was not put at padding",
    theme="masks and shifts",
    symptom="The loss falls at once, as the padding token is learned; it depends on the longest row of each batch.",
    caught_by=("preference.orpo.matches-definition",),
)
in_numpy(
    "preference.cpo-row-means",
    "preference:preference_loss",
    "preference.patches:row_mean_likelihood",
    mistake="CPO's likelihood is averaged over each completion and then over pairs",
    arises="a mean per sequence instead of the batch's cross-entropy",
    theme="normalisation",
    symptom="Short answers weigh more in the likelihood term; length drifts down.",
    caught_by=("preference.cpo.matches-definition",),
)
in_numpy(
    "preference.kto-negative-anchor",
    "preference:kto_loss",
    "preference.patches:unclamped_anchor",
    mistake="KTO's reference point may fall below 0",
    arises="the clamp at 0 forgotten",
    theme="preference",
    symptom="Rewards of both kinds drift down together, since the reference point follows below 0.",
    caught_by=("preference.kto.matches-definition",),
)
in_numpy(
    "preference.tie-prefers-second",
    "preference:wins",
    "preference.patches:second_on_ties",
    mistake="a tie prefers the second completion",
    arises="`first > second` for `first >= second`",
    theme="preference",
    symptom="Nothing in any curve, unless judges tie often: then the second of a pair is taught.",
    caught_by=(ONLINE,),
)
in_numpy(
    "preference.nan-wins",
    "preference:highest",
    "preference.patches:nan_wins",
    mistake="a completion that was not scored wins",
    arises="np.argmax returns the place of a NaN",
    theme="preference",
    symptom=(
        "Now and then an answer that nobody scored is taught as the best: reward wobbles with the scorer's failures."
    ),
    caught_by=(BEST,),
)
in_numpy(
    "preference.last-of-equals",
    "preference:highest",
    "preference.patches:last_of_equals",
    mistake="of several best completions the last wins",
    arises="`>=` in the scan for the maximum",
    theme="preference",
    symptom="Nothing in any curve: among equals another answer is taught.",
    caught_by=(BEST,),
)
in_trainer(
    "preference.trainer-sides-swapped",
    "preference.margins:signs_of",
    "preference.trainer_patches:negated",
    mistake="the trainer unlearns the chosen completion",
    arises="the sign of the advantage read the other way round",
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
    symptom="The curve is the same for every label smoothing; noisy pairs are fitted to the end.",
    caught_by=(DPO,),
)
in_trainer(
    "preference.trainer-mean-for-sum",
    "preference.margins:log_ratios",
    "preference.trainer_patches:averaged",
    mistake="log-ratios are averaged over a completion's tokens where they should be summed",
    arises="a length normalisation that is always on",
    source="jingyaogong/minimind#298: DPO averages log-probs",
    theme="preference",
    symptom="Margins are tiny and learning is slow, most for long completions; beta seems to do nothing.",
    caught_by=(DPO, HINGE, IPO),
)
in_trainer(
    "preference.trainer-reference-kept",
    "preference.margins:log_ratios",
    "preference.trainer_patches:always_free",
    mistake="the reference is never subtracted",
    arises="reference_free read as a string, and true",
    theme="preference",
    symptom="Margins start far from 0 and the policy leaves the reference: text decays while accuracy is high.",
    caught_by=(DPO, "preference.reference-free"),
)
in_trainer(
    "preference.trainer-tie-prefers-second",
    "preference.margins:prefer",
    "preference.trainer_patches:second_on_ties",
    mistake="a tie prefers the second completion",
    arises="`first > second` for `first >= second`",
    theme="preference",
    symptom="Nothing in any curve, unless judges tie often: then the second of a pair is taught.",
    caught_by=(ONLINE,),
)
in_trainer(
    "preference.trainer-nan-wins",
    "preference.best_of_n:winners",
    "preference.trainer_patches:nan_wins",
    mistake="a completion that was not scored wins",
    arises="np.argmax returns the place of a NaN",
    theme="preference",
    symptom=(
        "Now and then an answer that nobody scored is taught as the best: reward wobbles with the scorer's failures."
    ),
    caught_by=(BEST,),
)
in_trainer(
    "preference.losers-train-too",
    "preference.best_of_n:trained",
    "preference.trainer_patches:everyone",
    mistake="every completion is learned, not only the winner",
    arises="advantages of 0 are ignored by a likelihood loss",
    theme="preference",
    symptom="Likelihood rises for good and bad answers alike; reward stays that of the starting model.",
    caught_by=("preference.best-of-n.trains-on-the-winner",),
)
in_numpy(
    "preference.mean-of-nothing",
    "preference:averaged",
    "preference.patches:mean_of_nothing",
    mistake="a completion without a token has the mean 0 / 0",
    source="allenai/open-instruct#1625: mean over zero tokens is NaN; huggingface/trl#5343: the same in CPO",
    theme="normalisation",
    symptom="The loss is NaN at the first pair whose prompt fills the window, and the weights are from then on.",
    caught_by=(IPO, "preference.simpo.matches-definition"),
    at="robustness",
)
