"""Mutations of rollouts."""

from gates.families.hosts import in_trainer

in_trainer(
    "rollout.prompts-tiled",
    "rollout.table:prompt_of_row",
    "rollout.patches:tiled",
    mistake="prompts are tiled instead of repeated one by one, so that groups mix prompts",
    arises="numpy.tile instead of numpy.repeat",
    source="wenet-e2e/west#121: repeat for repeat_interleave",
    theme="ratio and rollout",
    symptom="Reward is flat and noisy: the baseline of each group comes from other prompts.",
    caught_by=("rollout.batched.equals-naive",),
)
in_trainer(
    "rollout.draws-by-position",
    "rollout.table:draw_index",
    "rollout.patches:position_in_batch",
    mistake="the random draws of a row depend on its position in the batch",
    arises="one random state for the whole batch, split by position",
    source="lablup/mlxcel#347: last seed wins in a batch; vllm-project/vllm#51226: seed depends on batch neighbours",
    theme="state and resume",
    symptom="No curve shows it: a run cannot be replayed with another batch size, and a resumed run diverges at once.",
    caught_by=("rollout.row-alone.equals-batch", "rollout.batched.equals-naive"),
)
in_trainer(
    "rollout.finished-rows-go-on",
    "rollout.table:finished",
    "rollout.patches:never_finished",
    mistake="rows continue after their first EOS, and the extra tokens count",
    arises="a `done` flag that is overwritten each step instead of or-ed",
    source="lucidrains/h-transformer-1d#9: EOS ignored in batches",
    theme="masks and shifts",
    symptom="Mean length is near the limit and rewards read text after the answer; the policy forgets to stop.",
    caught_by=("rollout.rows.end-at-first-eos", "rollout.batched.equals-naive"),
)
in_trainer(
    "rollout.untempered-draw",
    "sampling:scale_by_temperature",
    "rollout.patches:untempered",
    mistake="tokens are always drawn at temperature 1",
    arises="a temperature that is applied to the recorded log-probs only",
    theme="configuration",
    symptom="The temperature has no effect on the samples; the ratio of a fresh batch is not 1.",
    caught_by=("rollout.batched.equals-naive",),
)


in_trainer(
    "rollout.stale-prefix-cache",
    "rollout.prefix:_prefill",
    "rollout.patches:kept_over_updates",
    mistake="the prefix cache of a prompt survives an update of the weights",
    arises="a prefix cache keyed by the prompt alone",
    source=(
        "NVIDIA-NeMo/RL#4018: prefix cache stale over updates; vllm-project/vllm#9744: cached prefix outlives "
        "load_weights"
    ),
    theme="state and resume",
    symptom=(
        "The mismatch of sampler and trainer grows step by step and resets when the engine restarts; no loss curve shows it."
    ),
    caught_by=("rollout.update.reaches-every-path",),
)
in_trainer(
    "rollout.compiled-weights-baked-in",
    "rollout.fixed:compile_step",
    "rollout.patches:weights_baked_in",
    mistake="the compiled decode step keeps the weights of its first call",
    arises="mx.compile without inputs=[model.state]",
    source=(
        "ml-explore/mlx-swift-lm#586: compile captures module parameters; Goekdeniz-Guelmez/mlx-lm-lora#50: "
        "mx.compile freezes LoRA weights"
    ),
    theme="state and resume",
    symptom=("Samples stay those of the first step: the loss moves, reward is flat, and the ratio drifts away from 1."),
    caught_by=("rollout.update.reaches-every-path",),
)
in_trainer(
    "rollout.compiled-padding-visible",
    "rollout.fixed:visible",
    "rollout.patches:padding_visible",
    mistake="rows of the compiled step attend to the padding before their text",
    arises="a mask computed from the position alone",
    source="TransformerLensOrg/TransformerLens#1005: padding attended in generate",
    theme="masks and shifts",
    symptom="Short prompts get worse answers in mixed batches than alone; reward is lower than the model deserves.",
    caught_by=("rollout.compiled.equals-naive",),
)
in_trainer(
    "rollout.grown-buffer-starts-anew",
    "rollout.compiled:Compiled._grow",
    "rollout.patches:lost_when_grown",
    mistake="earlier keys and values are lost when the buffers grow past 256 columns",
    arises="a larger buffer is allocated and the old one not copied, in a case that short tests never reach",
    theme="masks and shifts",
    symptom="Long answers forget their question: reward falls with length, while short answers are unaffected.",
    caught_by=("rollout.long-rows.equal-naive",),
)
in_trainer(
    "rollout.batched-padding-visible",
    "rollout.caches:_padded",
    "rollout.patches:mask_forgets_padding",
    mistake="rows of a batch attend to the padding before their text",
    arises="a left-padding mask in the prefill but not in the decode, or nowhere",
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
    mistake="the recurrent state of a hybrid model reads the padding of ragged prompts",
    arises="left padding with a plain make_prompt_cache, as for attention",
    source=(
        "huggingface/transformers#32677: padding enters the Mamba state; Blaizzy/mlx-vlm#1946: recurrent state "
        "depends on neighbours"
    ),
    theme="masks and shifts",
    symptom="In hybrid models only: short prompts in mixed batches get garbled or empty answers.",
    caught_by=("rollout.batched.equals-naive",),
)
in_trainer(
    "rollout.last-token-twice",
    "rollout.caches:feed",
    "rollout.patches:last_token_twice",
    mistake="the last prompt token is fed twice",
    arises="a prefill of the whole prompt, then a decode loop that starts with its last token",
    theme="ratio and rollout",
    symptom="The first token of every answer is wrong, often a repetition; the ratio of first tokens is not 1.",
    caught_by=("rollout.cached.equals-naive", "rollout.prefix.equals-naive"),
)
in_trainer(
    "rollout.scores-untempered",
    "rollout.sampler:logprobs",
    "rollout.patches:untempered_scores",
    mistake="the recorded log-probs are those at temperature 1 instead of the configured temperature",
    arises="one log-softmax of the raw logits for all recorded values",
    source=(
        "huggingface/trl#4159: vLLM log-probs ignore the temperature; vllm-project/vime#64: raw log-probs for "
        "tempered ones"
    ),
    theme="ratio and rollout",
    symptom=(
        "With a temperature other than 1 the ratio between trainer and sampler is wrong from the first step; corrections cap all tokens."
    ),
    caught_by=("rollout.log-probs.match-definition",),
)
in_trainer(
    "rollout.filters-dropped",
    "rollout.sampler:keywords",
    "rollout.patches:filters_dropped",
    mistake="the fast sampler ignores top-k, top-p and min-p",
    arises="settings read by only one of two samplers",
    source="lablup/mlxcel#1391: min-p silently inert",
    theme="configuration",
    symptom=(
        "Top-k, top-p and min-p have no effect; samples contain implausible rare tokens and reward is a little lower."
    ),
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
    symptom=(
        "Answers repeat the prompt more than the penalty allows; it acts only from the second mention in the answer."
    ),
    caught_by=("rollout.batched.equals-naive",),
)
in_trainer(
    "rollout.kv-in-fewer-bits",
    "rollout.caches:stored",
    "rollout.patches:more_noise",
    mistake="keys and values are stored in 2 bits instead of the configured 8 or 4",
    arises="a bits argument that does not reach the cache",
    source="raullenchai/Rapid-MLX#1197: cache bits not applied",
    theme="configuration",
    symptom="Samples are worse than the model's; the ratio between trainer and sampler scatters, most in long answers.",
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
        arises="a list of keywords older than the setting",
        source=_seen,
        theme="configuration",
        symptom="A sweep over the setting is flat: samples, lengths and rewards are those without it.",
        caught_by=("rollout.settings-act",),
    )

for _name, _mistake, _arises, _symptom, _gate in (  # of every path, so that each agrees with the naive one
    (
        "temperature-inert",
        "no path receives the temperature",
        "a request built before the setting is read",
        "A sweep over the temperature is flat, and all paths agree with each other.",
        "rollout.log-probs.match-definition",
    ),
    (
        "top-p-inert",
        "no path receives top-p",
        "a request built before the setting is read",
        "A sweep over top-p is flat, samples contain implausible rare tokens, and all paths agree with each other.",
        "rollout.log-probs.match-definition",
    ),
    (
        "counter-off",
        "every rollout path draws with the random numbers of the next round",
        "a counter of rounds incremented before the rollout instead of after it",
        "No curve shows it: a run cannot be replayed by another program from its seed.",
        "rollout.batched.equals-naive",
    ),
    (
        "first-token-lost",
        "every rollout path drops the first token of each prompt",
        "a caller that strips a start token that the tokenizer did not add",
        "Samples answer other prompts; the ratio of a fresh batch scatters, and all paths agree with each other.",
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
    mistake="the naive path, which defines the result, draws from logits in half precision",
    arises="a model head in bfloat16, cast after the log-softmax in one path and before it in the others",
    theme="ratio and rollout",
    symptom="With this path the ratio of a fresh batch scatters by some percent.",
    caught_by=("rollout.batched.equals-naive", "scoring.log-probs.match-logits"),
)
