"""Dr. GRPO with rows padded on the right and everything after the prompt as the completion."""

import mlx.core as mx
import mlx_loop as base
import numpy as np


def collate(prompts, texts):
    """Return the rows padded on the right, and the mask of completion tokens from the second column on."""
    rows = [prompt + text for prompt, text in zip(prompts, texts, strict=True)]
    width = max(len(row) for row in rows)
    ids = mx.array([row + [0] * (width - len(row)) for row in rows])
    starts = np.array([len(prompt) for prompt in prompts])
    mask = (np.arange(width)[None, :] >= starts[:, None]).astype(np.float32)
    return ids, mx.array(mask[:, 1:])


base.patch(collate=collate)

if __name__ == "__main__":
    base.main()
