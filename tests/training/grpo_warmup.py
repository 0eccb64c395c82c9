"""GRPO with a short warm-up of the learning rate."""

import trl_base as base

if __name__ == "__main__":
    base.main("grpo", config={"lr_scheduler_type": "constant_with_warmup", "warmup_steps": 2})
