"""Mutations of filters and draws."""

from gates.families.hosts import in_numpy

in_numpy(
    "sampling.order-of-the-other-library",
    "sampling:plan",
    "sampling.patches:other_order",
    mistake="the filters run in the other library's order",
    arises="one sampler under two names",
    source="lablup/mlxcel#1379: filters in another order",
    theme="sampling",
    symptom=(
        "Samples are a little less or more diverse than elsewhere with the same settings; rewards differ by some points."
    ),
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_numpy(
    "sampling.temperature-after-the-filters",
    "sampling:plan",
    "sampling.patches:temperature_last",
    mistake="with transformers' order, the filters see the distribution at temperature 1",
    arises="temperature applied after the filters",
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
    arises="cumulative mass ≤ p instead of cumulative mass before the token < p",
    source="ggml-org/llama.cpp#1953: top-p off by one token; Biohub/esm#360: threshold-crossing token dropped",
    theme="sampling",
    symptom="Sampling is nearly greedy if one token is likely: entropy and exploration are too low for this p.",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_numpy(
    "sampling.top-k-off-by-one",
    "sampling:filtered_logprobs",
    "sampling.patches:one_more",
    mistake="top-k keeps k + 1 tokens",
    arises="an inclusive slice",
    source="kingoflolz/mesh-transformer-jax#164: top-k keeps one more",
    theme="sampling",
    symptom="Top-1 is not greedy: evaluation differs between runs.",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_numpy(
    "sampling.top-k-keeps-the-tied",
    "sampling:top_k_length",
    "sampling.patches:all_tied",
    mistake="all tokens tied with the k-th are kept",
    source="transformers TopKLogitsWarper: logits < the k-th largest are removed",
    theme="sampling",
    symptom="No curve shows it: with coarse logits more than k tokens can be drawn.",
    caught_by=("sampling.filters.ties",),
)
in_numpy(
    "sampling.top-p-keeps-the-tied",
    "sampling:top_p_length",
    "sampling.patches:all_tied",
    mistake="all tokens tied with the last kept one are kept",
    source="mlx-lm apply_top_p keeps all tied tokens",
    theme="sampling",
    symptom="No curve shows it: with coarse logits the nucleus is larger than p requires.",
    caught_by=("sampling.filters.ties",),
)
in_numpy(
    "sampling.ties-lower-id-only",
    "sampling:tie_rule",
    "sampling.patches:lower_ids",
    mistake="of the tokens tied at a threshold the lower ids are kept, for every named library",
    arises="a stable sort and a count, whereas the library compares with a threshold or sorts upwards",
    theme="sampling",
    symptom="Tokens drawn by the library score −inf: up to 4.3% of its mass with bfloat16 logits at V = 151,936.",
    caught_by=("sampling.filters.ties",),
)
in_numpy(
    "sampling.ties-library-keeps-all",
    "sampling:tie_rule",
    "sampling.patches:library_is_all",
    mistake="all tokens tied at a threshold are kept, although the named library sorts and cuts there",
    arises="one rule for both filters of a library",
    theme="sampling",
    symptom="Log-probs of kept tokens are a little too low: they share mass with tokens that the library never draws.",
    caught_by=("sampling.filters.ties",),
)
in_numpy(
    "sampling.min-p-of-the-whole",
    "sampling:filtered_logprobs",
    "sampling.patches:absolute_floor",
    mistake="min_p is used as an absolute probability, independent of the largest one",
    arises="min_p read as a floor for the probability",
    theme="sampling",
    symptom="If the distribution is flat, all tokens but the top one are removed: text gets dull where it should vary.",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_numpy(
    "sampling.min-p-exclusive",
    "sampling:min_p_length",
    "sampling.patches:above_the_bound",
    mistake="a token exactly at the bound is removed; at min_p 1 only one of the likeliest stays",
    arises="p > min_p · p_max instead of ≥",
    theme="sampling",
    symptom="No curve shows it: only equally likely tokens at the bound are drawn less often than they should be.",
    caught_by=("sampling.draw.inverse-cdf",),
)
in_numpy(
    "sampling.xtc-removes-the-least-likely",
    "sampling:filtered_logprobs",
    "sampling.patches:all_above",
    mistake="XTC also removes the least likely token above the threshold",
    arises="all tokens with probs > threshold masked",
    source="paiml/aprender#2131: XTC removes the boundary token",
    theme="sampling",
    symptom="Text derails: no plausible token is left where two were likely.",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_numpy(
    "sampling.xtc-inert",
    "sampling:filtered_logprobs",
    "sampling.patches:nothing_above",
    mistake="XTC removes no token",
    arises="a probability threshold compared with log-probs",
    theme="configuration",
    symptom="XTC's settings have no effect.",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_numpy(
    "sampling.xtc-without-coin",
    "sampling:filtered_logprobs",
    "sampling.patches:coin_ignored",
    mistake="XTC acts on every draw",
    arises="xtc_probability read as a switch",
    theme="configuration",
    symptom="Text is stranger than configured: top tokens are removed at every step.",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_numpy(
    "sampling.xtc-of-the-batch",
    "sampling:filtered_logprobs",
    "sampling.patches:least_of_the_batch",
    mistake=(
        "every row loses the tokens above the smallest probability over the threshold in the whole batch instead of "
        "the row"
    ),
    arises="`.min()` without an axis",
    source="ml-explore/mlx-lm#1575: XTC threshold of whole batch",
    theme="sampling",
    symptom="Batched text derails if one token is nearly certain: another row's threshold removes it.",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_numpy(
    "sampling.penalty-divides-always",
    "sampling:filtered_logprobs",
    "sampling.patches:divide_always",
    mistake="negative logits are divided by the penalty, so that earlier tokens become likelier",
    arises="a penalty written for positive logits",
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
    arises="history used as an index without removing the padding",
    theme="sampling",
    symptom="No effect, unless the vocabulary's last token is used: it becomes rarer in ragged batches.",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_numpy(
    "sampling.penalty-twice",
    "sampling:filtered_logprobs",
    "sampling.patches:penalty_twice",
    mistake="the repetition penalty is applied twice",
    arises="applied in the processor and again in the sampler",
    source="sgl-project/sglang-omni#1360: penalty applied twice",
    theme="sampling",
    symptom="Text avoids repetition too much: names change, brackets stay open; a penalty of 1.1 acts like 1.21.",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_numpy(
    "sampling.draw-reaches",
    "sampling:draw",
    "sampling.patches:reaches",
    mistake="≥ instead of >: u = 0 selects token 0 although it was filtered out",
    arises="searchsorted with its default `side`",
    theme="sampling",
    symptom="Once in millions of tokens a token appears that was filtered out.",
    caught_by=("sampling.draw.inverse-cdf",),
)
in_numpy(
    "sampling.draw-float32-running-sum",
    "sampling:draw",
    "sampling.patches:float32_running_sum",
    mistake="a float32 cumulative sum over 152k tokens ends at 0.99999",
    arises="cumsum of float32 probabilities on the device",
    source=(
        "torch/torch7#418: float cumulative sum loses rare events; pytorch/pytorch#28390: cumulative "
        "distribution loses its tail"
    ),
    theme="precision",
    symptom="No curve shows it: rare tokens at the end of the vocabulary are drawn too often or never.",
    caught_by=("sampling.draw.inverse-cdf",),
)
in_numpy(
    "sampling.draw-by-likelihood",
    "sampling:draw",
    "sampling.patches:by_likelihood",
    mistake="the intervals of the inverse CDF are ordered by probability instead of token id",
    arises="a draw from the rows as sorted by top-p",
    theme="sampling",
    symptom="No curve shows it: no other implementation reproduces the tokens.",
    caught_by=("sampling.draw.inverse-cdf",),
)
in_numpy(
    "sampling.recorded-unfiltered",
    "sampling:behaviour",
    "sampling.patches:model_logprobs",
    mistake="the recorded log-prob is the model's instead of the sampling distribution's",
    arises="one of three log-probs under another one's name",
    source=(
        "NVIDIA-NeMo/RL#69: raw log-probs under top-p; thinking-machines-lab/tinker-feedback#148: log-probs "
        "ignore sampling settings"
    ),
    theme="ratio and rollout",
    symptom="With top-p on, the recorded log-probs are too low: ratios and corrections are biased by the removed mass.",
    caught_by=("sampling.draw.inverse-cdf",),
)
in_numpy(
    "sampling.greedy-highest-id",
    "sampling:largest_token",
    "sampling.patches:highest_id",
    mistake="of several tokens with the maximum the last is taken",
    arises="an argmax that runs backwards, or ≥ in its loop",
    theme="sampling",
    symptom="No curve shows it: greedy evaluation differs from other engines where logits tie.",
    caught_by=("sampling.temperature-zero.lowest-id",),
)
in_numpy(
    "sampling.penalty-per-occurrence",
    "sampling:filtered_logprobs",
    "sampling.patches:once_per_occurrence",
    mistake="a token with n occurrences in the history is penalised n times",
    arises="a loop over the history instead of over its distinct tokens",
    source=(
        "ohdearquant/lattice#312: penalty^N for N occurrences; software-mansion/react-native-executorch#1483: penalty per occurrence"
    ),
    theme="sampling",
    symptom="Long answers drift to rare words and other scripts, because frequent tokens are suppressed a hundredfold.",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_numpy(
    "sampling.top-k-of-one-ignored",
    "sampling:top_k_length",
    "sampling.patches:one_means_all",
    mistake="a top-k of 1 has no effect",
    arises="if top_k > 1",
    theme="configuration",
    symptom="An evaluation with top-k 1 is not greedy: its score changes from run to run.",
    caught_by=("sampling.draw.inverse-cdf",),
)
in_numpy(
    "sampling.top-k-below-the-vocabulary",
    "sampling:top_k_length",
    "sampling.patches:never_all",
    mistake="a top-k of at least the vocabulary's size removes the least likely token",
    arises="min(k, V - 1), for a partition that needs an index below V",
    source="vllm-project/vllm#14234: k clamped to vocab_size-1",
    theme="sampling",
    symptom="No curve shows it: one token of the vocabulary is never drawn although top-k should be off.",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_numpy(
    "sampling.top-p-acts-at-one",
    "sampling:_stage",
    "sampling.patches:acts_at_one",
    mistake="a top-p of 1 removes the tail that no longer changes the cumulative sum",
    arises="a filter that is not skipped at 1",
    theme="sampling",
    symptom="No curve shows it: rare tokens are never drawn after confident ones, and their log-prob is -inf.",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_numpy(
    "sampling.softmax-without-maximum",
    "sampling:filtered_logprobs",
    "sampling.patches:overflowing",
    mistake="exp of the logits without subtracting the maximum: a logit above 88 overflows float32",
    source="intel/xFasterTransformer#326: softmax without its maximum",
    theme="precision",
    symptom="NaN log-probs or token id 0 once logits have grown, late in training and with some models only.",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_numpy(
    "sampling.min-tokens-ignored",
    "sampling:filtered_logprobs",
    "sampling.patches:nothing_at_least",
    mistake="a filter keeps fewer tokens than min_tokens_to_keep",
    arises="min_tokens_to_keep accepted by the constructor and never read",
    theme="configuration",
    symptom="Beams or samples repeat each other if one token is nearly certain.",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_numpy(
    "sampling.min-tokens-in-every-filter",
    "sampling:filtered_logprobs",
    "sampling.patches:at_least_everywhere",
    mistake="with mlx-lm's order, top-p and top-k keep min_tokens_to_keep too",
    arises="transformers' semantics with mlx-lm's order of filters",
    theme="sampling",
    symptom="Samples are more diverse than mlx-lm's with the same settings.",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_numpy(
    "sampling.xtc-removes-special-tokens",
    "sampling:filtered_logprobs",
    "sampling.patches:none_is_special",
    mistake="XTC also removes EOS and the newline",
    arises="an empty list of special tokens",
    theme="sampling",
    symptom="Completions run into the length limit, because a likely EOS is removed again and again.",
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
    mistake="the presence penalty is subtracted once per occurrence",
    arises="index_add used for both penalties",
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
    symptom="No effect, unless the vocabulary's last token is used: it becomes rarer in ragged batches.",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
in_numpy(
    "sampling.bias-after-the-penalties",
    "sampling:filtered_logprobs",
    "sampling.patches:bias_last",
    mistake="the repetition penalty uses the signs of the logits before the bias is added",
    arises="logits processors in another order",
    theme="sampling",
    symptom="A token with a bias is penalised by the wrong rule once it has occurred.",
    caught_by=("sampling.filters.keep-the-right-tokens",),
)
