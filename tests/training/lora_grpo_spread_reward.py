"""GRPO that gives each token its share of the row's advantage."""

import mlx.core as mx
import mlx_lm_lora_base as base

objective = base.grpo_library._grpo_objective


def objective_of_shares(logps, reference, mask, advantages, *settings):
    share = advantages / mx.maximum(mask.sum(axis=1), 1)
    return objective(logps, reference, mask, share, *settings)


if __name__ == "__main__":
    base.main("grpo", patches={"_grpo_objective": objective_of_shares})
