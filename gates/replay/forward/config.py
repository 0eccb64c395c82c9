"""The settings of a model, as its config.json names them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gates.errors import ConfigurationError
from gates.replay.forward.errors import UnsupportedError


@dataclass(frozen=True, slots=True)
class Config:
    """The content of a config.json; a field that is null counts as absent."""

    content: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        """Return a field.

        Raises:
            ConfigurationError: the field is absent.
        """
        if self.get(name) is None:
            raise ConfigurationError(f"config.json of {self.content.get('model_type')} has no {name}")
        return self.content[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field, or the default if it is absent."""
        value = self.content.get(name)
        return default if value is None else value

    def require(self, name: str, *known: Any) -> None:
        """Check that a field is absent or has a value that the forward pass computes.

        Raises:
            UnsupportedError: the field has another value.
        """
        value = self.get(name, known[0])
        if value not in known:
            raise UnsupportedError(f"{name} of {self.content.get('model_type')} is {value!r}, known are {list(known)}")

    @property
    def layers(self) -> int:
        """The number of blocks."""
        return int(self["num_hidden_layers"])

    @property
    def hidden(self) -> int:
        """The width of the residual stream."""
        return int(self["hidden_size"])

    @property
    def heads(self) -> int:
        """The number of query heads."""
        return int(self["num_attention_heads"])

    @property
    def kv_heads(self) -> int:
        """The number of heads of keys and values."""
        return int(self.get("num_key_value_heads", self.heads))

    @property
    def head_dim(self) -> int:
        """The width of a head."""
        return int(self.get("head_dim", self.hidden // self.heads))

    @property
    def eps(self) -> float:
        """The ε of RMSNorm."""
        return float(self["rms_norm_eps"])
