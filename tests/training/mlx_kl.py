"""Dr. GRPO with the plain estimate of the KL divergence in the loss."""

import mlx_loop as base


def kl_term(logps, reference):
    return logps - reference


base.patch(kl_term=kl_term)

if __name__ == "__main__":
    base.main()
