"""A whole run: load, roll out and learn step by step, write what happened, and be able to go on after any kill."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import mlx.core as mx

from reference.trainer import audit, export, lora
from reference.trainer import model as models
from reference.trainer.algorithms import protocol
from reference.trainer.checkpoint import folders, layout, state, storage
from reference.trainer.config.errors import ConfigurationError
from reference.trainer.config.read import Config
from reference.trainer.data import order, pairs, prompts, rows
from reference.trainer.engine import rollout
from reference.trainer.engine.pairs import PairSource
from reference.trainer.engine.rollout import Generation, Source
from reference.trainer.engine.step import Engine
from reference.trainer.loop import evaluate, optimizer
from reference.trainer.loop import inputs as loop_inputs
from reference.trainer.metrics import callbacks as telling
from reference.trainer.metrics import lines, numbers
from reference.trainer.metrics.clock import Clock
from reference.trainer.rewards import combine

FILES: Final = ("metrics", "evaluations", "completions", "timings")
"""Append-only files of a run; all but `timings` are the same bytes however often the run was killed."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Where a run ended: steps done, the last step's numbers, the digest of its adapters, and what was not as it should be.

    `first` are the first step's numbers, whenever that was.
    """

    folder: Path
    steps: int
    metrics: dict[str, Any]
    adapter_digest: str
    complaints: list[str] = field(default_factory=list)
    first: dict[str, Any] = field(default_factory=dict)


def load(config: Config) -> models.Loaded:
    """The model of a configuration.

    Raises:
        ConfigurationError: the recipe of a tiny model is wrong.
    """
    try:
        return models.load(config.model.spec())
    except ValueError as error:
        raise ConfigurationError(f"[model]: {error}") from None


def load_prompts(config: Config, tokenizer: Any, found: Sequence[rows.Row]) -> order.Split:
    """The training and validation prompts of a configuration's rows."""
    data = config.data
    every = prompts.make(
        found,
        tokenizer,
        prompt_column=data.prompt_column,
        answer_column=data.answer_column,
        chat=data.chat,
        system=data.system_prompt,
        max_tokens=data.max_prompt_tokens,
        too_long=data.too_long,
        options=data.chat_options,
    )
    if data.chosen_column is not None and data.rejected_column is not None:
        every = pairs.fitting(
            every,
            tokenizer,
            (data.chosen_column, data.rejected_column),
            pairs.end_id(tokenizer, rollout.eos_ids(tokenizer)),
            max_tokens=config.rollout.max_tokens,
            too_long=data.too_long,
        )
    return order.split(every, data.validation_rows, data.seed)


def attach(model: Any, config: Config) -> None:
    """Put the adapters of a configuration on the model, fresh or with saved values, and freeze everything else."""
    lora.detach(model)
    try:
        lora.attach(model, config.adapter.spec())
    except (ValueError, NotImplementedError) as error:
        raise ConfigurationError(f"[adapter]: {error}") from None
    lora.freeze(model)
    lora.require_only_adapters(model)
    if config.model.adapter_path is not None:
        layout.load(Path(config.model.adapter_path), model)


def sources(
    config: Config, tokenizer: Any, inputs: loop_inputs.Inputs | None = None
) -> tuple[Source, Source | None, list[str]]:
    """Where training and validation completions come from, and the names of the reward functions.

    `inputs` are what `loop_inputs.read` says of the configuration, if it was asked before the model was loaded.
    """
    inputs = inputs or loop_inputs.read(config)
    functions = inputs.functions
    split = load_prompts(config, tokenizer, inputs.rows)

    def score(samples: Sequence[Any], group_size: int) -> protocol.Rewards:
        return combine.score(functions, samples, group_size)

    eos = rollout.eos_ids(tokenizer)
    names = ["chosen"] if config.data.offline else [function.name for function in functions]

    def of(part: list[prompts.Prompt]) -> Source:
        chosen, rejected = config.data.chosen_column, config.data.rejected_column
        if chosen is None or rejected is None:
            return Source(tokenizer, part, config.rollout, eos, score)
        return PairSource(tokenizer, part, config.rollout, eos, score, chosen_column=chosen, rejected_column=rejected)

    return of(split.train), of(split.validation) if split.validation else None, names


class Run:
    """One run in one folder."""

    def __init__(self, config: Config, algorithm: protocol.Algorithm, *, resume: bool) -> None:
        self.config = config
        self.folder = Path(config.output.folder)
        self.settings = config.model_dump(mode="json")
        inputs = loop_inputs.read(config)
        _require_folder(self.folder, resume=resume)
        mx.reset_peak_memory()  # of this process: an earlier run's is not this one's
        loaded = load(config)
        self.model, self.tokenizer, self.path = loaded.model, loaded.tokenizer, loaded.path
        attach(self.model, config)
        self.source, self.validation, self.names = sources(config, self.tokenizer, inputs)
        self.optimizer = optimizer.make(config.optimizer)
        self.clock = Clock()
        self.engine = Engine(self.model, algorithm, self.optimizer, self.source, config, self.folder, self.clock)
        self.data_digest = inputs.digest()
        data = {"rows": len(inputs.rows), "digest": self.data_digest}
        rewards = [] if config.data.offline else loop_inputs.functions_used(config, inputs.functions)
        self.facts = {**audit.used(self.model, self.path, self.settings), "data": data, "rewards": rewards}
        self.position, self.ran_before, self.complaints = self._restore()
        self.given_up = {step for step in folders.steps(self.folder / "checkpoints") if step > self.position.step}
        self.began = self.position.step
        self.last: dict[str, Any] = {}
        self.clip = numbers.bounds(algorithm), numbers.level(algorithm)
        self.pairs = numbers.pairs(algorithm)
        storage.write(self.folder / "config.json", json.dumps(self.settings, indent=2, sort_keys=True).encode() + b"\n")
        self.files = {name: lines.Lines(self.folder / f"{name}.jsonl") for name in FILES}

    def _restore(self) -> tuple[state.Position, audit.Ran, list[str]]:
        """Go back to the newest whole checkpoint, or to the start, and cut the files to what they were then.

        Returned with the position: what had run by then, this resume included, and what is wrong with newer checkpoints.
        """
        path, saved, complaints = folders.newest(self.folder / "checkpoints")
        position = state.Position()
        if path is not None:
            position = state.load(
                path, saved, model=self.model, optimizer=self.optimizer, config=self.settings, data=self.data_digest
            )
        for name in FILES:
            lines.cut(self.folder / f"{name}.jsonl", saved.get("lengths", {}).get(name, 0))
        before = audit.Ran.of(saved.get("ran", {}))
        if path is not None and position.step < self.config.loop.steps:
            before = replace(before, resumed_at_steps=(*before.resumed_at_steps, position.step))
        return position, before, complaints

    def train(self, callbacks: Sequence[telling.Callback]) -> Summary:
        """Make every step that is left."""
        steps = self.config.loop.steps
        with telling.telling(callbacks, self.position.step, steps):
            while self.position.step < steps:
                self._step(callbacks)
        digest = models.digest(layout.parameters(self.model))
        if self.position.step > self.began or audit.ended_with(self.folder) != digest:
            audit.write(self.folder, self.facts, self._ran(), self.model)
        if self.config.output.fused:
            export.fused(self.model, self.tokenizer, self.path, self.folder / "fused")
        first = lines.read(self.folder / "metrics.jsonl")[0]
        return Summary(self.folder, self.position.step, self.last, digest, self.complaints, first)

    def _places(self, offset: int, count: int) -> list[int]:
        data = self.config.data
        start = self.position.taken + offset
        return order.take(len(self.source.prompts), start, count, data.seed, shuffle=data.shuffle)

    def _step(self, callbacks: Sequence[telling.Callback]) -> None:
        number = self.position.step + 1
        mx.random.seed(
            (self.config.rollout.seed + number) % 2**63
        )  # nothing here draws from it; a model's dropout would
        rate = optimizer.learning_rate(self.config.optimizer, self.position.step, self.config.loop.steps)
        mx.reset_peak_memory()
        generation = self.engine.generate(self._places, self.position.round)
        learned = self.engine.learn(generation, number, rate)
        self.position = state.Position(
            number, self.position.taken + generation.taken, self.position.round + generation.rounds
        )
        found = numbers.of_step(generation, learned, self.names, rate, *self.clip, pairs=self.pairs)
        self.last = dict(storage.plain(found))
        self.files["metrics"].write({"step": number, **self.last})
        times = numbers.of_time(self.clock.read(), generation)
        self.files["timings"].write({"step": number, **times})
        for callback in callbacks:
            callback.step(number, {n: float(v) for n, v in self.last.items()}, times)
        self._completions(generation, number, callbacks)
        self._evaluate(number, callbacks)
        if _due(number, self.config.output.checkpoint_every_steps) or number == self.config.loop.steps:
            self._checkpoint()

    def _completions(self, generation: Generation, number: int, callbacks: Sequence[telling.Callback]) -> None:
        output = self.config.output
        if not _due(number, output.completions_every_steps):
            return
        totals = generation.rewards.total().tolist()
        shown = [
            {"prompt": s.prompt, "completion": s.completion, "reward": total, "answer": s.answer, "tokens": s.tokens}
            for s, total in zip(generation.samples, totals, strict=True)
        ][: output.completions_rows]
        self.files["completions"].write({"step": number, "rows": shown})
        for callback in callbacks:
            callback.completions(number, shown)

    def _evaluate(self, number: int, callbacks: Sequence[telling.Callback]) -> None:
        if self.validation is None or not _due(number, self.config.loop.evaluate_every_steps):
            return
        made = evaluate.generations(self.model, self.validation, self.config.loop.prompts_per_step, number)
        offline = self.config.data.offline
        found = (
            evaluate.margins(
                self.model, made, self.config.scoring_temperature(), head_rows=self.config.loop.head_rows or None
            )
            if offline
            else evaluate.numbers(made, self.names)
        )
        self.files["evaluations"].write({"step": number, **found})
        for callback in callbacks:
            callback.evaluation(number, found)

    def _checkpoint(self) -> None:
        output = self.config.output
        state.save(
            self.folder / "checkpoints",
            self.position,
            model=self.model,
            optimizer=self.optimizer,
            config=self.settings,
            data=self.data_digest,
            lengths={name: file.length() for name, file in self.files.items()},
            metrics=self.last,
            ran=asdict(self._ran()),
        )
        self.given_up.discard(self.position.step)
        folders.prune(self.folder / "checkpoints", output.keep_checkpoints, self.given_up)

    def _ran(self) -> audit.Ran:
        """What has run so far, in this process and in those before it."""
        paths = self.source.paths | (self.validation.paths if self.validation else set())
        return self.ran_before.and_then(paths, self.engine.head_calls)

    def close(self) -> None:
        """Close the files and take the adapters off, for the model may be used again in this process."""
        for file in self.files.values():
            file.close()
        lora.detach(self.model)


def _require_folder(folder: Path, *, resume: bool) -> None:
    """Make the folder of a run; one that holds a run is gone on with only if that is asked for.

    A run that ended before its first step is none: its files have no line.
    """
    metrics = folder / "metrics.jsonl"
    if not resume and (folders.steps(folder / "checkpoints") or (metrics.exists() and metrics.stat().st_size)):
        raise ConfigurationError(
            f"{folder} holds a run already; give --resume to go on with it, or choose another output.folder"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"output.folder {folder} cannot be made ({error.strerror})") from None


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def train(
    config: Config,
    algorithm: protocol.Algorithm,
    *,
    resume: bool = False,
    callbacks: Sequence[telling.Callback] | None = None,
    ready: Callable[[int], None] | None = None,
) -> Summary:
    """Train as configured; `resume` goes on from the newest whole checkpoint in output.folder, or starts if there is none.

    `callbacks` are told besides those that the section [output] asks for; `ready` is called before the first step with the
    tokens of the longest prompt.

    Raises:
        ConfigurationError: the folder holds a run and `resume` is not asked for, or a sink's library is missing.
        DataError, RewardError, CheckpointError, NonFiniteError: as their messages say.
    """
    chosen = [*telling.chosen(config.output, config.model_dump(mode="json")), *(callbacks or ())]
    run = Run(config, algorithm, resume=resume)
    try:
        if ready is not None:
            sources = (run.source, run.validation)
            ready(max(len(prompt.ids) for source in sources if source is not None for prompt in source.prompts))
        return run.train(chosen)
    finally:
        run.close()
