"""The plain PyTorch loop with rows in random order, as PPO's epochs have them."""

import torch
import torch_loop as base


def micro_batches(rollout):
    rows, size = len(rollout["ids"]), base.SETTINGS["micro_batch"]
    for _ in range(rows // size):
        chosen = torch.randint(rows, (size,))
        yield {
            name: value[chosen] if torch.is_tensor(value) else [value[row] for row in chosen.tolist()]
            for name, value in rollout.items()
        }


base.patch(micro_batches=micro_batches)

if __name__ == "__main__":
    base.main()
