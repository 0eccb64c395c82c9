"""The plain loop whose groups are sampled by two engines in turn, reproducibly."""

import torch
import torch_loop
from torch_loop import SETTINGS

sampled = torch_loop.sample


def sample(model, tokenizer, ids, mask, generator):
    size, rows = SETTINGS["group_size"], []
    seed = generator.initial_seed()
    for answer in range(size):
        generator.manual_seed(seed + answer % 2)  # two engines, each with its seed
        rows.append(sampled(model, tokenizer, ids[answer::size], mask[answer::size], generator))
    width = max(parts[0].size(1) for parts in rows)
    whole = []
    for part, filler in zip(zip(*rows, strict=True), (tokenizer.pad_token_id, 0, 0), strict=True):
        padded = [torch.nn.functional.pad(value, (0, width - value.size(1)), value=filler) for value in part]
        whole.append(torch.stack(padded, dim=1).flatten(0, 1))
    return tuple(whole)


if __name__ == "__main__":
    torch_loop.patch(sample=sample)
    torch_loop.main()
