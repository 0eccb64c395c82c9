"""The modules of a model: its weights with the adapters on them, by their paths."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gates.errors import ConfigurationError
from gates.replay.forward.adapters import Adapter
from gates.replay.forward.arrays import Array, Ids
from gates.replay.forward.products import product


@dataclass(frozen=True, slots=True)
class Modules:
    """Weights and adapters below a path."""

    weights: Mapping[str, Array]
    adapters: Mapping[str, Adapter] = field(default_factory=dict)
    prefix: str = ""

    def at(self, path: str) -> "Modules":
        """Return the modules below a path."""
        return replace(self, prefix=f"{self.prefix}{path}.")

    def __contains__(self, name: str) -> bool:
        """Return whether there is a parameter of this name."""
        return f"{self.prefix}{name}" in self.weights

    def __getitem__(self, name: str) -> Array:
        """Return a parameter.

        Raises:
            ConfigurationError: the model has no such parameter.
        """
        path = f"{self.prefix}{name}"
        if path not in self.weights:
            raise ConfigurationError(f"the model has no {path}")
        return self.weights[path]

    def linear(self, path: str, x: Array) -> Array:
        """Return W x, plus the bias if there is one, for x (…, inputs)."""
        y = product(x, self[f"{path}.weight"].T)
        if adapter := self._adapter(path):
            y = adapter.linear(x, y)
        return y + self[f"{path}.bias"] if f"{path}.bias" in self else y

    def expert(self, path: str, number: int, x: Array) -> Array:
        """Return the output of one of a stack of linear layers for x (…, inputs)."""
        y = product(x, self[f"{path}.weight"][number].T)
        if adapter := self._adapter(path):
            y = adapter.expert(number, x, y)
        return y + self[f"{path}.bias"][number] if f"{path}.bias" in self else y

    def embed(self, path: str, ids: Ids) -> Array:
        """Return the rows of a table."""
        rows = self[f"{path}.weight"][ids]
        adapter = self._adapter(path)
        return adapter.rows(ids, rows) if adapter else rows

    def unembed(self, path: str, x: Array) -> Array:
        """Return the logits of a head that is the table of embeddings."""
        y = product(x, self[f"{path}.weight"].T)
        adapter = self._adapter(path)
        return adapter.unembed(x, y) if adapter else y

    def _adapter(self, path: str) -> Adapter | None:
        return self.adapters.get(f"{self.prefix}{path}")
