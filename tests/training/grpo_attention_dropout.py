"""GRPO on a model whose attention keeps the dropout of its pretraining."""

import trl_base

DROPOUT = 0.1


def keep_dropout(trainer):
    trainer.model.config.attention_dropout = DROPOUT
    for layer in trainer.model.model.layers:
        layer.self_attn.attention_dropout = DROPOUT


if __name__ == "__main__":
    trl_base.main("grpo", after=keep_dropout)
