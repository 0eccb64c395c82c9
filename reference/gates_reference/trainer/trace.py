"""Write what every step of a run used and computed, so that each quantity can be recomputed from its predecessors.

The folder `trace` of a run holds, for step 3, `step-00000003.safetensors` (rollouts, rewards, advantages), a file
`step-00000003-update-01.safetensors` for each optimizer step, and `evaluation-00000003.safetensors`. Each is a recorded step of
`gates judge`; what that format does not know has the prefix `trace.`. Files are written whole and renamed, one step is held in
memory, and a resumed run writes the files of repeated steps anew, with the same bytes.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten
from numpy.typing import NDArray
from safetensors.numpy import save

from gates_reference.trainer import recorded, storage
from gates_reference.trainer.adapters import dropout
from gates_reference.trainer.algorithms import protocol
from gates_reference.trainer.checkpoint import layout
from gates_reference.trainer.config.read import Config
from gates_reference.trainer.engine import rollout
from gates_reference.trainer.engine.micro_batches import Inputs, Step
from gates_reference.trainer.engine.observer import Observer
from gates_reference.trainer.engine.rollout import Generation
from gates_reference.trainer.engine.step import Update
from gates_reference.trainer.rollout.table import Request

Arrays = dict[str, NDArray[Any]]

FOLDER: Final = "trace"
RUN: Final = "run.json"
OWN: Final = "trace."
"""Prefix of the tensors that a recorded step does not have, and key of their facts in the metadata."""
_FILE: Final = re.compile(r"(?:step|evaluation)-([0-9]{8,19})(?:-update-[0-9]+)?\.safetensors")


def observers(folder: Path, config: Config, algorithm: protocol.Algorithm) -> tuple[Observer | None, Observer | None]:
    """Return what watches a run's steps and its evaluations: nothing, unless `output.trace` asks for a trace."""
    if not config.output.trace:
        return None, None
    return Trace(folder / FOLDER, config, algorithm), Evaluation(folder / FOLDER)


def describe(
    folder: Path,
    config: Config,
    algorithm: protocol.Algorithm,
    model: str,
    train: rollout.Source,
    validation: rollout.Source | None,
) -> None:
    """Write `run.json`: the settings in force, the prompts of both parts by their index in the data, and the end tokens."""
    if not config.output.trace:
        return
    parts = {"train": train, "validation": validation}
    content = {
        "version": recorded.VERSION,
        "config": config.model_dump(mode="json"),
        "model": model,
        "algorithm": {"name": algorithm.name, **asdict(algorithm.settings)},
        "scoring_temperature": config.scoring_temperature(),
        "eos_ids": list(train.eos_ids),
        "prompts": {name: [p.index for p in part.prompts] for name, part in parts.items() if part is not None},
    }
    storage.write(folder / FOLDER / RUN, storage.encoded(content, indent=2) + b"\n")


def cut(folder: Path, step: int) -> None:
    """Remove what a trace holds of steps after this one, which a resumed run makes again."""
    for path in (folder / FOLDER).glob("*.safetensors*"):
        named = _FILE.match(path.name)
        if named is None or int(named[1]) > step or path.suffix == ".part":
            path.unlink()


def write(
    path: Path, arrays: Mapping[str, NDArray[Any]], settings: Mapping[str, str], facts: Mapping[str, Any]
) -> None:
    """Write a file of a trace: settings in the words of a recorded step, facts as JSON."""
    content = {name: np.ascontiguousarray(values) for name, values in arrays.items()}
    metadata = {**settings, "recorded_step": recorded.VERSION, OWN.rstrip("."): storage.encoded(facts).decode()}
    storage.write(path, _ordered(save(content, metadata)))


def _ordered(content: bytes) -> bytes:
    """Return a safetensors file whose metadata stand in order, so that equal steps are equal bytes."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    metadata = dict(sorted(header.pop("__metadata__").items()))
    text = json.dumps({"__metadata__": metadata, **header}, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[8 + size :]


@dataclass(slots=True)
class Rollouts:
    """The rollouts of a step or of an evaluation, gathered until they are written."""

    arrays: Arrays = field(default_factory=dict)
    facts: list[dict[str, Any]] = field(default_factory=list)

    def add(self, chosen: Sequence[int], request: Request | None, made: Generation) -> None:
        """Keep a rollout of the prompts at these places of their source."""
        start = f"{OWN}rollout.{len(self.facts)}."
        lengths = [len(prompt.ids) for prompt in made.prompts]
        arrays: Arrays = {
            "places": np.array(chosen, np.int64),
            "prompts": np.array([prompt.index for prompt in made.prompts], np.int64),
            "prompt_ids": np.concatenate([prompt.ids for prompt in made.prompts]).astype(np.int32),
            "prompt_lengths": np.array(lengths, np.int64),
            "tokens": made.tokens,
            "lengths": made.lengths,
            "ended": made.ended,
            "rewards": made.rewards.values,
        }
        if request is not None:
            arrays["keys"] = request.rows
            arrays |= {name: getattr(made, name) for name in ("model", "temperature_scaled", "behaviour")}
        self.arrays |= {start + name: values for name, values in arrays.items()}
        self.facts.append(
            {
                "request": None if request is None else _request(request),
                "completions": [sample.completion for sample in made.samples],
                "prompts": [prompt.text for prompt in made.prompts],
                "answers": [prompt.answer for prompt in made.prompts],
                "weights": made.rewards.weights.tolist(),
                "group_size": made.group_size,
            }
        )


def _request(request: Request) -> dict[str, Any]:
    """Return what a rollout was asked, without its prompts and rows."""
    settings = {name: getattr(request.settings, name) for name in rollout.FILTERS}
    plain = {name: getattr(request, name) for name in ("max_tokens", "seed", "round", "kv_bits")}
    return {**settings, **plain, "eos_ids": request.eos_ids.tolist()}


class Evaluation(Observer):
    """Writes the rollouts of each evaluation."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rollouts = Rollouts()

    def rolled_out(self, chosen: Sequence[int], request: Request | None, made: Generation) -> None:
        """Keep a rollout."""
        self.rollouts.add(chosen, request, made)

    def evaluated(self, number: int) -> None:
        """Write the evaluation's rollouts."""
        made, self.rollouts = self.rollouts, Rollouts()
        write(
            self.folder / f"evaluation-{number:08d}.safetensors",
            made.arrays,
            {},
            {"step": number, "rollouts": made.facts},
        )


class Trace(Observer):
    """Writes the steps of a run."""

    def __init__(self, folder: Path, config: Config, algorithm: protocol.Algorithm) -> None:
        self.folder, self.config, self.algorithm = folder, config, algorithm
        self.number = 0
        self._forget()

    def _forget(self) -> None:
        self.rollouts, self.rows = Rollouts(), Arrays()
        self.settings: dict[str, str] = {}
        self.parts: list[tuple[Inputs, protocol.MicroBatch, protocol.StepTotals]] = []
        self.model: Any = None
        self.masks: list[Arrays] = []
        self.updates = 0
        self.adapters: Arrays = {}

    def rolled_out(self, chosen: Sequence[int], request: Request | None, made: Generation) -> None:
        """Keep a rollout."""
        self.rollouts.add(chosen, request, made)

    def learns(
        self,
        model: Any,
        number: int,
        generation: Generation,
        steps: Sequence[Step],
        advantages: NDArray[np.float32],
    ) -> None:
        """Keep the rows that train, their totals and advantages, and the log-probs that stay the same in all updates."""
        self.number, self.model = number, model
        rows = len(generation.lengths)
        self.settings = recorded.of_advantages(self.algorithm)
        totals = generation.rewards.total()
        self.rows = {
            "advantages": advantages,
            "groups": np.repeat(np.arange(len(generation.prompts)), generation.group_size),
            "rewards" if self.settings else f"{OWN}rewards": totals.astype(np.float32),
            f"{OWN}totals": totals,
            f"{OWN}tokens": generation.tokens,
            f"{OWN}lengths": generation.lengths,
            f"{OWN}prompts": np.array([prompt.index for prompt in generation.prompts], np.int64),
        }
        for name in ("sampling", "old", "reference"):
            parts = [(inputs.rows, getattr(inputs, name)) for step in steps for inputs in step.micro_batches]
            if all(values is not None for _, values in parts):
                self.rows[OWN + name] = _gathered(rows, parts)
        self.adapters = _adapters(model)

    def scored(self, inputs: Inputs, batch: protocol.MicroBatch, totals: protocol.StepTotals) -> None:
        """Keep a micro-batch, and the masks of its dropout, until its step is done."""
        self.parts.append((inputs, batch, totals))
        self.masks.append(dict(dropout.masks(self.model)) if self.config.adapter.dropout else {})

    def updated(self, model: Any, update: Update, gradient: Any) -> None:
        """Write an optimizer step."""
        self.updates += 1
        parts, self.parts = self.parts, []
        masks, self.masks = self.masks, []
        before, self.adapters = self.adapters, _adapters(model)
        arrays, settings = _loss(self.algorithm, self.config, parts, update)
        arrays[f"{OWN}rows"] = np.concatenate([inputs.rows for inputs, _, _ in parts])
        for kind, values in (("before", before), ("after", self.adapters), ("gradient", _flat(gradient))):
            arrays |= {f"{OWN}{kind}.{name}": value for name, value in values.items()}
        for number, part in enumerate(masks):
            arrays |= {f"{OWN}mask.{number}.{name}": np.packbits(mask) for name, mask in part.items()}
        facts = {
            "step": self.number,
            "update": self.updates,
            "mask_shapes": [{name: list(mask.shape) for name, mask in part.items()} for part in masks],
            "micro_batches": [len(inputs.rows) for inputs, _, _ in parts],
            "loss": update.loss,
            "loss_policy": update.policy,
            "loss_kl": update.kl,
            "loss_entropy": update.entropy,
            "gradient_norm": update.gradient_norm,
            "applied_norm": update.applied_norm,
            "skipped": update.skipped,
        }
        write(self._file(f"-update-{self.updates:02d}"), arrays, settings, facts)

    def ended(self, number: int, learning_rate: float) -> None:
        """Write the step."""
        self.number = number
        facts = {
            "step": number,
            "learning_rate": learning_rate,
            "updates": self.updates,
            "rollouts": self.rollouts.facts,
        }
        write(self._file(""), self.rows | self.rollouts.arrays, self.settings, facts)
        self._forget()

    def _file(self, ending: str) -> Path:
        return self.folder / f"step-{self.number:08d}{ending}.safetensors"


def _flat(tree: Any) -> Arrays:
    """Return arrays by name, in float32."""
    return {name: np.array(value.astype(mx.float32)) for name, value in tree_flatten(tree)}


def _adapters(model: Any) -> Arrays:
    return {name: np.array(value.astype(mx.float32)) for name, value in layout.parameters(model).items()}


def _gathered(rows: int, parts: Sequence[tuple[NDArray[np.int64], mx.array]]) -> NDArray[np.float32]:
    """Return (rows, T) values from those of micro-batches."""
    values = np.zeros((rows, parts[0][1].shape[1]), np.float32)
    for places, part in parts:
        values[places] = np.array(part)
    return values


Part = tuple[Inputs, protocol.MicroBatch, protocol.StepTotals]


def _loss(
    algorithm: protocol.Algorithm, config: Config, parts: Sequence[Part], update: Update
) -> tuple[Arrays, dict[str, str]]:
    """Return what the loss of an optimizer step read and gave, as a recorded step where its words suffice."""
    batches = [batch for _, batch, _ in parts]
    arrays: Arrays = {
        name: np.concatenate([np.array(getattr(batch, name)) for batch in batches])
        for name in ("policy", "mask", "advantages", "groups", "old", "reference", "entropy")
        if all(getattr(batch, name) is not None for batch in batches)
    }
    sampling = np.concatenate([np.array(inputs.sampling) for inputs, _, _ in parts])
    if np.isfinite(sampling).any():  # pairs of the data were sampled by nobody
        arrays["sampling"] = sampling
    arrays["gradient"] = np.concatenate([_slope(algorithm, batch, totals) for _, batch, totals in parts])
    arrays["loss"] = np.array(update.loss, np.float32)
    settings = recorded.of_loss(algorithm, config, [batch.mask.shape[0] for batch in batches], parts[0][2])
    if not settings:
        arrays |= {OWN + name: arrays.pop(name) for name in ("gradient", "loss")}
    if settings and "old" not in arrays:
        settings["ratio"] = "on-policy"
    return arrays, settings


def _slope(
    algorithm: protocol.Algorithm, batch: protocol.MicroBatch, totals: protocol.StepTotals
) -> NDArray[np.float32]:
    """Return ∂loss/∂policy (B, T) of a micro-batch, with its entropies held."""

    def loss(policy: mx.array) -> mx.array:
        return algorithm.loss(replace(batch, policy=policy), totals).value

    slope: Callable[[mx.array], mx.array] = mx.grad(loss)
    return np.array(slope(batch.policy))
