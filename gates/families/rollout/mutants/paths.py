"""Mutations of rollouts."""

from gates.families.hosts import in_trainer

in_trainer(
    "rollout.prompts-tiled",
    "rollout.table:prompt_of_row",
    "rollout.patches:tiled",
    mistake="prompts are tiled where each is to be repeated, so groups mix prompts",
    arises="numpy.tile for numpy.repeat",
    source="wenet-e2e/west#121: repeat for repeat_interleave",
    theme="ratio and rollout",
    symptom="Reward is flat and looks like noise: the baseline of each group comes from other prompts.",
    caught_by=("rollout.batched.equals-naive",),
)
in_trainer(
    "rollout.draws-by-position",
    "rollout.table:draw_index",
    "rollout.patches:position_in_batch",
    mistake="the draws of a row depend on its place in the batch",
    arises="one random state for the whole batch, split by position",
    source="lablup/mlxcel#347: last seed wins in a batch; vllm-project/vllm#51226: seed depends on batch neighbours",
    theme="state and resume",
    symptom="Nothing in any curve: a run cannot be replayed with another batch size, and a resumed run parts at once.",
    caught_by=("rollout.row-alone.equals-batch", "rollout.batched.equals-naive"),
)
in_trainer(
    "rollout.finished-rows-go-on",
    "rollout.table:finished",
    "rollout.patches:never_finished",
    mistake="rows go on after their first EOS, and their tokens count",
    arises="a `done` flag that is overwritten each step instead of or-ed",
    source="lucidrains/h-transformer-1d#9: EOS ignored in batches",
    theme="masks and shifts",
    symptom="Mean length is near the limit and rewards parse text after the answer; the policy forgets to stop.",
    caught_by=("rollout.rows.end-at-first-eos", "rollout.batched.equals-naive"),
)
in_trainer(
    "rollout.untempered-draw",
    "sampling:scale_by_temperature",
    "rollout.patches:untempered",
    mistake="tokens are drawn at temperature 1 whatever was asked for",
    arises="a temperature that only the recorded log-probs see",
    theme="configuration",
    symptom="Temperature changes nothing in the samples; the ratio of a fresh batch is not 1.",
    caught_by=("rollout.batched.equals-naive",),
)


in_trainer(
    "rollout.stale-prefix-cache",
    "rollout.prefix:_prefill",
    "rollout.patches:kept_over_updates",
    mistake="a prompt's cache outlives the weights that made it; no loss curve names it",
    arises="a prefix cache keyed by the prompt alone",
    source=(
        "NVIDIA-NeMo/RL#4018: prefix cache stale over updates; vllm-project/vllm#9744: cached prefix outlives "
        "load_weights"
    ),
    theme="state and resume",
    symptom=(
        "The mismatch of sampler and trainer grows step by step and resets when the engine restarts; no loss "
        "curve names it."
    ),
    caught_by=("rollout.update.reaches-every-path",),
)
in_trainer(
    "rollout.compiled-weights-baked-in",
    "rollout.fixed:compile_step",
    "rollout.patches:weights_baked_in",
    mistake="the compiled step keeps the weights of its first call",
    arises="mx.compile without inputs=[model.state]",
    source=(
        "ml-explore/mlx-swift-lm#586: compile captures module parameters; Goekdeniz-Guelmez/mlx-lm-lora#50: "
        "mx.compile freezes LoRA weights"
    ),
    theme="state and resume",
    symptom=(
        "Samples stay those of the first step: loss moves, reward is flat, and the ratio drifts ever further from 1."
    ),
    caught_by=("rollout.update.reaches-every-path",),
)
in_trainer(
    "rollout.compiled-padding-visible",
    "rollout.fixed:visible",
    "rollout.patches:padding_visible",
    mistake="rows of the compiled step look at the padding before their text",
    arises="a mask made of the position alone",
    source="TransformerLensOrg/TransformerLens#1005: padding attended in generate",
    theme="masks and shifts",
    symptom="Short prompts get worse answers in mixed batches than alone; reward is lower than the model deserves.",
    caught_by=("rollout.compiled.equals-naive",),
)
in_trainer(
    "rollout.grown-buffer-starts-anew",
    "rollout.compiled:Compiled._grow",
    "rollout.patches:lost_when_grown",
    mistake="keys and values that were there before are lost when the buffers grow past 256 columns",
    arises="a larger buffer is allocated and the old one is copied into nothing, in a case that short tests never reach",
    theme="masks and shifts",
    symptom="Long answers forget their question: reward falls with the length, short ones are as good as ever.",
    caught_by=("rollout.long-rows.equal-naive",),
)
in_trainer(
    "rollout.batched-padding-visible",
    "rollout.caches:_padded",
    "rollout.patches:mask_forgets_padding",
    mistake="rows of a batch look at the padding before their text",
    arises="a left-pad mask for the prefill and none for the decode, or none at all",
    source=(
        "ml-explore/mlx-lm#1906: batch generation ignores padding mask; Blaizzy/mlx-vlm#1542: left padding lost "
        "in batches"
    ),
    theme="masks and shifts",
    symptom="Short prompts get worse answers in mixed batches than alone; reward is lower than the model deserves.",
    caught_by=("rollout.batched.equals-naive",),
)
in_trainer(
    "rollout.recurrent-state-reads-padding",
    "rollout.caches:_padded",
    "rollout.patches:state_reads_padding",
    mistake="a hybrid's recurrent state runs over the padding of ragged prompts",
    arises="left padding with a plain make_prompt_cache, as for attention",
    source=(
        "huggingface/transformers#32677: padding enters the Mamba state; Blaizzy/mlx-vlm#1946: recurrent state "
        "depends on neighbours"
    ),
    theme="masks and shifts",
    symptom="Hybrid models only: short prompts in mixed batches get garbled or empty answers.",
    caught_by=("rollout.batched.equals-naive",),
)
in_trainer(
    "rollout.last-token-twice",
    "rollout.caches:feed",
    "rollout.patches:last_token_twice",
    mistake="the last prompt token is fed twice",
    arises="a whole prompt prefilled, then a decode loop that starts with its last token",
    theme="ratio and rollout",
    symptom="The first token of every answer is off, often a repetition; the ratio of first tokens is not 1.",
    caught_by=("rollout.cached.equals-naive", "rollout.prefix.equals-naive"),
)
in_trainer(
    "rollout.scores-untempered",
    "rollout.sampler:logprobs",
    "rollout.patches:untempered_scores",
    mistake="the recorded tempered log-probs are those at temperature 1",
    arises="one log-softmax of the raw logits for everything that is recorded",
    source=(
        "huggingface/trl#4159: vLLM log-probs ignore the temperature; vllm-project/vime#64: raw log-probs for "
        "tempered ones"
    ),
    theme="ratio and rollout",
    symptom=(
        "With a temperature other than 1 the ratio of sampler and trainer is off from the first step; "
        "corrections cap everything."
    ),
    caught_by=("rollout.log-probs.match-definition",),
)
in_trainer(
    "rollout.filters-dropped",
    "rollout.sampler:keywords",
    "rollout.patches:filters_dropped",
    mistake="the fast sampler ignores top-k, top-p and min-p",
    arises="settings read by one of two samplers",
    source="lablup/mlxcel#1391: min-p silently inert",
    theme="configuration",
    symptom="Top-k, top-p and min-p change nothing; samples hold odd rare tokens and reward is a little lower.",
    caught_by=("rollout.draws.follow-distribution", "rollout.batched.equals-naive"),
)
in_trainer(
    "rollout.penalty-forgets-prompt",
    "rollout.sampler:_histories",
    "rollout.patches:history_without_prompt",
    mistake="the repetition penalty sees the completion only",
    arises="a history that starts empty",
    source=(
        "vllm-project/vllm-metal#69: penalty does not see the prompt; ohdearquant/lattice#387: prompt tokens are "
        "never penalised"
    ),
    theme="sampling",
    symptom="Answers repeat the prompt more than the penalty allows; the penalty bites from the second mention only.",
    caught_by=("rollout.batched.equals-naive",),
)
in_trainer(
    "rollout.kv-in-fewer-bits",
    "rollout.caches:stored",
    "rollout.patches:more_noise",
    mistake="keys and values are stored in 2 bits where 8 or 4 were asked for",
    arises="a bits argument that does not reach the cache",
    source="raullenchai/Rapid-MLX#1197: cache bits not applied",
    theme="configuration",
    symptom="Samples are worse than the model; the ratio of sampler and trainer scatters, most in long answers.",
    caught_by=("rollout.quantised.within-ratio",),
)

for _setting, _words, _seen in (
    ("temperature", "the temperature", ""),
    ("top_k", "top-k", "huggingface/AnyLanguageModel#165: topK hardcoded, options never read"),
    ("top_p", "top-p", "huggingface/AnyLanguageModel#165: topP hardcoded, options never read"),
    ("min_p", "min-p", "lablup/mlxcel#1391: min-p silently inert"),
    ("xtc", "XTC", ""),
    ("penalty", "the repetition penalty", "waybarrios/vllm-mlx#258: repetition penalty ignored by one path"),
):
    in_trainer(
        f"rollout.{_setting.replace('_', '-')}-inert",
        "rollout.sampler:keywords",
        f"rollout.patches:{_setting}_inert",
        mistake=f"the fast sampler never receives {_words}",
        arises="a list of keywords that was written before the setting",
        source=_seen,
        theme="configuration",
        symptom="A sweep over the setting is flat: samples, lengths and rewards are those without it.",
        caught_by=("rollout.settings-act",),
    )

for _name, _mistake, _arises, _symptom, _gate in (  # of every path, so that each agrees with the naive one
    (
        "temperature-inert",
        "no path receives the temperature",
        "a request that is built before the setting is read",
        "A sweep over the temperature is flat, and no path differs from another.",
        "rollout.log-probs.match-definition",
    ),
    (
        "top-p-inert",
        "no path receives top-p",
        "a request that is built before the setting is read",
        "A sweep over top-p is flat, samples hold odd rare tokens, and no path differs from another.",
        "rollout.log-probs.match-definition",
    ),
    (
        "counter-off",
        "every path draws with the numbers of the next round",
        "a counter of rounds that is raised before the rollout instead of after it",
        "Nothing in any curve: a run cannot be replayed by another program from its seed.",
        "rollout.batched.equals-naive",
    ),
    (
        "first-token-lost",
        "every path reads the prompts without their first token",
        "a tokenizer that adds a start token, and a caller that strips one that was not added",
        "Samples are those of other prompts; the ratio of a fresh batch scatters, and no path differs from another.",
        "rollout.batched.equals-naive",
    ),
):
    in_trainer(
        f"rollout.{_name}-everywhere",
        "rollout.table:Request.__post_init__",
        f"rollout.patches:{_name.replace('-', '_')}_everywhere",
        mistake=_mistake,
        arises=_arises,
        theme="ratio and rollout",
        symptom=_symptom,
        caught_by=(_gate,),
    )
in_trainer(
    "rollout.naive-in-bfloat16",
    "rollout.naive:rollout",
    "rollout.patches:naive_in_bfloat16",
    mistake="the path that defines the result draws from logits in half precision",
    arises="a model head in bfloat16, cast after the log-softmax in one path and before it in the others",
    theme="ratio and rollout",
    symptom="Where this path rolls out, the ratio of a fresh batch scatters by percents.",
    caught_by=("rollout.batched.equals-naive", "scoring.log-probs.match-logits"),
)
