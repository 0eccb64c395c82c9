"""GRPO of a model that was configured with dropout."""

import trl_base as base


def configure(trainer):
    trainer.model.config.attention_dropout = 0.05
    for layer in trainer.model.model.layers:
        layer.self_attn.attention_dropout = 0.05


if __name__ == "__main__":
    base.main("grpo", after=configure)
