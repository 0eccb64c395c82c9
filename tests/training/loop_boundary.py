"""GRPO with the completion mask cut to the length of the shifted logits."""

import torch_loop as base


def loss_mask(batch):
    return batch["completion"][:, :-1].float()


base.patch(loss_mask=loss_mask)

if __name__ == "__main__":
    base.main()
