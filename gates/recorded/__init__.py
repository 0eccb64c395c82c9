"""Judge a training step that was written to a file: no adapter, no framework, no call."""
