"""Learning curves of the reference trainer: mean reward or preference margin, recorded in results/learning.

    .venv/bin/python tools/learning.py                          # every algorithm, three seeds, and the controls: half an hour
    .venv/bin/python tools/learning.py --only grpo --seeds 0    # one curve
    .venv/bin/python tools/learning.py --render                 # only the picture, from the record

The start is a tiny model warmed up by supervised steps on sums (`gates_reference.trainer.warmup`). Every few steps, fresh samples of
every problem are scored. A line is one curve: the measured numbers at each `step`, seconds of training, the
configuration, and the commit. DPO and Online DPO have no reward to raise but a margin, see `learning_pairs.py`.
The controls are GRPO with the rewards of each step shuffled among its completions, and DPO with labels shuffled among the
pairs of each sum: they must not learn.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import learning_pairs
import numpy as np

import rlkernels
from gates.results.atomic_write import write_whole
from gates.results.machine import commit, cpu
from gates_reference.trainer import model as models
from gates_reference.trainer import warmup
from gates_reference.trainer.algorithms import registry
from gates_reference.trainer.config import algorithm, read
from gates_reference.trainer.loop import evaluate, prepare
from gates_reference.trainer.loop import run as loop_run
from gates_reference.trainer.metrics.callbacks import Callback
from gates_reference.trainer.rewards import numbers

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "results" / "learning" / "curves.jsonl"
PICTURE = RECORD.with_suffix(".svg")
CONTROL = "grpo, rewards shuffled"
SEEDS = (0, 1, 2)
EVALUATION_SEED = 2**32  # seed of draws that no training run uses
EVERY = 15
STEPS = 60
ITERATIONS = 2  # updates of each rollout: with one, the ratio is 1, no clip acts, and most algorithms are equal


def shuffled(prompts: Sequence[str], completions: Sequence[str], answer: Sequence[int], **_: Any) -> list[float]:
    """The accuracy of a random other completion of the same step."""
    right = [float(numbers.answer(text) == wanted) for text, wanted in zip(completions, answer, strict=True)]
    np.random.default_rng(len(prompts) + sum(map(len, completions))).shuffle(right)
    return right


def configuration(name: str, seed: int, steps: int, folder: Path, model: Path, data: Path) -> dict[str, Any]:
    """Return the configuration of one run, equal for every algorithm apart from its defaults."""
    function: dict[str, Any] = {"name": "accuracy"}
    if name == CONTROL:
        function = {"name": "user", "function": f"{Path(__file__).resolve()}:shuffled"}
    return {
        "model": {"path": str(model)},
        "adapter": {"rank": 8, "seed": seed},
        "data": {"kind": "jsonl", "path": str(data), "seed": seed},
        "rollout": {"samples_per_prompt": 8, "max_tokens": 6, "seed": seed},
        "algorithm": {"name": "grpo" if name == CONTROL else name},
        "optimizer": {"learning_rate": 1e-3},
        "loop": {"steps": steps, "prompts_per_step": 16, "iterations": ITERATIONS},
        "rewards": {"functions": [function]},
        "output": {"folder": str(folder), "console": False, "checkpoint_every_steps": 0, "completions_every_steps": 0},
    }


def rewards(run: Mapping[str, Any]) -> Callable[[int], dict[str, float]]:
    """Return a function that scores fresh samples of every problem with the trained model."""
    functions = {"functions": [{"name": "accuracy"}]}
    config = read.validate({**run, "rollout": {**run["rollout"], "seed": EVALUATION_SEED}, "rewards": functions})
    loaded = models.load(config.model.spec())
    source = prepare.sources(config, loaded.tokenizer)[0]

    def measure(step: int) -> dict[str, float]:
        samples = evaluate.generations(loaded.model, source, len(source.prompts), step)
        return {"reward": evaluate.numbers(samples, ["accuracy"])["reward_mean"]}

    return measure


class Curve(Callback):
    """Measures at the start and every `EVERY` steps, outside the training time."""

    def __init__(self, measure: Callable[[int], dict[str, float]]) -> None:
        self.measure = measure
        self.steps: list[int] = []
        self.points: list[dict[str, float]] = []
        self.seconds = 0.0

    def point(self, step: int) -> None:
        """Add a point to the curve."""
        started = time.monotonic()
        self.points.append(self.measure(step))
        self.steps.append(step)
        self.seconds += time.monotonic() - started

    def start(self, step: int, steps: int) -> None:
        """Before the first update."""
        del steps
        self.point(step)

    def step(self, step: int, numbers: Mapping[str, float], times: Mapping[str, float]) -> None:
        """After some updates."""
        del numbers, times
        if step % EVERY == 0:
            self.point(step)


def curve(name: str, seed: int, steps: int) -> dict[str, Any]:
    """Train once and return the recorded line."""
    recipe = warmup.Recipe(seed=seed)
    model = warmup.build(recipe, lambda step, loss: _tell(f"warming up, seed {seed}: {step}, loss {loss:.3f}"))
    problems = warmup.problems(recipe)
    preference = name in learning_pairs.NAMES
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        if preference:
            tables = learning_pairs.tables(name, seed, steps, folder, model, problems)
            watching = Curve(learning_pairs.margins(tables))
        else:
            data = folder / "sums.jsonl"
            learning_pairs.write(data, problems)
            tables = configuration(name, seed, steps, folder / "run", model, data)
            watching = Curve(rewards(tables))
        config = read.validate(tables)
        started = time.monotonic()
        loop_run.train(config, algorithm.create(config), callbacks=[watching])
        seconds = time.monotonic() - started - watching.seconds
    values = {key: [round(point[key], 6) for point in watching.points] for key in watching.points[0]}
    measure = "margin" if preference else "reward"
    held_out = learning_pairs.HELD_OUT * learning_pairs.WRONG
    return {
        "algorithm": name,
        "seed": seed,
        "measure": measure,
        "step": watching.steps,
        **values,
        "start": values[measure][0],
        "end": values[measure][-1],
        "seconds": round(seconds, 1),
        **({"pairs": held_out} if preference else {"samples": len(problems) * tables["rollout"]["samples_per_prompt"]}),
        "learning_rate": tables["optimizer"]["learning_rate"],
        "commit": commit()[0],
        "cpu": cpu()[0],
        "isa": rlkernels.build_info()["isa"],
    }


def _tell(text: str) -> None:
    if sys.stdout.isatty():
        print(f"\r{text}\x1b[K", end="", flush=True)


def record(line: Mapping[str, Any]) -> None:
    """Replace the line of the same algorithm and seed; the file is written atomically."""
    lines = [json.loads(text) for text in RECORD.read_text(encoding="utf-8").splitlines()] if RECORD.exists() else []
    key = (line["algorithm"], line["seed"])
    kept = [old for old in lines if (old["algorithm"], old["seed"]) != key]
    ordered = sorted([*kept, line], key=lambda entry: (entry["algorithm"], entry["seed"]))
    write_whole(RECORD, (json.dumps(entry) + "\n" for entry in ordered))


def main() -> None:
    """Train the requested curves, record each at its end, and draw all recorded ones."""
    known = [*registry.ALGORITHMS, CONTROL, learning_pairs.CONTROL]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=known, default=known, metavar="NAME")
    parser.add_argument("--seeds", nargs="*", type=int, default=list(SEEDS))
    parser.add_argument("--steps", type=int, help=f"default: {STEPS}, of preferences {learning_pairs.STEPS}")
    parser.add_argument("--render", action="store_true", help="draw what is recorded and do nothing else")
    options = parser.parse_args()
    if not options.render:
        for name in options.only:
            for seed in options.seeds:
                usual = learning_pairs.STEPS if name in learning_pairs.NAMES else STEPS
                line = curve(name, seed, options.steps or usual)
                record(line)
                _tell("")
                print(
                    f"{name}, seed {seed}: {line['start']:.3f} -> {line['end']:.3f} in {line['seconds']} s", flush=True
                )
    subprocess.run([sys.executable, "-m", "gates", "report", str(RECORD), "--out", str(PICTURE)], cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
