"""A training run: roll out and learn step by step, write the results, and resume after being killed at any moment."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import mlx.core as mx

from gates_reference.trainer import audit, export, lora, storage, trace
from gates_reference.trainer import model as models
from gates_reference.trainer.algorithms import protocol
from gates_reference.trainer.checkpoint import folders, jsonl, layout, state
from gates_reference.trainer.config.errors import ConfigurationError
from gates_reference.trainer.config.read import Config
from gates_reference.trainer.data import order
from gates_reference.trainer.engine import optimizer
from gates_reference.trainer.engine.rollout import Generation
from gates_reference.trainer.engine.step import Clock, Engine
from gates_reference.trainer.loop import evaluate, prepare
from gates_reference.trainer.loop import inputs as loop_inputs
from gates_reference.trainer.metrics import callbacks as sinks
from gates_reference.trainer.metrics import numbers

FILES: Final = ("metrics", "evaluations", "completions", "timings")
"""Append-only files of a run; all but `timings` have the same bytes however often the run was killed."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The end of a run: steps done, the numbers of the last and the first step, the digest of the adapters, and warnings."""

    folder: Path
    steps: int
    metrics: dict[str, Any]
    adapter_digest: str
    warnings: list[str] = field(default_factory=list)
    first: dict[str, Any] = field(default_factory=dict)


class Run:
    """A run in its folder."""

    def __init__(self, config: Config, algorithm: protocol.Algorithm, *, resume: bool) -> None:
        self.config = config
        self.folder = Path(config.output.folder)
        self.settings = config.model_dump(mode="json")
        inputs = loop_inputs.read(config)
        _require_folder(self.folder, resume=resume)
        mx.reset_peak_memory()  # of this process: an earlier run's is not this one's
        loaded = prepare.load(config)
        self.model, self.tokenizer, self.path = loaded.model, loaded.tokenizer, loaded.path
        prepare.attach(self.model, config)
        self.source, self.validation, self.names = prepare.sources(config, self.tokenizer, inputs)
        self.trace, self.evaluation = trace.observers(self.folder, config, algorithm)
        trace.describe(self.folder, config, algorithm, self.path, self.source, self.validation)
        self.source = replace(self.source, observer=self.trace)
        if self.validation is not None:
            self.validation = replace(self.validation, observer=self.evaluation)
        self.optimizer = optimizer.make(config.optimizer)
        self.clock = Clock()
        self.engine = Engine(
            self.model,
            algorithm,
            self.optimizer,
            self.source,
            config,
            self.folder,
            self.clock,
            temperature=config.scoring_temperature(),
            observer=self.trace,
        )
        self.data_digest = inputs.digest()
        data = {"rows": len(inputs.rows), "digest": self.data_digest}
        rewards = [] if config.data.offline else loop_inputs.functions_used(config, inputs.functions)
        self.facts = {**audit.used(self.model, self.path, self.settings), "data": data, "rewards": rewards}
        self.position, self.ran_before, self.warnings = self._restore()
        self.given_up = {step for step in folders.steps(self.folder / "checkpoints") if step > self.position.step}
        self.began = self.position.step
        self.last: dict[str, Any] = {}
        storage.write(self.folder / "config.json", json.dumps(self.settings, indent=2, sort_keys=True).encode() + b"\n")
        self.files = {name: jsonl.Lines(self.folder / f"{name}.jsonl") for name in FILES}

    def _restore(self) -> tuple[state.Position, audit.Ran, list[str]]:
        """Restore the newest intact checkpoint, if there is one, and truncate the files to their length at that time.

        Return the position, what had run by then (this resume included), and a warning for each damaged newer checkpoint.
        """
        path, saved, warnings = folders.newest(self.folder / "checkpoints")
        position = state.Position()
        if path is not None:
            position = state.load(
                path, saved, model=self.model, optimizer=self.optimizer, config=self.settings, data=self.data_digest
            )
        for name in FILES:
            jsonl.cut(self.folder / f"{name}.jsonl", saved.get("lengths", {}).get(name, 0))
        trace.cut(self.folder, position.step)
        before = audit.Ran.of(saved.get("ran", {}))
        if path is not None and position.step < self.config.loop.steps:
            before = replace(before, resumed_at_steps=(*before.resumed_at_steps, position.step))
        return position, before, warnings

    def train(self, callbacks: Sequence[sinks.Callback]) -> Summary:
        """Make the remaining steps, and write the audit and the merged model at the end."""
        steps = self.config.loop.steps
        with sinks.started(callbacks, self.position.step, steps):
            while self.position.step < steps:
                self._step(callbacks)
        digest = models.digest(layout.parameters(self.model))
        if self.position.step > self.began or audit.ended_with(self.folder) != digest:
            audit.write(self.folder, self.facts, self._ran(), self.model)
        if self.config.output.fused:
            merged = self.folder / "fused"
            export.fused(self.model, self.tokenizer, self.path, merged, dequantize=self.config.output.dequantize)
        first = jsonl.read(self.folder / "metrics.jsonl")[0]
        return Summary(self.folder, self.position.step, self.last, digest, self.warnings, first)

    def _upcoming(self) -> list[int]:
        """Return the next prompts in order, as many as a step with every resample takes."""
        data, wanted = self.config.data, self.config.loop.prompts_per_step
        count = wanted * (1 + self.config.algorithm.max_resamples)
        return order.take(len(self.source.prompts), self.position.taken, count, data.seed, shuffle=data.shuffle)

    def _step(self, callbacks: Sequence[sinks.Callback]) -> None:
        number = self.position.step + 1
        mx.random.seed((self.config.rollout.seed + number) % 2**63)  # the trainer's own draws have keys
        rate = optimizer.learning_rate(self.config.optimizer, self.position.step, self.config.loop.steps)
        mx.reset_peak_memory()
        generation = self.engine.generate(self._upcoming(), self.position.round)
        learned = self.engine.learn(generation, number, rate)
        if self.trace:
            self.trace.ended(number, rate)
        self.position = state.Position(
            number, self.position.taken + generation.taken, self.position.round + generation.rounds
        )
        self.last = dict(storage.plain(numbers.of_step(generation, learned, self.names, rate, self.engine.algorithm)))
        self.files["metrics"].write({"step": number, **self.last})
        times = numbers.of_time(self.clock.read(), generation)
        self.files["timings"].write({"step": number, **times})
        for callback in callbacks:
            callback.step(number, {n: float(v) for n, v in self.last.items()}, times)
        self._completions(generation, number, callbacks)
        self._evaluate(number, callbacks)
        if _due(number, self.config.output.checkpoint_every_steps) or number == self.config.loop.steps:
            self._checkpoint()

    def _completions(self, generation: Generation, number: int, callbacks: Sequence[sinks.Callback]) -> None:
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

    def _evaluate(self, number: int, callbacks: Sequence[sinks.Callback]) -> None:
        if self.validation is None or not _due(number, self.config.loop.evaluate_every_steps):
            return
        measures = evaluate.measured(self.config, self.model, self.validation, self.names, number)
        if self.evaluation:
            self.evaluation.evaluated(number)
        self.files["evaluations"].write({"step": number, **measures})
        for callback in callbacks:
            callback.evaluation(number, measures)

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
        """Return what has run so far, in this process and in the earlier ones of this run."""
        paths = self.source.paths | (self.validation.paths if self.validation else set())
        return self.ran_before.and_then(paths, self.engine.head_calls)

    def close(self) -> None:
        """Close the files and take the adapters off, because the model may be used again in this process."""
        for file in self.files.values():
            file.close()
        lora.detach(self.model)


def _require_folder(folder: Path, *, resume: bool) -> None:
    """Make the folder of a run; without `resume`, refuse one that holds a run.

    A run that ended before its first step does not count: its files have no line.
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
    callbacks: Sequence[sinks.Callback] | None = None,
    ready: Callable[[int], None] | None = None,
) -> Summary:
    """Train as configured; with `resume` continue from the newest intact checkpoint in output.folder, if there is one.

    `callbacks` are called in addition to those that the section [output] configures. `ready` is called before the first step with
    the length of the longest prompt in tokens.

    Raises:
        ConfigurationError: the folder holds a run and `resume` is false, or the library of a sink is missing.
        DataError, RewardError, CheckpointError, NonFiniteError: as their messages say.
    """
    chosen = [*sinks.configured(config.output, config.model_dump(mode="json")), *(callbacks or ())]
    run = Run(config, algorithm, resume=resume)
    try:
        if ready is not None:
            sources = (run.source, run.validation)
            ready(max(len(prompt.ids) for source in sources if source is not None for prompt in source.prompts))
        return run.train(chosen)
    finally:
        run.close()
