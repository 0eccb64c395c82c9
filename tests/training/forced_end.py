"""The plain PyTorch loop with answers that always end, as reward models expect them."""

import torch
import torch_loop as base


rollout_of = base.make_rollout


def make_rollout(model, tokenizer, generator):
    rollout = rollout_of(model, tokenizer, generator)
    last = rollout["completion"].sum(dim=1) - 1
    width = rollout["ids"].size(1) - rollout["completion"].size(1) + rollout["completion"].argmax(dim=1)
    rollout["ids"].scatter_(1, (width + last)[:, None], torch.full_like(last, tokenizer.eos_token_id)[:, None])
    rollout["texts"] = [
        row[keep.bool()].tolist() for row, keep in zip(rollout["ids"], rollout["completion"], strict=True)
    ]
    return rollout


base.patch(make_rollout=make_rollout)

if __name__ == "__main__":
    base.main()
