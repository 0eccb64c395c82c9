"""GRPO with a warm-up meant to last no update."""

from trl_base import main

if __name__ == "__main__":
    main(actual={"warmup_steps": 1}, config={"lr_scheduler_type": "constant_with_warmup"})
