"""GRPO of mlx-lm-lora with a cooler sampler."""

import mlx_lm_lora_base as base

if __name__ == "__main__":
    base.main("grpo", config={"temperature": 0.6})
