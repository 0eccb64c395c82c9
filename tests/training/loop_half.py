"""GRPO with a model loaded in bfloat16 and the usual small learning rate."""

import torch_loop as base


def adapt():
    base.SETTINGS["dtype"] = "bfloat16"
    base.SETTINGS["learning_rate"] = 1e-6


base.patch(adapt=adapt)

if __name__ == "__main__":
    base.main()
