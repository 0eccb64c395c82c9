"""Train with `GRPOTrainer(...).train()` of mlx-tune.

A step ends when the next prompt's cache is built, or when the adapters are saved at the end. Its loss is that of
REINFORCE on whole sequences (rl_trainers.py, `pg_loss_fn`): beta and loss_type of its configuration are unused.
"""


def train(job, probe):
    """Train the steps of the job."""
    import itertools

    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_tune import FastLanguageModel, GRPOConfig, GRPOTrainer, _perf, rl_trainers

    probe.use_mlx()
    model, tokenizer = FastLanguageModel.from_pretrained(job["folder"])
    model = FastLanguageModel.get_peft_model(model, r=job["rank"])
    config = GRPOConfig(
        beta=job["beta"],
        num_generations=job["samples"],
        temperature=job["temperature"],
        max_completion_length=job["tokens"],
        learning_rate=job["learning_rate"],
        max_steps=job["steps"],
        output_dir=job["scratch"],
    )
    rewards = itertools.cycle(job["rewards"])
    trainer = GRPOTrainer(
        model=model,
        train_dataset=[{"prompt": text, "answer": ""} for text in job["prompts"]],
        tokenizer=tokenizer,
        reward_fn=lambda *_: next(rewards),
        args=config,
    )
    prompt, shape = len(tokenizer.encode(job["prompts"][0])), None

    def boundary(function, *, first):
        def wrapped(*rest, **named):
            nonlocal shape
            if first and probe.number == 0 and shape is None:
                probe.send("settings", settings=_settings(trainer, model, tree_flatten))
                probe.begin()
            else:
                probe.step(shape)
            return function(*rest, **named)

        return wrapped

    def compiled(step, state, **named):
        once = compile_step(step, state, **named)

        def counted(sequences, lengths, advantages):
            nonlocal shape
            shape = tuple(sequences.shape)
            loss = once(sequences, lengths, advantages)
            probe.forward = sequences.shape[0] * (
                sequences.shape[1] - 1
            )  # a compiled pass is visible only while it is traced
            return loss

        return counted

    compile_step, _perf.compiled_step = _perf.compiled_step, compiled
    rl_trainers.build_shared_prompt_cache = boundary(probe.timed(rl_trainers.build_shared_prompt_cache), first=True)
    rl_trainers.generate_with_log_probs = probe.timed(
        rl_trainers.generate_with_log_probs,
        lengths=lambda result: [result[0].size - prompt],
        evaluate=lambda result: mx.eval(result[0]),
    )
    rl_trainers._save_adapters_and_config = boundary(rl_trainers._save_adapters_and_config, first=False)
    mx.random.seed(job["seed"])
    trainer.train()


def _settings(trainer, model, tree_flatten):
    return {
        "samples": trainer.num_generations,
        "prompts_per_step": 1,
        "max_tokens": trainer.max_completion_length,
        "temperature": trainer.temperature,
        "top_p": "none: its sampler has no filter",
        "beta": f"{trainer.beta}, which its loss does not read",
        "epsilon": "none: there is no ratio",
        "loss": "REINFORCE on whole sequences, prompt included, whatever loss_type is",
        "learning_rate": trainer.learning_rate,
        "optimizer": "AdamW with a cosine schedule",
        "adapter": {k: v for k, v in model.lora_config.items() if isinstance(v, int | float | str | list)},
        "trainable_parameters": sum(v.size for _, v in tree_flatten(model.model.trainable_parameters())),
        "dtype": str(model.model.model.norm.weight.dtype),
        "old_policy_pass": False,
        "reference_pass": False,
        "gradient_checkpointing": bool(model.lora_config.get("use_gradient_checkpointing")),
        "rows_decoded_at_once": 1,
        "compiled_step": True,
    }
