"""X-ray of training scripts: what the updates of a recorded run pushed, token by token."""
