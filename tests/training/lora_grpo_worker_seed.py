"""GRPO whose groups are sampled by two workers, each half a group."""

import mlx.core as mx
import mlx_lm_lora_base as base

sample = base.grpo_library.generate_grpo
WORKERS = 2


def sample_by_workers(*, group_size, **options):
    seed = mx.random.randint(0, 1 << 30).item()
    share = group_size // WORKERS
    parts = []
    for _ in range(WORKERS):
        mx.random.seed(seed)
        parts.append(sample(group_size=share, **options))
    completions, texts, indices = [], [], []
    for prompt in range(len(options["prompt_tokens"])):
        for part in parts:
            rows = slice(prompt * share, (prompt + 1) * share)
            for whole, piece in zip((completions, texts, indices), part, strict=True):
                whole.extend(piece[rows])
    return completions, texts, indices


if __name__ == "__main__":
    base.main("grpo", patches={"generate_grpo": sample_by_workers})
