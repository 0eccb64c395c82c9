"""mlx-lm-lora's DPO with another loss, asked for in the training arguments."""

from mlx_lm_lora_base import main

if __name__ == "__main__":
    main("dpo", config={"loss_type": "ipo"}, train_options={"loss_type": "sigmoid"})
