"""Mutations that are edits of the program of the policy losses; loaded in workers only.

The mistakes of the other modules in this folder are not edits: NaN and infinities in masked slots, sums in float32, one state
for several calls, a gradient that is not its loss's, arrays cut to another width, choices of the caller that are not passed
on, and mistakes of the trainer. The latter replace functions of the trainer, so that the proof covers more than the NumPy
baseline and `program.py`.
"""

from gates.families.edited import edited
from gates.families.loss.program import PROGRAM

row_mean = edited(PROGRAM, "mean over rows of each row's token mean")
token_mean = edited(PROGRAM, "token mean over the step: Σ m·l / Σ m")
token_mean_for_prompts = edited(
    PROGRAM, "token mean over the step: Σ m·l / Σ m (asked: token mean of each prompt, then the mean over prompts)"
)
token_mean_of_window = edited(
    PROGRAM, "token mean over the step: Σ m·l / Σ m (asked: sum over tokens / the tokens of the generation batch)"
)
padded_width = edited(PROGRAM, "mean over the padded width: sum over tokens / (B · T)")
sum_of_row_means = edited(PROGRAM, "sum over rows of token means, not divided by B")
rows_with_tokens = edited(PROGRAM, "mean over the rows that have tokens, not over all rows")
ratio_of_one = edited(PROGRAM, "a ratio that is always 1: old log-probs are the policy's own")
live_old = edited(PROGRAM, "the policy's own log-probs taken for old ones with their gradient, which cancels")
token_ratio = edited(PROGRAM, "the ratio of each token")
row_ratio = edited(PROGRAM, "the ratio of the row, exp(mean D)")
inert_clip = edited(PROGRAM, "a clip that never acts: r·A")
one_width = edited(PROGRAM, "ε_low on both sides of the clip")
swapped_widths = edited(PROGRAM, "ε_low and ε_high swapped")
floor_at_epsilon = edited(PROGRAM, "the lower bound ε_low, not 1 − ε_low")
delta_ignored = edited(PROGRAM, "the second bound δ ignored")
delta_for_gains = edited(PROGRAM, "δ instead of 1 + ε_high where A > 0")
linear_clip = edited(PROGRAM, "bounds 1 ± ε of the ratio, not ±ε of its logarithm")
both_sides = edited(PROGRAM, "both bounds on every log-ratio")
other_cap = edited(PROGRAM, "the cap ε_high", "the cap 1 + ε_high")
live_cap = edited(PROGRAM, "a capped ratio that has a gradient")
dropped_tokens = edited(PROGRAM, "tokens beyond the cap left out, not weighed by the cap")
swapped_temperatures = edited(PROGRAM, "the two temperatures swapped")
gate_without_factor = edited(PROGRAM, "the gate without its factor 4/τ")
gate_of_log_ratio = edited(PROGRAM, "the gate of D, not of r − 1")
power_and_decay_swapped = edited(PROGRAM, "k and λ exchanged")
row_mask_ignored = edited(PROGRAM, "rows that the row mask excludes counted")
padding_counted = edited(PROGRAM, "padding counted in the sum, but not in the number of tokens")
without_last_token = edited(PROGRAM, "the last token of each row, its end-of-sequence token, left out")
row_advantages = edited(PROGRAM, "the mean of a row's advantages for each of its tokens")
weights_ignored = edited(PROGRAM, "off-policy weights ignored")
weights_on_kl = edited(PROGRAM, "off-policy weights on the KL too")
negated = edited(PROGRAM, "the loss with the wrong sign")
kl_subtracted = edited(PROGRAM, "the KL with the wrong sign")
kl_unclamped = edited(PROGRAM, "the KL's clamp ignored")
kl_of_row_means = edited(PROGRAM, "KL averaged otherwise than the policy term: mean over rows of each row's token mean")
kl_estimators_swapped = edited(PROGRAM, "KL by k2 (asked: k1)", "KL by k1 (asked: k2)")
kl_without_ratio = edited(PROGRAM, "KL not weighed by a ratio")
kl_levels_swapped = edited(
    PROGRAM,
    "KL times the row's ratio (asked: times the token's ratio)",
    "KL times the token's ratio (asked: times the row's ratio)",
)
kl_ratio_detached = edited(PROGRAM, "the KL's ratio without gradient")
