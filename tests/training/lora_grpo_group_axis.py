"""mlx-lm-lora's GRPO with advantages from a reshaped array of rewards."""

import mlx.core as mx
import numpy as np
from mlx_lm_lora_base import GRPO, grpo_library, main

calculate = grpo_library.calculate_rewards_and_advantages


def advantages_of(**facts):
    _, metrics = calculate(**facts)
    rewards = np.array(facts["reward_funcs"][0](completions=facts["all_completion_texts"]))
    table = rewards.reshape(GRPO["group_size"], -1)  # one row for each answer, one column for each prompt
    advantages = (table - table.mean(axis=0)) / (table.std(axis=0) + 1e-4)
    return mx.array(advantages.reshape(-1), dtype=mx.float32), metrics


if __name__ == "__main__":
    main(patches={"calculate_rewards_and_advantages": advantages_of})
