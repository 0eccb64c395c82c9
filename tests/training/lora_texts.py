"""GRPO of mlx-lm-lora with rollouts that come as texts, as from a server."""

import mlx.core as mx
import mlx_lm_lora_base as base

generate = base.grpo_library.generate_grpo


def generate_texts(model, tokenizer, prompt_tokens, max_tokens, *args, **kwargs):
    completions, texts, indices = generate(model, tokenizer, prompt_tokens, max_tokens, *args, **kwargs)
    rows = []
    for completion, text in zip(completions, texts, strict=True):
        ids = tokenizer.encode(text, add_special_tokens=False)
        last = completion[-1].item()
        rows.append(mx.array([*ids, last] if last in tokenizer.eos_token_ids else ids, dtype=mx.int32))
    return rows, texts, indices


if __name__ == "__main__":
    base.main("grpo", patches={"generate_grpo": generate_texts})
