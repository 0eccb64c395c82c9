"""GRPO loop with micro-batches of five rows."""

import torch_loop
from torch_loop import SETTINGS


def micro_batches(rollout):
    size = SETTINGS["micro_batch"]
    for number in range(len(rollout["ids"]) // size):
        yield {name: value[number * size : (number + 1) * size] for name, value in rollout.items()}


if __name__ == "__main__":
    SETTINGS["micro_batch"] = 5
    torch_loop.patch(micro_batches=micro_batches)
    torch_loop.main()
