"""The error of a model that has no forward pass here."""


class UnsupportedError(Exception):
    """This package has no forward pass for the model; the message names the setting and the known values."""
