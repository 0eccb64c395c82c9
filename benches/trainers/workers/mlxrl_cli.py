"""Train with mlxrl's command, `mlxrl train --config FILE`, whose rollouts are row by row without a shared prompt."""


def train(job, probe):
    """Train the steps of the job."""
    import itertools
    import json
    import os
    from pathlib import Path

    from mlxrl import cli

    probe.use_mlx()
    os.chdir(job["scratch"])  # it writes to the current folder
    config = {
        "model_id": job["folder"],
        "group_size": job["samples"],
        "max_completion_len": job["tokens"],
        "steps": job["steps"],
        "seed": job["seed"],
        "kl_beta": job["beta"],
        "rank": job["rank"],
        "optimizer": {"learning_rate": job["learning_rate"]},
        "sampling": {"temperature": job["temperature"], "top_p": job["top_p"]},
    }
    Path("run.json").write_text(json.dumps(config))
    texts = itertools.cycle(job["prompts"])
    cli._gsm8k_prompt = lambda *_: (next(texts), "#### 0")  # the command only has built-in questions
    cli.generate_group_rollouts = probe.timed(
        cli.generate_group_rollouts, lengths=lambda completions: [len(c.completion_tokens) for c in completions]
    )
    loaded, once = cli.load_policy_with_lora, cli.optimizer_step

    def load(**named):
        model, tokenizer, report = loaded(**named)
        lora = named["config"]
        load.settings = {
            "adapter": {"rank": lora.rank, "scale": lora.scale, "dropout": lora.dropout},
            "trainable_parameters": report.trainable_params,
            "dtype": str(model.model.norm.weight.dtype),
            "gradient_checkpointing": lora.grad_checkpoint,
        }
        probe.begin()
        return model, tokenizer, report

    def step(**named):
        report = once(**named)
        if probe.number == 0:
            probe.send("settings", settings=_settings(job, named, load.settings))
        probe.step()
        return report

    cli.load_policy_with_lora, cli.optimizer_step = load, step
    cli.main(["train", "--config", "run.json"])


def _settings(job, named, result):
    batch, optimizer = named["batch"], named["optimizer"]
    return {
        "samples": len(batch.completion_token_ids),
        "prompts_per_step": 1,
        "max_tokens": job["tokens"],
        "temperature": job["temperature"],
        "top_p": job["top_p"],
        "beta": named["beta"],
        "epsilon": "none: the ratio is not clipped",
        "loss": named["algorithm"].name,
        "learning_rate": float(optimizer.learning_rate),
        "optimizer": type(optimizer).__name__,
        "old_policy_pass": True,
        "reference_pass": not batch.reference_is_policy,
        "rows_decoded_at_once": "1, each with a prefill of its own",
        "rewards": "its own accuracy and format: the texts are random, so that most are 0",
        **result,
    }
