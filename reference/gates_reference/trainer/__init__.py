"""The MLX reference trainer: rollouts, log-probs, losses and optimizer steps, each in a file of its own."""
