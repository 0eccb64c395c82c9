"""Read a trace: the steps of a run as the trainer wrote them (docs/training.md)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from gates.errors import ConfigurationError
from gates.model import Array

OWN = "trace."  # prefix of the tensors that a recorded step does not have
FOLDER = "trace"


@dataclass(frozen=True)
class Rollout:
    """Completions of P prompts, R = P·G rows of at most T tokens.

    Attributes:
        asked: the sampling request; None where pairs came with the data.
        prompts: (P,) the index of each prompt in the data.
        ids: the tokens of each prompt.
        tokens: (R, T), -1 past the end.
        lengths: (R,).
        ended: (R,), whether the last token is an end token.
        rewards: (R, F), one column for each reward function.
        weights: (F,).
        texts: the prompts as text, the completions as text, the expected answers.
        arrays: `keys` (R, 2), and the sampler's log-probs `model`, `temperature_scaled`, `behaviour` (R, T).
    """

    asked: Mapping[str, Any] | None
    prompts: Array
    ids: Sequence[Array]
    tokens: Array
    lengths: Array
    ended: Array
    rewards: Array
    weights: Array
    texts: Mapping[str, Sequence[Any]]
    arrays: Mapping[str, Array]

    @property
    def group_size(self) -> int:
        """Rows of a prompt, G."""
        return len(self.lengths) // max(len(self.prompts), 1)

    @property
    def totals(self) -> Array:
        """The weighted sums (R,) of the rewards; an unscored one counts 0, and a row without any score is NaN."""
        scored = ~np.isnan(self.rewards)
        return np.where(scored.any(1), np.where(scored, self.rewards, 0.0) @ self.weights, np.nan)

    def completion(self, row: int) -> Array:
        """Return a row's tokens."""
        return self.tokens[row, : self.lengths[row]]


@dataclass(frozen=True)
class Update:
    """One optimizer step on B rows of T slots.

    Attributes:
        facts: its numbers: loss, loss_policy, loss_kl, loss_entropy, gradient_norm, applied_norm (after the clip), skipped,
            micro_batches.
        arrays: `policy`, `mask`, `advantages`, `groups`, and where they were used `old`, `reference`, `sampling`, `entropy`.
        rows: (B,) the rows of the step.
        before: adapters by name; `after` and `gradient`, the sum over micro-batches before the clip, likewise.
        masks: for each micro-batch, by the path of the layer, which elements of an adapter's input its dropout keeps.
    """

    name: str
    facts: Mapping[str, Any]
    arrays: Mapping[str, Array]
    rows: Array
    before: Mapping[str, Array]
    after: Mapping[str, Array]
    gradient: Mapping[str, Array]
    masks: Sequence[Mapping[str, Array]] = ()


@dataclass(frozen=True)
class Step:
    """One step of a run: its rollouts, the R rows that it learns from, and its updates.

    Attributes:
        arrays: `advantages` (R,), `totals` (R,), `tokens` (R, T), `lengths` (R,), `prompts` (P,), and `sampling`, `old`,
            `reference` (R, T) where they were used. Empty if no group was kept.
    """

    number: int
    learning_rate: float
    rollouts: Sequence[Rollout]
    arrays: Mapping[str, Array]
    updates: Sequence[Update]

    @cached_property
    def group_size(self) -> int:
        """Rows of a prompt."""
        return len(self.arrays["lengths"]) // len(self.arrays["prompts"])

    @cached_property
    def lengths(self) -> Array:
        """Tokens (R,) of each row."""
        return np.array([int((row >= 0).sum()) for row in self.arrays["tokens"]])

    @cached_property
    def ids(self) -> list[Array]:
        """The prompt of each row."""
        pairs = [pair for rollout in self.rollouts for pair in zip(rollout.prompts, rollout.ids, strict=True)]
        known = {int(prompt): ids for prompt, ids in pairs}
        return [known[int(prompt)] for prompt in self.arrays["prompts"] for _ in range(self.group_size)]

    @cached_property
    def sources(self) -> list[tuple[int, int]]:
        """For each row the rollout and the row that it is; (-1, -1) if it is none. Groups stand in the order of the rollouts."""
        size, tokens = self.group_size, self.arrays["tokens"]
        groups = [
            (number, place) for number, rollout in enumerate(self.rollouts) for place in range(len(rollout.prompts))
        ]
        found: list[tuple[int, int]] = []
        for group, prompt in enumerate(self.arrays["prompts"].tolist()):
            rows = tokens[group * size : (group + 1) * size]
            at = next((n for n, (number, place) in enumerate(groups) if self._is(number, place, prompt, rows)), None)
            if at is None:
                found += [(-1, -1)] * size
                continue
            number, place = groups[at]
            groups = groups[at + 1 :]
            found += [(number, place * size + row) for row in range(size)]
        return found

    def _is(self, number: int, place: int, prompt: int, rows: Array) -> bool:
        """Return whether a group of a rollout has this prompt and these tokens (G, T)."""
        rollout, size = self.rollouts[number], len(rows)
        own = rollout.tokens[place * size : (place + 1) * size]
        return int(rollout.prompts[place]) == prompt and np.array_equal(own, rows)

    def gathered(self, values: Callable[[Rollout], Array]) -> Array:
        """Return for each row its value in the rollouts, or NaN."""
        of_rollouts = [np.asarray(values(rollout)) for rollout in self.rollouts]
        unknown = np.full(of_rollouts[0].shape[1:], np.nan)
        return np.stack([of_rollouts[number][row] if number >= 0 else unknown for number, row in self.sources])


@dataclass(frozen=True)
class Evaluation:
    """The rollouts of an evaluation after step `number`."""

    number: int
    rollouts: Sequence[Rollout]


@dataclass(frozen=True)
class Trace:
    """A run as it was traced.

    Attributes:
        folder: of the run.
        config: every setting.
        settings: those of the algorithm that are in force, defaults included, and its `name`.
        temperature: at which the loss scores.
        eos_ids: the end tokens that the trainer read from the model.
        prompts: the index in the data of each prompt of the parts `train` and `validation`.
        lines: of the files `metrics`, `evaluations` and `completions`.
        console: what the run said, where that was kept as console.txt.
    """

    folder: Path
    config: Mapping[str, Any]
    settings: Mapping[str, Any]
    temperature: float
    eos_ids: Sequence[int]
    prompts: Mapping[str, Sequence[int]]
    steps: Sequence[Step]
    evaluations: Sequence[Evaluation]
    lines: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    console: Sequence[str] = ()

    @cached_property
    def first(self) -> Mapping[str, Array]:
        """The adapters before the first update."""
        return next((update.before for step in self.steps for update in step.updates), {})

    def adapters(self) -> Iterator[tuple[Step, Mapping[str, Array]]]:
        """Yield each step with the adapters that its rollouts have."""
        now = self.first
        for step in self.steps:
            yield step, now
            now = step.updates[-1].after if step.updates else now


def load(folder: Path) -> Trace:
    """Read the trace of a run from the run's folder.

    Raises:
        ConfigurationError: there is none, or a file is torn.
    """
    inside = folder / FOLDER
    try:
        run = json.loads((inside / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{folder} holds no trace ({error}); train with output.trace = true") from None
    steps = [_step(path) for path in sorted(inside.glob("step-*.safetensors")) if "-update-" not in path.stem]
    evaluations = []
    for path in sorted(inside.glob("evaluation-*.safetensors")):
        arrays, facts = _file(path)
        evaluations.append(Evaluation(facts["step"], _rollouts(arrays, facts)))
    lines = {name: _lines(folder / f"{name}.jsonl") for name in ("metrics", "evaluations", "completions")}
    return Trace(
        folder,
        run["config"],
        run["algorithm"],
        run["scoring_temperature"],
        run["eos_ids"],
        run["prompts"],
        steps,
        evaluations,
        lines,
        said.read_text(encoding="utf-8").splitlines() if (said := folder / "console.txt").exists() else (),
    )


def model_folder(folder: Path) -> Path:
    """Return where the model was that a run began with.

    Raises:
        ConfigurationError: the run has no trace, or the model is gone.
    """
    try:
        model = Path(json.loads((folder / FOLDER / "run.json").read_text(encoding="utf-8"))["model"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigurationError(
            f"{folder} holds no trace; train with `--set output.trace=true`, and name the run's folder"
        ) from None
    if not model.is_dir():
        raise ConfigurationError(f"the run began with {model}, which is gone; name the model's folder with --model")
    return model


def _lines(path: Path) -> list[Mapping[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def _file(path: Path) -> tuple[dict[str, Array], Mapping[str, Any]]:
    """Return the tensors of a file by their names without prefix, and its facts."""
    try:
        with safe_open(path, framework="np") as file:
            arrays = {name.removeprefix(OWN): file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  no mapping
            facts = json.loads((file.metadata() or {})[FOLDER])
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise ConfigurationError(f"{path} is torn or no part of a trace ({error})") from None
    return arrays, facts


def _step(path: Path) -> Step:
    arrays, facts = _file(path)
    updates = [_update(other) for other in sorted(path.parent.glob(f"{path.stem}-update-*.safetensors"))]
    own = {name: values for name, values in arrays.items() if not name.startswith("rollout.")}
    return Step(facts["step"], facts["learning_rate"], _rollouts(arrays, facts), own, updates)


def _under(arrays: Mapping[str, Array], start: str) -> dict[str, Array]:
    return {name.removeprefix(start): values for name, values in arrays.items() if name.startswith(start)}


def _rollouts(arrays: Mapping[str, Array], facts: Mapping[str, Any]) -> list[Rollout]:
    made = []
    for number, each in enumerate(facts["rollouts"]):
        own = _under(arrays, f"rollout.{number}.")
        ids = np.split(own.pop("prompt_ids"), np.cumsum(own.pop("prompt_lengths"))[:-1])
        named = {name: own.pop(name) for name in ("prompts", "tokens", "lengths", "ended", "rewards")}
        texts = {name: each[name] for name in ("prompts", "completions", "answers")}
        weights = np.array(each["weights"], np.float64)
        made.append(Rollout(asked=each["request"], ids=ids, weights=weights, texts=texts, arrays=own, **named))
    return made


def _update(path: Path) -> Update:
    arrays, facts = _file(path)
    parts = {kind: _under(arrays, f"{kind}.") for kind in ("before", "after", "gradient")}
    known = {name for kind, part in parts.items() for name in (f"{kind}.{leaf}" for leaf in part)}
    own = {name: values for name, values in arrays.items() if name not in known and not name.startswith("mask.")}
    masks = [_unpacked(_under(arrays, f"mask.{n}."), shapes) for n, shapes in enumerate(facts.get("mask_shapes", ()))]
    return Update(path.stem, facts, own, own.pop("rows"), **parts, masks=masks)


def _unpacked(arrays: Mapping[str, Array], shapes: Mapping[str, Sequence[int]]) -> dict[str, Array]:
    """Return masks from their bits."""
    return {
        name: np.unpackbits(bits, count=math.prod(shapes[name])).reshape(shapes[name]) > 0
        for name, bits in arrays.items()
    }
