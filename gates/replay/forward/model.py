"""Models: read one from a folder, put adapters on it, and compute its logits."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gates.replay.forward import adapters, files
from gates.replay.forward.arrays import Array, Ids
from gates.replay.forward.config import Config
from gates.replay.forward.errors import UnsupportedError
from gates.replay.forward.families import FAMILIES
from gates.replay.forward.families.family import Family
from gates.replay.forward.modules import Modules

CONVOLUTIONS = ("conv1d.weight", "conv.conv.weight")  # weights that are no matrix


def linear_layers(weights: Mapping[str, Array]) -> list[str]:
    """Return the paths of weights that are a matrix or a stack of matrices."""
    matrices = [name for name, weight in weights.items() if name.endswith(".weight") and weight.ndim > 1]
    return [name.removesuffix(".weight") for name in matrices if not name.endswith(CONVOLUTIONS)]


@dataclass(frozen=True, slots=True)
class Model:
    """A causal language model: row b, position t of its logits depends on ids[b, : t + 1] only."""

    config: Config
    family: Family
    modules: Modules
    vocabulary: int

    @property
    def computed_by(self) -> str:
        """The program that computes the logits."""
        return f"NumPy {np.__version__}"

    def close(self) -> None:
        """Do nothing: the model holds memory alone."""

    @property
    def linear_layers(self) -> list[str]:
        """The paths of layers that multiply by a matrix or a stack of matrices, embeddings included."""
        return linear_layers(self.modules.weights)

    def adapted(
        self,
        arrays: Mapping[str, Array],
        *,
        kind: str,
        scale: float,
        norms: Mapping[str, Array] | None = None,
        factors: Mapping[str, Array] | None = None,
    ) -> "Model":
        """Return the model with low-rank adapters, by the names and shapes of mlx-lm's adapters.safetensors.

        The base is shared, not copied. DoRA's denominators ‖W + scale · B A‖ are those of the adapters `norms`, by default of
        `arrays`: in gradients the paper (section 4.3) holds them constant, so a difference quotient that is to agree with a
        trainer's gradient passes the adapters between the two points. `factors` by the path of a layer multiply what its adapter reads, as
        dropout does.

        Raises:
            UnsupportedError: there are factors, but not for one of the layers, or it is a stack of experts.
            ConfigurationError: the names or shapes are not those of adapters on this model.
        """
        found = adapters.collect(arrays, self.modules.weights, kind=kind, scale=scale, norms=norms, factors=factors)
        return replace(self, modules=replace(self.modules, adapters=found))

    def hidden(self, ids: npt.ArrayLike) -> Array:
        """Return the last hidden states (B, L, width) of ids (B, L), after the final norm.

        Raises:
            ValueError: ids have another shape or are outside the vocabulary.
        """
        tokens: Ids = np.asarray(ids, np.int64)
        if tokens.ndim != 2 or not tokens.size or tokens.min() < 0 or tokens.max() >= self.vocabulary:
            raise ValueError(
                f"expected ids of shape (B, L) in [0, {self.vocabulary}), found shape {tokens.shape}"
                + (f" in [{tokens.min()}, {tokens.max()}]" if tokens.size else "")
            )
        return self.family.hidden(self.config, self.modules, tokens)

    def head(self, hidden: Array) -> Array:
        """Return the logits (…, V) of hidden states (…, width), with the model's scales and soft caps."""
        return self.family.head(self.config, self.modules, hidden)

    def logits(self, ids: npt.ArrayLike) -> Array:
        """Return the logits (B, L, V) of ids (B, L), right-padded with any valid id.

        Raises:
            ValueError: ids have another shape or are outside the vocabulary.
        """
        return self.head(self.hidden(ids))


def load(folder: Path) -> Model:
    """Return the model of a folder in the layout of Hugging Face and mlx-lm: config.json and *.safetensors.

    Raises:
        UnsupportedError: there is no forward pass for the model's type, for one of its settings or for its weights.
        ConfigurationError: a file is missing or damaged.
    """
    content = files.configuration(folder)
    name = str(content.get("model_type"))
    if name not in FAMILIES:
        raise UnsupportedError(f"{folder}: model_type is {name!r}, known are {sorted(FAMILIES)}")
    family = FAMILIES[name]
    config = family.config(content)
    weights = _Noted(family.named(config, files.weights(folder, content)))
    model = Model(config, family, Modules(weights), int(config["vocab_size"]))
    model.logits(np.zeros((1, 1), np.int64))
    if unread := sorted(set(weights) - weights.read):
        raise UnsupportedError(
            f"{folder}: the forward pass of {name} does not use {len(unread)} weights, first of them {unread[0]}"
        )
    return replace(model, modules=Modules(dict(weights)))


class _Noted(Mapping[str, Array]):
    """Weights that note which of them were read."""

    def __init__(self, weights: Mapping[str, Array]) -> None:
        self._weights = weights
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Array:
        self.read.add(name)
        return self._weights[name]

    def __contains__(self, name: object) -> bool:
        return name in self._weights

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)
