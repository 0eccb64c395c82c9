"""Rolls out as `train_grpo` of mlx-lm-lora does: `generate_grpo`, mlx-lm's BatchGenerator over a shared prompt cache.

`generate_grpo` has one limit for all rows. The generator below it has one for each row: it is given ours, which costs the
peer nothing and needs no end token in the logits. `train_grpo` passes its number of prompts a step as `batch_size`
(grpo_trainer.py 1026, 1 by default), and `generate_grpo` decodes no more rows than that at a time (257): `rows_at_once`
of the set-up.
"""


class Tokenizer:
    """What `generate_grpo` asks of one: no end token, for lengths are given, and texts that cost nothing."""

    eos_token_ids = ()

    def decode(self, _):
        """Return no text."""
        return ""


def prepare(model, setup):
    """Return the call; its result is the number of tokens of each row."""
    from mlx_lm.generate import BatchGenerator
    from mlx_lm_lora.trainer import grpo_trainer

    lengths = setup["lengths"]

    class Limited(BatchGenerator):
        """The generator, every row with its own limit."""

        def insert(self, prompts, _, **kwargs):
            return super().insert(prompts, lengths, **kwargs)

    grpo_trainer.BatchGenerator = Limited
    tokenizer = Tokenizer()

    def roll():
        completions, _, _ = grpo_trainer.generate_grpo(
            model=model,
            tokenizer=tokenizer,
            prompt_tokens=[setup["prompt"]],
            max_tokens=setup["tokens"],
            group_size=len(lengths),
            batch_size=setup["rows_at_once"],
            end_token="",
            temperature=setup["temperature"],
            top_p=setup["top_p"],
            top_k=0,
            min_p=0.0,
        )
        return [ids.size for ids in completions]

    return roll
