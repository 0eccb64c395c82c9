"""mlx-lm-lora's DPO without a path of a reference model."""

from mlx_lm_lora_base import main

if __name__ == "__main__":
    main("dpo", reference=lambda *_: None)
