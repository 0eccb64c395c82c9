"""The MLX reference trainer: rollouts, log-probs, losses and one optimizer step, each in a file that can be read alone."""
