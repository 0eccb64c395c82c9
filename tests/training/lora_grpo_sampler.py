"""mlx-lm-lora's GRPO with the sampler's settings left at what they were for serving."""

from mlx_lm_lora_base import main

if __name__ == "__main__":
    main(actual={"temperature": 0.7, "top_p": 0.95, "top_k": 20})
