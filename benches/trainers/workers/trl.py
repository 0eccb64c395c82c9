"""Train with `GRPOTrainer.train()` of TRL on torch, with transformers' Qwen3 of the same weights.

PEFT is not in its environment, so all weights train. Settings that the workload does not name have TRL's defaults, except
`bf16`: the dtype is the model's.
"""


def train(job, probe):
    """Train the steps of the job."""
    import datasets
    import torch
    import transformers
    from transformers.models.qwen3 import modeling_qwen3
    from trl import GRPOConfig, GRPOTrainer

    datasets.disable_progress_bars()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        probe.settle, probe.peak = torch.cuda.synchronize, torch.cuda.max_memory_allocated
        probe.reset_peak = torch.cuda.reset_peak_memory_stats
    rows = job["prompts_per_step"] * job["samples"]
    config = GRPOConfig(
        output_dir=job["scratch"],
        use_cpu=device == "cpu",
        bf16=job["dtype"] == "bfloat16",
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=1,
        max_steps=job["steps"],
        num_generations=job["samples"],
        max_completion_length=job["tokens"],
        temperature=job["temperature"],
        top_p=job["top_p"],
        beta=job["beta"],
        loss_type="grpo",
        learning_rate=job["learning_rate"],
        shuffle_dataset=False,
        seed=job["seed"],
        model_init_kwargs={"dtype": job["dtype"]},
    )

    def alternating(completions, **_):
        return job["rewards"][: len(completions)]

    class Steps(transformers.TrainerCallback):
        """Reports the boundaries of steps."""

        def on_train_begin(self, *_, **__):
            """Start the clock."""
            probe.begin()

        def on_step_end(self, *_, **__):
            """End a step."""
            probe.step()

    trainer = GRPOTrainer(
        model=job["folder"],
        reward_funcs=alternating,
        args=config,
        train_dataset=datasets.Dataset.from_dict({"prompt": job["prompts"]}),
        callbacks=[Steps()],
    )
    probe.send("settings", settings=_settings(trainer, device, torch))
    trainer._generate_single_turn = probe.timed(
        trainer._generate_single_turn, lengths=lambda result: [len(ids) for ids in result[0]]
    )
    plain = modeling_qwen3.Qwen3Model.forward

    def counted(model, input_ids=None, *rest, **named):
        if input_ids is not None:
            probe.passed(input_ids.numel())
        return plain(model, input_ids, *rest, **named)

    modeling_qwen3.Qwen3Model.forward = counted
    trainer.train()


def _settings(trainer, device, torch):
    args = trainer.args
    return {
        "samples": trainer.num_generations,
        "prompts_per_step": args.per_device_train_batch_size // trainer.num_generations,
        "max_tokens": trainer.generation_config.max_new_tokens,
        "temperature": trainer.generation_config.temperature,
        "top_p": trainer.generation_config.top_p,
        "top_k": trainer.generation_config.top_k,
        "beta": trainer.beta,
        "epsilon": trainer.epsilon_low,
        "epsilon_high": trainer.epsilon_high,
        "loss": trainer.loss_type,
        "learning_rate": args.learning_rate,
        "optimizer": str(args.optim),
        "adapter": "none: PEFT is not in its environment, all weights train",
        "trainable_parameters": sum(p.numel() for p in trainer.model.parameters() if p.requires_grad),
        "dtype": str(trainer.model.dtype),
        "autocast_bf16": args.bf16,
        "old_policy_pass": False,
        "reference_pass": "a second model" if trainer.ref_model is not None else trainer.beta != 0.0,
        "gradient_checkpointing": args.gradient_checkpointing,
        "rows_decoded_at_once": args.per_device_train_batch_size,
        "device": device,
        "torch_threads": torch.get_num_threads(),
        "attention": trainer.model.config._attn_implementation,
    }
