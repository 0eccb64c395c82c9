"""mlx-lm-lora's GRPO with the token mean, in micro-batches."""

from mlx_lm_lora_base import grpo_library, main

split = grpo_library._grpo_microbatches


def micro_batches(compute, model, chunk_size, **facts):
    """Weigh each micro-batch by its rows."""
    kind = facts["grpo_loss_type"]

    def computed(model, **more):
        return compute(model, **(more | {"grpo_loss_type": kind}))

    return split(computed, model, chunk_size, **(facts | {"grpo_loss_type": "grpo"}))


if __name__ == "__main__":
    main(config={"grpo_loss_type": "bnpo"}, patches={"_grpo_microbatches": micro_batches})
