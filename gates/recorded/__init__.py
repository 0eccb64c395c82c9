"""Judge a training step that was written to a file, without adapter or framework."""
