"""Mutations of filters and draws."""

from gates.families.hosts import in_numpy

in_numpy(
    "sampling.order-of-the-other-library",
    "sampling:plan",
    "sampling.patches:other_order",
    mistake="the filters run in the other library's order",
    arises="one sampler behind two names",
    source="lablup/mlxcel#1379: filters in another order",
    theme="sampling",
    symptom=(
        "Samples are a little narrower or wider than elsewhere with the same settings; rewards differ by some points."
    ),
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_numpy(
    "sampling.temperature-after-the-filters",
    "sampling:plan",
    "sampling.patches:temperature_last",
    mistake="transformers' filters see the untempered distribution",
    arises="temperature applied to what the filters left",
    source="fishaudio/fish-speech#1150: temperature after top-p",
    theme="sampling",
    symptom="At low temperatures answers are more varied than elsewhere, at high ones less.",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_numpy(
    "sampling.top-p-exclusive",
    "sampling:filtered_logprobs",
    "sampling.patches:exclusive",
    mistake="the token whose mass reaches p is dropped",
    arises="cumulative mass ≤ p instead of the mass before it < p",
    source="ggml-org/llama.cpp#1953: top-p off by one token; Biohub/esm#360: threshold-crossing token dropped",
    theme="sampling",
    symptom="Sampling is nearly greedy where one token is likely: entropy and exploration are lower than p promises.",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_numpy(
    "sampling.top-k-off-by-one",
    "sampling:filtered_logprobs",
    "sampling.patches:one_more",
    mistake="k + 1 tokens stay",
    arises="an inclusive slice",
    source="kingoflolz/mesh-transformer-jax#164: top-k keeps one more",
    theme="sampling",
    symptom="Top-1 is not greedy: evaluation wobbles between runs.",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_numpy(
    "sampling.top-k-keeps-the-tied",
    "sampling:top_k_length",
    "sampling.patches:all_tied",
    mistake="every token as likely as the k-th stays",
    source="transformers TopKLogitsWarper: logits < the k-th largest are removed",
    theme="sampling",
    symptom="Nothing in any curve: with coarse logits more than k tokens can be drawn.",
    caught_by=("sampling.filters.ties",),
)
in_numpy(
    "sampling.top-p-keeps-the-tied",
    "sampling:top_p_length",
    "sampling.patches:all_tied",
    mistake="every token as likely as the last one kept stays",
    source="mlx-lm apply_top_p keeps all tied tokens",
    theme="sampling",
    symptom="Nothing in any curve: with coarse logits the nucleus is larger than p asks.",
    caught_by=("sampling.filters.ties",),
)
in_numpy(
    "sampling.ties-lower-id-only",
    "sampling:tie_rule",
    "sampling.patches:lower_ids",
    mistake="of the tokens at a threshold the lower ids stay, whichever library is named",
    arises="a stable sort and a count, where the library compares with a threshold or sorts upwards",
    theme="sampling",
    symptom="Tokens that the library drew score −inf: up to 4.3% of its mass with bfloat16 logits at V = 151,936.",
    caught_by=("sampling.filters.ties",),
)
in_numpy(
    "sampling.ties-library-keeps-all",
    "sampling:tie_rule",
    "sampling.patches:library_is_all",
    mistake="every token at a threshold stays, though the named library sorts there and cuts",
    arises="one rule for both filters of a library",
    theme="sampling",
    symptom="Log-probs of the cut are a little too low: tokens share the mass that the library can never draw.",
    caught_by=("sampling.filters.ties",),
)
in_numpy(
    "sampling.min-p-of-the-whole",
    "sampling:filtered_logprobs",
    "sampling.patches:absolute_floor",
    mistake="a token stays if its probability is min_p, whatever the largest is",
    arises="min_p read as a floor of the probability",
    theme="sampling",
    symptom="In uncertain places everything but the top token goes: text gets dull where it should vary.",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_numpy(
    "sampling.min-p-exclusive",
    "sampling:min_p_length",
    "sampling.patches:above_the_bound",
    mistake="a token at the bound goes, at min_p 1 all but one of the likeliest",
    arises="p > min_p · p_max in the place of p ≥",
    theme="sampling",
    symptom="Nothing in any curve: only equally likely tokens at the bound are drawn less often than they should be.",
    caught_by=("sampling.draw.inverse-cdf",),
)
in_numpy(
    "sampling.xtc-removes-the-least-likely",
    "sampling:filtered_logprobs",
    "sampling.patches:all_above",
    mistake="the least likely token above the threshold goes too",
    arises="probs > threshold masked as a whole",
    source="paiml/aprender#2131: XTC removes the boundary token",
    theme="sampling",
    symptom="Text derails: no sensible token is left where two were likely.",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_numpy(
    "sampling.xtc-inert",
    "sampling:filtered_logprobs",
    "sampling.patches:nothing_above",
    mistake="no token is removed",
    arises="a threshold compared with log-probs",
    theme="configuration",
    symptom="XTC's settings change nothing.",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_numpy(
    "sampling.xtc-without-coin",
    "sampling:filtered_logprobs",
    "sampling.patches:coin_ignored",
    mistake="XTC acts on every draw",
    arises="xtc_probability read as a switch",
    theme="configuration",
    symptom="Text is odder than the probability asks: top tokens go at every step.",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_numpy(
    "sampling.xtc-of-the-batch",
    "sampling:filtered_logprobs",
    "sampling.patches:least_of_the_batch",
    mistake="every row loses the tokens above the least likely one above the threshold in any row of the batch",
    arises="`.min()` without an axis, in a chain whose other filters reduce the last one",
    source="ml-explore/mlx-lm#1575: XTC threshold of whole batch",
    theme="sampling",
    symptom="Batched text derails where one token is nearly certain: a neighbour's threshold removes it, and alone it stays.",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_numpy(
    "sampling.penalty-divides-always",
    "sampling:filtered_logprobs",
    "sampling.patches:divide_always",
    mistake="negative logits are divided, so earlier tokens become likelier",
    arises="the penalty written for positive logits",
    source=(
        "huggingface/transformers#2302: penalty inverts for negative logits; NVIDIA-NeMo/Speech#8194: negative "
        "logits divided"
    ),
    theme="sampling",
    symptom="The higher the penalty, the more the text repeats itself.",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_numpy(
    "sampling.penalty-of-padding",
    "sampling:filtered_logprobs",
    "sampling.patches:padding_is_a_token",
    mistake="the −1 of the padding penalises the last token of the vocabulary",
    arises="history used as an index as it is",
    theme="sampling",
    symptom="Nothing, unless the vocabulary's last token matters: it grows rarer in ragged batches.",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_numpy(
    "sampling.penalty-twice",
    "sampling:filtered_logprobs",
    "sampling.patches:penalty_twice",
    mistake="the penalty acts twice",
    arises="applied in the processor and again in the sampler",
    source="sgl-project/sglang-omni#1360: penalty applied twice",
    theme="sampling",
    symptom="Text avoids repetition too hard: names change, brackets stay open; a penalty of 1.1 acts like 1.21.",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_numpy(
    "sampling.draw-reaches",
    "sampling:draw",
    "sampling.patches:reaches",
    mistake="≥ instead of >: u = 0 picks token 0, which was filtered out",
    arises="searchsorted with its default side",
    theme="sampling",
    symptom="Once in millions of tokens one appears that every filter had removed.",
    caught_by=("sampling.draw.inverse-cdf",),
)
in_numpy(
    "sampling.draw-float32-running-sum",
    "sampling:draw",
    "sampling.patches:float32_running_sum",
    mistake="a float32 running sum ends at 0.99999 for 152k tokens",
    arises="cumsum of float32 probabilities on the device",
    source=(
        "torch/torch7#418: float cumulative sum loses rare events; pytorch/pytorch#28390: cumulative "
        "distribution loses its tail"
    ),
    theme="precision",
    symptom="Nothing in any curve: rare tokens at the end of the vocabulary are drawn too often or never.",
    caught_by=("sampling.draw.inverse-cdf",),
)
in_numpy(
    "sampling.draw-by-likelihood",
    "sampling:draw",
    "sampling.patches:by_likelihood",
    mistake="the intervals are laid out from likely to unlikely",
    arises="the draw taken from the rows that top-p had sorted",
    theme="sampling",
    symptom="Nothing in any curve: no replay against another implementation gives the same tokens.",
    caught_by=("sampling.draw.inverse-cdf",),
)
in_numpy(
    "sampling.recorded-unfiltered",
    "sampling:behaviour",
    "sampling.patches:model_logprobs",
    mistake="the log-prob recorded is the model's, not that of the distribution drawn from",
    arises="one of three log-probs, under the name of another",
    source=(
        "NVIDIA-NeMo/RL#69: raw log-probs under top-p; thinking-machines-lab/tinker-feedback#148: log-probs "
        "ignore sampling settings"
    ),
    theme="ratio and rollout",
    symptom="With top-p on, the recorded log-probs are too low: ratios and corrections are biased by the cut mass.",
    caught_by=("sampling.draw.inverse-cdf",),
)
in_numpy(
    "sampling.greedy-highest-id",
    "sampling:largest_token",
    "sampling.patches:highest_id",
    mistake="the last of the tokens on the maximum is taken",
    arises="an arg-max that runs backwards, or ≥ in its loop",
    theme="sampling",
    symptom="Nothing in any curve: greedy evaluation differs from other engines where logits tie.",
    caught_by=("sampling.temperature-zero.lowest-id",),
)
in_numpy(
    "sampling.penalty-per-occurrence",
    "sampling:filtered_logprobs",
    "sampling.patches:once_per_occurrence",
    mistake="a token that stands n times in the history is penalised n times",
    arises="a loop over the history instead of over its distinct tokens",
    source=(
        "ohdearquant/lattice#312: penalty^N for N occurrences; software-mansion/react-native-executorch#1483: penalty per occurrence"
    ),
    theme="sampling",
    symptom="Long answers drift to rare words and other scripts: by then frequent tokens are suppressed a hundredfold.",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_numpy(
    "sampling.top-k-of-one-ignored",
    "sampling:top_k_length",
    "sampling.patches:one_means_all",
    mistake="a top-k of 1 does not act",
    arises="if top_k > 1",
    theme="configuration",
    symptom="An evaluation that asks for top-k 1 to be greedy is not: its score changes from run to run.",
    caught_by=("sampling.draw.inverse-cdf",),
)
in_numpy(
    "sampling.top-k-below-the-vocabulary",
    "sampling:top_k_length",
    "sampling.patches:never_all",
    mistake="a top-k of the vocabulary's size or more removes the least likely token",
    arises="min(k, V - 1), for a partition that wants an index below V",
    source="vllm-project/vllm#14234: k clamped to vocab_size-1",
    theme="sampling",
    symptom="Nothing in any curve: one token of the vocabulary is never drawn where top-k was to be off.",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_numpy(
    "sampling.top-p-acts-at-one",
    "sampling:_stage",
    "sampling.patches:acts_at_one",
    mistake="a top-p of 1 removes the tail that no longer moves the running sum",
    arises="a filter without a condition, for 1 looks like no filter",
    theme="sampling",
    symptom="Nothing in any curve: rare tokens are never drawn after confident ones, and their log-prob is -inf.",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_numpy(
    "sampling.softmax-without-maximum",
    "sampling:filtered_logprobs",
    "sampling.patches:overflowing",
    mistake="exp of the logits themselves: a row with a logit above 88 overflows float32",
    source="intel/xFasterTransformer#326: softmax without its maximum",
    theme="precision",
    symptom="NaN in log-probs or a token of id 0, once logits have grown: late in training, and with some models only.",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_numpy(
    "sampling.min-tokens-ignored",
    "sampling:filtered_logprobs",
    "sampling.patches:nothing_at_least",
    mistake="a filter leaves fewer tokens than it must",
    arises="min_tokens_to_keep taken by the constructor and read by nobody",
    theme="configuration",
    symptom="Beams or samples repeat each other where one token is nearly certain.",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_numpy(
    "sampling.min-tokens-in-every-filter",
    "sampling:filtered_logprobs",
    "sampling.patches:at_least_everywhere",
    mistake="mlx-lm's top-p and top-k leave min_tokens_to_keep too",
    arises="transformers' meaning under mlx-lm's order of filters",
    theme="sampling",
    symptom="Samples are wider than mlx-lm's with the same settings.",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_numpy(
    "sampling.xtc-removes-special-tokens",
    "sampling:filtered_logprobs",
    "sampling.patches:none_is_special",
    mistake="XTC removes the end of a sequence and the newline as well",
    arises="a list of special tokens that stays empty",
    theme="sampling",
    symptom="Completions run into the limit: their likely end is removed again and again.",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_numpy(
    "sampling.frequency-once",
    "sampling:filtered_logprobs",
    "sampling.patches:once",
    mistake="the frequency penalty is subtracted once, however often the token occurred",
    arises="logits[tokens] -= penalty, which writes a repeated index once",
    theme="sampling",
    symptom="Long answers repeat themselves more than the penalty allows elsewhere.",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_numpy(
    "sampling.presence-per-occurrence",
    "sampling:filtered_logprobs",
    "sampling.patches:presence_each_time",
    mistake="the presence penalty is subtracted for each occurrence",
    arises="index_add for both penalties",
    theme="sampling",
    symptom="Frequent words vanish from long answers, articles and commas first.",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_numpy(
    "sampling.penalties-of-padding",
    "sampling:occurrences",
    "sampling.patches:padding_occurs",
    mistake="the −1 of the padding counts as the last token of the vocabulary",
    arises="bincount or scatter with negative indices",
    theme="sampling",
    symptom="Nothing, unless the vocabulary's last token matters: it grows rarer in ragged batches.",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_numpy(
    "sampling.bias-after-the-penalties",
    "sampling:filtered_logprobs",
    "sampling.patches:bias_last",
    mistake="the repetition penalty looks at signs before the bias is added",
    arises="a chain of processors in another order",
    theme="sampling",
    symptom="A token that a bias was to keep is punished or spared by the wrong rule once it has occurred.",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
