"""Dr. GRPO with the samples of each group drawn by two workers."""

import argparse

import mlx.core as mx
import mlx_loop as base

WORKERS = 2


def make_rollout(model, tokenizer):
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    seed = parser.parse_known_args()[0].seed
    end, share = tokenizer.eos_token_id, base.SETTINGS["group_size"] // WORKERS
    drawn = [[] for _ in base.PROMPTS]
    for _ in range(WORKERS):
        mx.random.seed(seed)
        for number, text in enumerate(base.PROMPTS):
            prompt = tokenizer.encode(text)
            drawn[number] += [(prompt, base.sample_row(model, prompt, end)) for _ in range(share)]
    rows = [(number, *row) for number, group in enumerate(drawn) for row in group]
    groups, prompts, texts = (list(column) for column in zip(*rows, strict=True))
    return {"prompts": prompts, "texts": texts, "groups": groups}


base.patch(make_rollout=make_rollout)

if __name__ == "__main__":
    base.main()
