"""Models that the NumPy forward passes lack, computed by transformers in float64 in a peer's environment.

A process of that environment loads the model's weights, which are handed over in float64 as safetensors, and answers by the protocol
of workers (docs/protocol.md). Adapters are merged here, so that the process only multiplies.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

import gates
from gates.errors import ConfigurationError
from gates.model import Array, Subject
from gates.replay.forward import adapters, files
from gates.replay.forward.errors import UnsupportedError
from gates.replay.forward.model import linear_layers
from gates.worker.process import Worker, WorkerError

PROGRAM: Final = Path(gates.__path__[0]) / "subjects" / "peers" / "shared" / "peer_logits.py"
LIMIT_S: Final = 600.0  # of one answer
ELEMENTS: Final = 1 << 26  # logits of one answer: 512 MiB
SMALL: Final = 1 << 24  # weights of a model whose products are too small for several threads
STACK: Final = ".switch_mlp."
QUANTISED: Final = ("quantization", "quantization_config")
WEIGHTS: Final = "model.safetensors"


@dataclass(frozen=True)
class Peer:
    """Where transformers is: the interpreter of a peer's environment, and the program that it runs."""

    python: Path
    program: Path = PROGRAM


@dataclass
class Process:
    """A running program, with the folder from which it read its model."""

    worker: Worker
    folder: Path
    family: str
    vocabulary: int = 0

    def call(self, op: str, **inputs: Any) -> Mapping[str, Any]:
        """Return the answer of the program.

        Raises:
            UnsupportedError: transformers cannot compute this model.
            ConfigurationError: the program failed.
        """
        outcome = self.worker.call(op, inputs, limit_s=LIMIT_S)
        if outcome.kind == "value":
            return outcome.value
        text = (
            f"transformers in {self.worker.subject.python} does not compute model_type {self.family!r}: {outcome.error}"
        )
        raise UnsupportedError(text) if outcome.kind == "unsupported" else ConfigurationError(text)

    def close(self) -> None:
        """End the process and remove its folder."""
        self.worker.close()
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass(frozen=True)
class PeerModel:
    """A `LanguageModel` whose logits a process computes; `head` returns its argument.

    Attributes:
        process: of all models with the same base.
        weights: the base's, by the names in its files.
        merged: the weights that adapters change.
    """

    process: Process
    weights: Mapping[str, Array]
    merged: Mapping[str, Array] = field(default_factory=dict)

    @property
    def computed_by(self) -> str:
        """The program that computes the logits."""
        versions = self.process.worker.hello.versions
        return f"transformers {versions.get('transformers', '')}".strip()

    @property
    def vocabulary(self) -> int:
        """The number of tokens."""
        return self.process.vocabulary

    def close(self) -> None:
        """End the process."""
        self.process.close()

    @property
    def linear_layers(self) -> list[str]:
        """The paths of layers that multiply by a matrix or a stack of matrices, embeddings included."""
        return linear_layers(self.weights)

    def adapted(
        self,
        arrays: Mapping[str, Array],
        *,
        kind: str,
        scale: float,
        norms: Mapping[str, Array] | None = None,
        factors: Mapping[str, Array] | None = None,
    ) -> PeerModel:
        """Return the model with low-rank adapters merged into its weights; the arguments are those of `forward.Model.adapted`.

        Raises:
            ConfigurationError: the names or shapes are not those of adapters on this model.
            UnsupportedError: there is dropout.
        """
        if factors is not None:
            raise UnsupportedError("adapters are merged for transformers, and with dropout they cannot be")
        made = adapters.collect(arrays, self.weights, kind=kind, scale=scale, norms=norms)
        merged = {
            f"{path}.weight": adapter.merged(path, self.weights[f"{path}.weight"]) for path, adapter in made.items()
        }
        return replace(self, merged=published(merged))

    def hidden(self, ids: npt.ArrayLike) -> Array:
        """Return the logits (B, L, V) of ids (B, L), some rows at a time."""
        tokens = np.asarray(ids, np.int64)
        step = max(1, ELEMENTS // (tokens.shape[1] * self.vocabulary))
        parts = [
            self.process.call("logits", ids=tokens[start : start + step], weights=dict(self.merged))["logits"]
            for start in range(0, len(tokens), step)
        ]
        return np.asarray(np.concatenate(parts), np.float64)

    def head(self, hidden: Array) -> Array:
        """Return logits as they are."""
        return hidden


def published(weights: Mapping[str, Array]) -> dict[str, Array]:
    """Return weights with each expert of mlx-lm's stacks by itself: `switch_mlp.up_proj`[3] is `experts.3.up_proj`."""
    made: dict[str, Array] = {}
    for name, values in weights.items():
        block, stack, leaf = name.rpartition(STACK)
        made |= {f"{block}.experts.{n}.{leaf}": x for n, x in enumerate(values)} if stack else {name: values}
    return made


def load(folder: Path, peer: Peer) -> PeerModel:
    """Start transformers with the model of a folder in the layout of Hugging Face and mlx-lm.

    Raises:
        UnsupportedError: transformers cannot compute this model, or there is no format of its weights here.
        ConfigurationError: a file is missing or damaged, or the environment does not start.
    """
    content = files.configuration(folder)
    weights = files.weights(folder, content)
    handed = Path(tempfile.mkdtemp(prefix="gates-replay-"))
    try:
        config = {name: value for name, value in content.items() if name not in QUANTISED}
        (handed / "config.json").write_text(json.dumps(config), encoding="utf-8")
        contiguous = {name: np.ascontiguousarray(values) for name, values in published(weights).items()}
        save_file(contiguous, handed / WEIGHTS, metadata={"format": "pt"})
        size = sum(values.size for values in weights.values())
        threads = 1 if size < SMALL else os.cpu_count() or 1
        process = _started(handed, peer, str(content.get("model_type")), threads)
    except BaseException:
        shutil.rmtree(handed, ignore_errors=True)
        raise
    try:
        answer = process.call("load", folder=str(handed))
    except BaseException:
        process.close()
        raise
    process.vocabulary = int(answer["vocabulary"])
    return PeerModel(process, weights)


def _started(folder: Path, peer: Peer, family: str, threads: int) -> Process:
    subject = Subject("transformers", peer.program, "replayed_logits", python=str(peer.python))
    try:
        return Process(Worker.start(subject, threads=threads), folder, family)
    except WorkerError as error:
        raise ConfigurationError(f"transformers does not start in {peer.python}: {error}") from None
