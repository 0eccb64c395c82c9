"""mlx-lm-lora's GRPO with one model in memory."""

from mlx_lm_lora_base import main

if __name__ == "__main__":
    main(reference=lambda policy, _: policy)
