"""GRPO loop with the plain estimate of the KL divergence."""

import torch_loop


def kl_term(logps, reference):
    return logps - reference


if __name__ == "__main__":
    torch_loop.SETTINGS["beta"] = 0.1
    torch_loop.patch(kl_term=kl_term)
    torch_loop.main()
