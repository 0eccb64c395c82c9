"""X-ray of training scripts: what the updates of a recorded run pushed, token by token."""

from gates.xray.picture import Picture, Xray, read

__all__ = ["Picture", "Xray", "read"]
