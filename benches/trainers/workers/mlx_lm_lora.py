"""Train with `train_grpo` of mlx-lm-lora like its command: a frozen second model is the reference policy.

A step ends when the loop requests its next batch. The trainer passes the number of prompts a step as the number of rows
decoded at a time (grpo_trainer.py, `completion_batch_size=batch_size`), so with one prompt rows are decoded one by one.
"""


def train(job, probe):
    """Train the steps of the job."""
    import mlx.core as mx
    import mlx.optimizers as optim
    import numpy as np
    from mlx.utils import tree_flatten
    from mlx_lm import load
    from mlx_lm_lora.train import CONFIG_DEFAULTS
    from mlx_lm_lora.trainer import grpo_trainer
    from mlx_lm_lora.trainer.datasets import GRPODataset
    from mlx_lm_lora.utils import from_pretrained

    probe.use_mlx()
    lora = {**CONFIG_DEFAULTS["lora_parameters"], "rank": job["rank"], "num_layers": job["layers"]}
    model, tokenizer, adapter_file = from_pretrained(job["folder"], lora_config=lora, new_adapter_path=job["scratch"])
    reference = load(job["folder"])[0].freeze()
    count = job["prompts_per_step"]
    texts = (
        job["prompts"] if count == 1 else job["prompts"][:count]
    )  # batches are sorted by length; a single batch stays mixed
    data = GRPODataset([{"prompt": t, "answer": "0"} for t in texts], tokenizer, text_completion_key="prompt")
    args = grpo_trainer.GRPOTrainingArgs(
        batch_size=count,
        iters=job["steps"],
        group_size=job["samples"],
        beta=job["beta"],
        max_completion_length=job["tokens"],
        temperature=job["temperature"],
        top_p=job["top_p"],
        top_k=0,
        adapter_file=str(adapter_file),
    )
    optimizer = optim.Adam(learning_rate=job["learning_rate"])
    probe.send(
        "settings",
        settings={
            "samples": args.group_size,
            "prompts_per_step": args.batch_size,
            "max_tokens": args.max_completion_length,
            "temperature": args.temperature,
            "top_p": args.top_p,
            "top_k": args.top_k,
            "beta": args.beta,
            "epsilon": args.epsilon,
            "epsilon_high": args.epsilon if args.epsilon_high is None else args.epsilon_high,
            "loss": args.grpo_loss_type,
            "learning_rate": float(optimizer.learning_rate),
            "optimizer": type(optimizer).__name__,
            "adapter": lora,
            "trainable_parameters": sum(v.size for _, v in tree_flatten(model.trainable_parameters())),
            "dtype": str(model.model.norm.weight.dtype),
            "old_policy_pass": False,
            "reference_pass": "a second model",
            "gradient_checkpointing": args.grad_checkpoint,
            "rows_decoded_at_once": args.batch_size,
            "rows_per_gradient": args.batch_size,
        },
    )
    grpo_trainer.generate_grpo = probe.timed(
        grpo_trainer.generate_grpo, lengths=lambda result: [ids.size for ids in result[0]]
    )

    def batches(*rest, **named):
        for number, batch in enumerate(grpo_trainer.iterate_grpo_batches(*rest, **named)):
            if number:
                probe.step()
            else:
                probe.begin()
            yield batch

    class Last:
        """Receives the report after the last step."""

        def on_train_loss_report(self, info):
            """End the last step."""
            if info["iteration"] == args.iters:
                probe.step()

    def alternating(completions, **_):
        return job["rewards"][: len(completions)]

    mx.random.seed(job["seed"])
    np.random.seed(job["seed"])  # noqa: NPY002  its batches are drawn by it
    grpo_trainer.train_grpo(
        model,
        reference,
        tokenizer,
        optimizer,
        data,
        reward_funcs=[alternating],
        args=args,
        iterate_batches=batches,
        training_callback=Last(),
    )
