"""mlx-lm-lora's GRPO with rollouts handed over as text, as from a server."""

import mlx.core as mx
import mlx_lm_lora_base as base

generate = base.grpo_library.generate_grpo


def generate_text(**request):
    tokenizer = request["tokenizer"]
    sampled, texts, indices = generate(**request)
    completions = []
    for row, text in zip(sampled, texts, strict=True):
        ids = tokenizer.encode(text, add_special_tokens=False)
        last = row[-1].item()
        completions.append(mx.array([*ids, last] if last in tokenizer.eos_token_ids else ids, dtype=mx.int32))
    return completions, texts, indices


if __name__ == "__main__":
    base.main("grpo", patches={"generate_grpo": generate_text})
