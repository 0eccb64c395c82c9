"""The MLX loop that scores completions from their own logits."""

import mlx_loop

collated = mlx_loop.collate


def collate(prompts, texts):
    # a completion's first logits stand at its first token
    ids, mask = collated(prompts, texts)
    kept = mask[:, 1:] * mask[:, :-1]
    mask[:, 1:] = kept
    return ids, mask


if __name__ == "__main__":
    mlx_loop.patch(collate=collate)
    mlx_loop.main()
