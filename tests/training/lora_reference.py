"""DPO of mlx-lm-lora without a second copy of the model in memory."""

import mlx_lm_lora_base as base

if __name__ == "__main__":
    base.main("dpo", reference=lambda model, frozen: model)
