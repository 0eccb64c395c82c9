"""Mutants that the diagnosis names, with accepted parts of each name; maintained by hand.

A mutant of several ops may have several names. In a call without padding, the last column of the batch is the last
token of each row, so that `loss.last-column-dropped` has that name.
"""

from __future__ import annotations

from collections.abc import Mapping

NAMES: Mapping[str, tuple[str, ...]] = {
    "advantages.ddof-always-0": ("group z-score with ddof 0 (asked: 1)",),
    "advantages.ddof-always-1": ("group z-score with ddof 1 (asked: 0)",),
    "advantages.ddof-of-stages-swapped": ("ddof of the groups and of the batch exchanged",),
    "advantages.eps-always-added": ("group z-score with std + 1e-08 (asked: √(var + 1e-08))",),
    "advantages.group-and-batch-std-swapped": (
        "divided by the deviation of the whole batch (asked: the deviation of the group)",
    ),
    "advantages.mean-of-all-for-leave-one-out": (
        "baseline: the mean of the group (asked: the mean of the other members of the group)",
    ),
    "advantages.scaled-although-none": ("group z-score with ddof 1, std + 0.0001 (asked: no divisor)",),
    "advantages.second-stage-missing": ("the weighted sum not normalised",),
    "advantages.stages-swapped": ("ddof and ε of the groups and of the batch exchanged",),
    "advantages.sum-then-normalise": ("rewards summed first, then normalised over the batch",),
    "advantages.trainer-stages-swapped": ("ddof and ε of the groups and of the batch exchanged",),
    "advantages.weights-ignored": ("weights ignored",),
    "gae.bootstrap-forgotten": ("the value after a row's last token taken for 0",),
    "gae.terminal-keeps-the-trace": ("the end of an episode cuts the value that follows, not the trace",),
    "kl.clamp-one-sided": ("the clamp ignored",),
    "kl.full-reversed": ("KL(reference ‖ policy), the arguments exchanged",),
    "kl.full-unweighted": ("Σ (log p − log q), not weighed by p · the mean over the vocabulary, not the sum",),
    "kl.k1-swapped": ("policy and reference exchanged: d = policy − reference",),
    "kl.k2-without-half": ("d², k2 without its ½ (asked: k2 = d²/2)",),
    "kl.k3-inverted": ("policy and reference exchanged: d = policy − reference",),
    "kl.ratio-ignored": ("not multiplied by a ratio (asked: times the ratio of the token)",),
    "kl.ratio-inverted": ("times the token's ratio inverted, exp(old − policy) (asked: times the ratio of the token)",),
    "kl.ratio-level-swapped": ("times the ratio of the row, exp(mean D) (asked: times the ratio of the token)",),
    "kl.ratio-mean-over-padding": (
        "times the row's ratio with D averaged over the padded width (asked: times the ratio of the row, exp(mean D))",
    ),
    "logprobs.entropy-in-bits": ("the entropy in bits, to base 2",),
    "logprobs.entropy-untempered": ("the entropy of the untempered logits (τ = 1)",),
    "logprobs.ignore-index-scored": ("ignored ids not set to 0: a negative id counts from the end",),
    "logprobs.temperature-after-the-softmax": ("the temperature after the softmax: log p / τ",),
    "logprobs.temperature-forgotten": ("the temperature ignored: log-probs at τ = 1 (asked: τ = 0.25)",),
    "loss.bnpo-one-micro-batch": (
        "token mean over the step: Σ m·l / Σ m (asked: token mean of each micro-batch, then their mean)",
    ),
    "loss.cispo-bounds-swapped": ("the cap ε_high (asked: 1 + ε_high)",),
    "loss.cispo-clipped-away": ("tokens beyond the cap left out, not weighed by the cap",),
    "loss.cispo-live-ratio": ("a capped ratio that has a gradient",),
    "loss.clip-floor-at-epsilon": ("the lower bound ε_low, not 1 − ε_low",),
    "loss.clip-never-acts": ("r·A without a clip",),
    "loss.clip-sides-swapped": ("ε_low and ε_high swapped",),
    "loss.dapo-per-row-mean": (
        "mean over rows of each row's token mean (asked: token mean over the step: Σ m·l / Σ m)",
    ),
    "loss.dapo-window-forgotten": (
        "token mean over the step: Σ m·l / Σ m (asked: sum over tokens / the tokens of the generation batch)",
    ),
    "loss.delta-for-gains": ("the clip only where A < 0",),
    "loss.delta-forgotten": ("the second bound δ ignored",),
    "loss.dr-grpo-padded-length": (
        "mean over the padded width: sum over tokens / (B · T) (asked: sum over tokens / (B · L_max))",
    ),
    "loss.excluded-rows-leave-the-batch": (
        "mean over the rows that have tokens, not over all rows (asked: mean over rows of each row's token mean)",
    ),
    "loss.gmpo-two-sided": ("both bounds on every log-ratio",),
    "loss.gspo-detached": (
        "the loss as asked, its gradient that of: mean over rows of each row's token mean (asked: token sum of each row, then the mean over rows)",
    ),
    "loss.gspo-detached-mean": (
        "the row's ratio as a constant, without gradient (asked: the ratio of the row, exp(mean D))",
    ),
    "loss.gspo-token-ratio": ("the ratio of each token (asked: the ratio of the row, exp(mean D))",),
    "loss.gspo-token-token-ratio": (
        "the ratio of each token (asked: the row's ratio with each token's gradient (GSPO-token))",
    ),
    "loss.kl-estimators-swapped": ("KL by k2 (asked: k1)",),
    "loss.kl-inverted": ("the KL with the wrong sign · KL without gradient",),
    "loss.kl-over-padding": (
        "KL averaged otherwise than the policy term: mean over the padded width: sum over tokens / (B · T)",
    ),
    "loss.kl-ratio-constant": ("the KL's ratio without gradient",),
    "loss.kl-ratio-levels-swapped": ("KL times the row's ratio",),
    "loss.kl-subtracted": ("the KL with the wrong sign",),
    "loss.last-column-dropped": (
        "completion mask shifted by one position to the left (the last token of a row is left out)",
    ),
    "loss.lengths-off-by-one": (
        "completion mask shifted by one position to the left (the last token of a row is left out)",
    ),
    "loss.luspo-mean-kl": ("KL averaged otherwise than the policy term: mean over rows of each row's token mean",),
    "loss.luspo-without-length": (
        "mean over rows of each row's token mean (asked: token sum of each row, then the mean over rows)",
    ),
    "loss.negated-twice": ("the loss with the wrong sign",),
    "loss.old-is-new": ("a ratio that is always 1: old log-probs are the policy's own",),
    "loss.padding-trains": ("padding counted in the sum, but not in the number of tokens · KL of padding counted",),
    "loss.ratio-constant": ("a ratio that is always 1: old log-probs are the policy's own",),
    "loss.rloo-clip-forgotten": ("r·A without a clip",),
    "loss.rloo-constant-ratio": ("a ratio that is always 1: old log-probs are the policy's own",),
    "loss.sapo-temperatures-swapped": ("the two temperatures swapped",),
    "loss.sapo-unnormalised": ("the gate without its factor 4/τ",),
    "loss.sequence-sum-for-mean": ("the ratio of the row, exp(Σ D) (asked: the ratio of the row, exp(mean D))",),
    "loss.summed-without-mask": ("sum over all tokens, not divided (asked: mean over rows of each row's token mean)",),
    "loss.token-mean": ("token mean over the step: Σ m·l / Σ m (asked: mean over rows of each row's token mean)",),
    "loss.token-means-of-parts": (
        "token mean over the step: Σ m·l / Σ m (asked: mean over rows of each row's token mean)",
    ),
    "loss.weights-forgotten": ("off-policy weights ignored",),
    "loss.weights-on-kl": ("off-policy weights on the KL too, in lower precision",),
    "options.tis-for-mis": ("truncated at the bounds (TIS) (asked: 0 outside the bounds (MIS))",),
    "options.tis-one-sided": ("no lower bound",),
    "preference.beta-outside": ("β outside the sigmoid: it multiplies the loss",),
    "preference.cpo-row-means": ("likelihood: the mean over pairs of each chosen completion's mean −log π",),
    "preference.ipo-target": ("target 1/β (asked: 1/(2β))",),
    "preference.kto-negative-anchor": ("z0 without max(0, ·)",),
    "preference.last-column-dropped": ("the last column of the batch not counted",),
    "preference.orpo-likelihood-of-padding": (
        "likelihood: the mean −log π over all slots of the chosen rows, padding too",
    ),
    "preference.orpo-probabilities": ("probabilities compared, not odds: log π̄ without log(1 − π̄)",),
    "preference.prompt-counted": ("the prompt counted",),
    "preference.shifted-twice": ("the first column of the batch not counted",),
    "preference.sides-swapped": ("chosen and rejected swapped",),
    "preference.simpo-scaled-margin": ("the margin γ multiplied by β",),
    "preference.smoothing-ignored": ('label smoothing ignored (as TRL loss_type="sigmoid" does)',),
    "preference.trainer-mean-for-sum": (
        "log-ratios averaged over each completion's tokens (asked: summed over tokens)",
        "the loss of ipo with means (asked: ipo)",
    ),
    "preference.trainer-reference-kept": ("the reference ignored",),
    "preference.trainer-sides-swapped": ("chosen and rejected swapped",),
    "preference.trainer-smoothing-ignored": ('label smoothing ignored (as TRL loss_type="sigmoid" does)',),
    "ratio.constant": ("a ratio that is always 1: old log-probs are the policy's own",),
    "ratios.padded-mean": (
        "the row's ratio with D averaged over the padded width (asked: the ratio of the row, exp(mean D))",
    ),
    "ratios.sum-for-mean": ("the ratio of the row, exp(Σ D) (asked: the ratio of the row, exp(mean D))",),
    "ratios.swapped": ("the ratio inverted: exp(old − policy)",),
    "sampling.bias-after-the-penalties": ("logit bias after the penalties",),
    "sampling.frequency-once": ("frequency penalty once, however often a token occurred",),
    "sampling.min-p-of-the-whole": ("min-p as an absolute probability, not relative to the largest",),
    "sampling.min-tokens-ignored": (
        "min_tokens_to_keep ignored",
        "min_tokens_to_keep of min-p alone (as in mlx-lm)",
    ),
    "sampling.min-tokens-in-every-filter": ("min_tokens_to_keep of every filter (as in transformers)",),
    "sampling.order-of-the-other-library": ("filters in the order",),
    "sampling.penalties-of-padding": ("the −1 of an empty place taken for the last token",),
    "sampling.penalty-divides-always": ("repetition penalty divides negative logits too",),
    "sampling.penalty-of-padding": ("the −1 of an empty place taken for the last token",),
    "sampling.penalty-per-occurrence": ("repetition penalty for each occurrence in the history",),
    "sampling.penalty-twice": ("repetition penalty twice",),
    "sampling.presence-per-occurrence": ("presence penalty for each occurrence",),
    "sampling.temperature-after-the-filters": (
        "filters in the order top-p, temperature (as in mlx-lm) (asked: temperature, top-p)",
    ),
    "sampling.top-k-off-by-one": ("top-k keeps one token more: k + 1",),
    "sampling.top-p-exclusive": ("top-p without the token whose mass reaches p",),
    "sampling.xtc-inert": ("XTC ignored",),
    "sampling.xtc-removes-special-tokens": ("XTC removes special tokens too",),
    "sampling.xtc-removes-the-least-likely": ("XTC removes every token above the threshold, the least likely too",),
    "sampling.xtc-without-coin": ("XTC on every row, whatever its coin",),
    "weights.exclusive-bounds": ("ends of the bounds left out",),
    "weights.lower-bound-ignored": ("no lower bound",),
    "weights.lower-bound-invented": ("a lower bound of 1/c_max",),
    "weights.mean-of-sequence": (
        "the ratio of each token (asked: the ratio of the row, exp(Σ D))",
        "the ratio of the row, exp(Σ D) (asked: the ratio of each token)",
    ),
    "weights.tis-for-mis": ("truncated at the bounds (TIS) (asked: 0 outside the bounds (MIS))",),
    "logprobs.backward-without-temperature": ("the gradient by x/τ, not divided by τ",),
    "logprobs.backward-sign": ("the gradient with the wrong sign",),
    "logprobs.backward-without-softmax": ("the gradient on the ids alone, without that of the normaliser",),
    "logprobs.backward-entropy-ignored": ("the entropy's part left out",),
    "sampling.draw-reaches": ("the least token whose sum reaches u, also at u = 0: one that cannot be drawn",),
    "sampling.draw-by-likelihood": ("the running sum from the likeliest token on, not in the order of the ids",),
    "sampling.recorded-unfiltered": (
        "the model's own log-probs of the tokens that stay, without temperature and renormalisation",
    ),
    "sampling.top-k-of-one-ignored": ("top-k ignored",),
    "statistics.k3-reversed": ("k3 of −D: e^−D + D − 1, which estimates the other KL",),
    "statistics.nearest-rank": ("the 99% quantile without interpolation, the higher value",),
    "statistics.chi2-without-minus-one": ("mean r² for χ², not less 1",),
    "statistics.trainer-reversed": ("statistics of the inverse ratio: D = behaviour − policy",),
}


def problems(names: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return a problem for each name, given by mutant and op, that this table does not accept."""
    messages = []
    for mutant, by_op in names.items():
        for op, name in by_op.items():
            if mutant not in NAMES:
                messages.append(f"{mutant}: {op} is named “{name}”; read it and add it to tools/named_mutants.py")
            elif not any(part in name for part in NAMES[mutant]):
                messages.append(
                    f"{mutant}: {op} is named “{name}”, must hold {' or '.join(f'“{x}”' for x in NAMES[mutant])}"
                )
    return messages
