"""mlx-lm-lora's GRPO with inputs prepared by a function of its own."""

import mlx.core as mx
from mlx_lm_lora_base import main


def prepare(batch, completions, batch_indices):
    prompts = [batch[0][index] for index in batch_indices]
    rows = [list(prompt) + answer.tolist() for prompt, answer in zip(prompts, completions, strict=True)]
    width = max(len(row) for row in rows) + 1
    inputs = mx.array([row + [0] * (width - len(row)) for row in rows])
    starts = mx.array([len(prompt) for prompt in prompts])[:, None]
    lengths = mx.array([answer.size for answer in completions])
    places = mx.arange(width - 1)[None]
    return inputs, (places >= starts) & (places < starts + lengths[:, None]), lengths


if __name__ == "__main__":
    main(patches={"_prepare_grpo_inputs": prepare})
