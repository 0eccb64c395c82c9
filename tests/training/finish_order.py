"""The plain PyTorch loop with an engine that hands answers back as they finish."""

import torch
import torch_loop as base


rollout_of = base.make_rollout


def make_rollout(model, tokenizer, generator):
    """Collect the finished answers and put them behind their prompts."""
    rollout = rollout_of(model, tokenizer, generator)
    finished = sorted(range(len(rollout["texts"])), key=lambda row: len(rollout["texts"][row]))
    answers = [rollout["texts"][row] for row in finished]
    prompts, prompt_mask = base.tokenize(tokenizer, base.PROMPTS)
    longest = max(len(answer) for answer in answers)
    tails = torch.tensor([answer + [tokenizer.pad_token_id] * (longest - len(answer)) for answer in answers])
    tail_mask = torch.tensor([[1] * len(answer) + [0] * (longest - len(answer)) for answer in answers])
    rollout["ids"] = torch.cat([prompts, tails], dim=1)
    rollout["mask"] = torch.cat([prompt_mask, tail_mask], dim=1)
    rollout["completion"] = torch.cat([torch.zeros_like(prompt_mask), tail_mask], dim=1)
    rollout["texts"] = answers
    return rollout


base.patch(make_rollout=make_rollout)

if __name__ == "__main__":
    base.main()
