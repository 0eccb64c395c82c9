"""Train with mlxrl by the Import API of its documentation: batched rollout, `batch_from_rollouts`, `optimizer_step`.

The loop is the documented one: it has no function of its own. `batch_groups` is on, by default it decodes row by row.
`mlxrl train`, its command, generates row by row instead
(cli.py:372, `generate_group_rollouts`); that is the target mlxrl-cli.
"""


def train(job, probe):
    """Train the steps of the job."""
    import dataclasses

    import mlx.core as mx
    import mlx.optimizers as optim
    from mlxrl.algo import GRPOAlgorithm
    from mlxrl.config import TrainConfig
    from mlxrl.policy import LoRAConfig, load_policy_with_lora
    from mlxrl.policy.logprobs import pad_token_id_from_tokenizer
    from mlxrl.rollout import SamplingConfig, generate_prefix_cached_group_rollouts
    from mlxrl.train import batch_from_rollouts, optimizer_step

    probe.use_mlx()
    defaults = TrainConfig()
    lora = LoRAConfig(rank=job["rank"], scale=defaults.scale, dropout=defaults.dropout)
    model, tokenizer, report = load_policy_with_lora(model_id=job["folder"], config=lora)
    sampling = SamplingConfig(max_tokens=job["tokens"], temperature=job["temperature"], top_p=job["top_p"])
    algorithm, optimizer = GRPOAlgorithm(), optim.Adam(learning_rate=job["learning_rate"])
    pad = pad_token_id_from_tokenizer(tokenizer)
    beta = job["beta"]
    probe.send(
        "settings",
        settings={
            "samples": job["samples"],
            "prompts_per_step": job["prompts_per_step"],
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "beta": beta,
            "epsilon": "none: the ratio is not clipped",
            "loss": algorithm.name,
            "learning_rate": float(optimizer.learning_rate),
            "optimizer": type(optimizer).__name__,
            "adapter": dataclasses.asdict(lora),
            "trainable_parameters": report.trainable_params,
            "dtype": str(model.model.norm.weight.dtype),
            "old_policy_pass": True,
            "reference_pass": beta != 0.0,
            "gradient_checkpointing": lora.grad_checkpoint,
            "rows_decoded_at_once": "all (batch_groups=True); after an early end one by one, from the first token",
            "kl_and_loss": "over all tokens of the step",
        },
    )
    rollout = probe.timed(
        generate_prefix_cached_group_rollouts, lengths=lambda results: [len(c.completion_tokens) for c in results]
    )
    mx.random.seed(job["seed"])
    count = job["prompts_per_step"]
    probe.begin()
    for step in range(job["steps"]):
        first = step * count % len(job["prompts"])
        completions = rollout(
            model=model,
            tokenizer=tokenizer,
            prompts=job["prompts"][first : first + count],
            group_size=job["samples"],
            config=sampling,
            use_chat_template=False,
            batch_groups=True,
        )
        batch = batch_from_rollouts(
            model=model,
            completions=completions,
            rewards=job["rewards"],
            group_size=job["samples"],
            pad_token_id=pad,
            algorithm=algorithm,
            compute_reference=beta != 0.0,
        )
        optimizer_step(model=model, optimizer=optimizer, batch=batch, beta=beta, pad_token_id=pad, algorithm=algorithm)
        probe.step()
