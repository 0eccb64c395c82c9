"""The plain loop with a small learning rate and weights that need less memory."""

import torch_loop


def adapt():
    torch_loop.SETTINGS["dtype"] = "bfloat16"


if __name__ == "__main__":
    torch_loop.SETTINGS["learning_rate"] = 5e-6
    torch_loop.patch(adapt=adapt)
    torch_loop.main()
