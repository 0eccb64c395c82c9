"""The MLX trainer's whole run, from configuration to adapters, as `gates trainer train` makes it."""

import io
import json
import os
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, redirect_stderr, suppress
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn

from gates_reference.trainer import audit, lora, trace
from gates_reference.trainer.adapters import dropout, layers
from gates_reference.trainer.adapters.settings import Settings
from gates_reference.trainer.config import algorithm, read
from gates_reference.trainer.engine import micro_batches
from gates_reference.trainer.loop import run as loop_run
from gates_reference.trainer.metrics.callbacks import Callback

Array = np.ndarray[Any, Any]
Spec = Mapping[str, Any]
LINES = ("metrics", "evaluations", "completions")
CONSOLE = "console.txt"  # what a run without a terminal says


class Killer(Callback):
    """Ends the process as a power cut would, after a step's metrics are written."""

    def __init__(self, at: int | None) -> None:
        self.at = at

    def step(self, step: int, numbers: Mapping[str, float], times: Mapping[str, float]) -> None:
        """Die where that was asked for."""
        del numbers, times
        if step == self.at:
            os.kill(os.getpid(), signal.SIGKILL)


def _config(model: Spec, tables: Spec, folder: str) -> read.Config:
    source = {"path": model["path"]} if "path" in model else {"tiny": dict(model)}
    output = {**tables["output"], "folder": folder}
    return read.validate({**tables, "model": source, "output": output})


def train_run(*, model: Spec, tables: Spec, folder: str, resume: bool, kill_at_step: int | None) -> dict[str, Any]:
    """Train as the tables say; the digest of the adapters, the metrics as written, the steps done, the layers with adapters."""
    config = _config(model, tables, folder)
    summary = loop_run.train(config, algorithm.create(config), resume=resume, callbacks=[Killer(kill_at_step)])
    metrics = (Path(folder) / "metrics.jsonl").read_text(encoding="utf-8")
    adapted = json.loads((Path(folder) / audit.FILE).read_text(encoding="utf-8"))["adapter"]["targets"]
    return {
        "digest": summary.adapter_digest,
        "metrics": metrics,
        "steps": summary.steps,
        "targets": lora.keys(dict.fromkeys(adapted)),
    }


class StoppedError(Exception):
    """A run ends where the case says."""


class Stopper(Callback):
    """Stops a run once the metrics of a step are written."""

    def __init__(self, at: int | None) -> None:
        self.at = at

    def step(self, step: int, numbers: Mapping[str, float], times: Mapping[str, float]) -> None:
        """Stop where that was asked for."""
        del numbers, times
        if step == self.at:
            raise StoppedError


def traced_run(*, model: Spec, tables: Spec, folder: str, stops: Sequence[int]) -> dict[str, Any]:
    """Train as the tables say, stopped and resumed after each of these steps; the files that tell what happened."""
    config = _config(model, {**tables, "output": {**tables["output"], "trace": True, "console": True}}, folder)
    console = io.StringIO()
    for number, stop in enumerate([*stops, None]):
        with suppress(StoppedError), redirect_stderr(console):
            loop_run.train(config, algorithm.create(config), resume=number > 0, callbacks=[Stopper(stop)])
    root = Path(folder)
    paths = [*(root / trace.FOLDER).iterdir(), *(root / f"{name}.jsonl" for name in LINES)]
    (root / CONSOLE).write_text(console.getvalue(), encoding="utf-8")
    paths.append(root / CONSOLE)
    files = {str(path.relative_to(root)): np.frombuffer(path.read_bytes(), np.uint8) for path in paths}
    return {"model": json.loads((root / trace.FOLDER / trace.RUN).read_bytes())["model"], "files": files}


def sampled_and_scored(*, model: Spec, tables: Spec) -> dict[str, Any]:
    """The completion tokens of the first step, as drawn and as they lie in the batches of its loss."""
    with tempfile.TemporaryDirectory() as folder:
        config = _config(model, tables, folder)
        run = loop_run.Run(config, algorithm.create(config), resume=False)
        try:
            made = run.engine.generate(range(len(run.source.prompts)), 0)
            steps = micro_batches.cut(made, 1, 5, config.rollout.max_tokens)
        finally:
            run.close()
    scored = [
        np.array(part.batch.ids)[row, start : start + length]
        for part in steps[0].micro_batches
        for row, (start, length) in enumerate(zip(part.batch.prompt_lengths, part.batch.lengths, strict=True))
    ]
    sampled = [made.tokens[row, :length] for row, length in enumerate(made.lengths)]
    again = [run.tokenizer.encode(run.tokenizer.decode(ids.tolist())) for ids in sampled]
    return {
        "sampled": np.concatenate(sampled).astype(np.int64),
        "scored": np.concatenate(scored).astype(np.int64),
        "drifted": sum(ids.tolist() != other for ids, other in zip(sampled, again, strict=True)),
    }


def step_logprobs(*, model: Spec, tables: Spec) -> dict[str, Any]:
    """The log-probs of a run's first step, as its rollout, its constants and its last pass have them."""
    with tempfile.TemporaryDirectory() as folder:
        config = _config(model, tables, folder)
        run = loop_run.Run(config, algorithm.create(config), resume=False)
        try:
            made = run.engine.generate(range(len(run.source.prompts)), 0)
            learned = run.engine.learn(made, 1, config.optimizer.learning_rate)
        finally:
            run.close()
    width = int(made.lengths.max())
    live = np.arange(width) < made.lengths[:, None]
    found = {"old": learned.old, "reference": learned.reference, "policy": learned.policy}
    return {"sampler": np.where(live, made.temperature_scaled[:, :width], np.nan), **found}


def lora_linear(
    *, x: Array, weight: Array, a: Array, b: Array, scale: float, p: float, draw: Sequence[int] | None
) -> dict[str, Any]:
    """The trainer's adapter around a linear layer, and which inputs it keeps."""
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    linear.weight = mx.array(weight)
    settings = Settings(rank=a.shape[1], scale=scale, dropout=p)
    adapter = layers.wrap("layer", linear, settings, np.random.Philox(0).random_raw)
    adapter.lora_a, adapter.lora_b = mx.array(a), mx.array(b)
    model = nn.Module()
    model.layer = adapter
    with nullcontext() if draw is None else dropout.drawn(model, *draw):
        y, kept = adapter(mx.array(x)), adapter.dropout(mx.ones(x.shape))
    return {"y": np.array(y), "kept": np.array(kept)}


OPS: dict[str, Callable[..., dict[str, Any]]] = {
    "train_run": train_run,
    "traced_run": traced_run,
    "sampled_and_scored": sampled_and_scored,
    "step_logprobs": step_logprobs,
    "lora_linear": lora_linear,
}
