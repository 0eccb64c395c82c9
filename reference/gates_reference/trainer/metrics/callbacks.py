"""Callbacks of a run: console, TensorBoard, Weights & Biases, or the user's own."""

import contextlib
import importlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import rich.console
import rich.progress
import rich.table
import rich.text

from gates_reference.trainer.config import sections
from gates_reference.trainer.config.errors import ConfigurationError
from gates_reference.trainer.metrics import progress, signal

Numbers = Mapping[str, float]
SHOWN: Final = {"reward_mean": "reward", "signal_share": "signal", "gradient_norm": "gradient", "length_mean": "length"}
"""The numbers in the progress bar, and their names there."""
BAR: Final = 10
"""Width of the bar in columns; it shrinks if the step, the time left and the numbers need the room."""


class Callback:
    """A callback that does nothing; subclasses override the methods they need. A callback must not change the run."""

    def start(self, step: int, steps: int) -> None:
        """The run starts or resumes at `step` of `steps`."""

    def step(self, step: int, numbers: Numbers, times: Numbers) -> None:
        """A step is done; steps are counted from 1."""

    def evaluation(self, step: int, numbers: Numbers) -> None:
        """The model was evaluated on the validation prompts after a step."""

    def completions(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Receive some completions of a step, each with prompt, completion, reward and answer."""

    def end(self) -> None:
        """The run is complete or was stopped."""


class Console(Callback):
    """A progress bar and tables of completions on a terminal; elsewhere a plain line every ten seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = rich.console.Console(stderr=True)
        self._progress = progress.Progress(clock)
        self._signal = signal.Signal()
        self._bar: Any = None
        self._task: Any = None

    def start(self, step: int, steps: int) -> None:
        """Show the bar."""
        if not self._console.is_terminal:
            self._progress.start(step, steps)
            return
        column = rich.table.Column
        done = rich.progress.MofNCompleteColumn(table_column=column(min_width=2 * len(str(steps)) + 1, no_wrap=True))
        left = rich.progress.TimeRemainingColumn(compact=True, table_column=column(min_width=7, no_wrap=True))
        numbers = rich.progress.TextColumn("{task.description}", table_column=column(no_wrap=True, overflow="ellipsis"))
        self._bar = rich.progress.Progress(done, rich.progress.BarColumn(BAR), left, numbers, console=self._console)
        self._task = self._bar.add_task("training", total=steps, completed=step)
        self._bar.start()

    def step(self, step: int, numbers: Numbers, times: Numbers) -> None:
        """Move the bar, or write a line if one is due; warn once if the rewards give no signal."""
        warning = self._signal.warning(numbers)
        if self._bar is None:
            for line in (self._progress.line(step, progress.measures(numbers, times)), warning):
                if line is not None:
                    progress.say(line)
        else:
            if warning is not None:
                self._bar.console.print(rich.text.Text(warning))
            shown = " ".join(f"{label} {numbers[name]:.3g}" for name, label in SHOWN.items() if name in numbers)
            speed = times.get("tokens_per_second", float("nan"))
            self._bar.update(self._task, completed=step, description=f"{shown} {speed:.0f} tok/s")

    def completions(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Print a table."""
        if self._bar is None:
            return
        table = rich.table.Table(title=f"step {step}", show_lines=True)
        for name in ("prompt", "completion", "reward"):
            table.add_column(name)
        text = rich.text.Text  # rich must not read markup in completions
        for row in rows:
            table.add_row(text(row["prompt"][-200:]), text(row["completion"][:400]), f"{row['reward']:.3g}")
        self._bar.console.print(table)

    def end(self) -> None:
        """Leave the terminal as it was."""
        if self._bar is not None:
            self._bar.stop()


class TensorBoard(Callback):
    """Write scalars to TensorBoard event files in `tensorboard/`; after a resume, repeated steps replace the old ones."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "tensorboard"
        self._module = _library("tensorboardX", "output.tensorboard", "pip install '.[log]' in a checkout of Gates")
        self._writer: Any = None

    def start(self, step: int, steps: int) -> None:
        """Open the event file."""
        del steps
        self._writer = self._module.SummaryWriter(str(self._folder), purge_step=step + 1)

    def step(self, step: int, numbers: Numbers, times: Numbers) -> None:
        """Write every number under its own name."""
        for name, value in {**numbers, **times}.items():
            self._writer.add_scalar(name, value, step)

    def evaluation(self, step: int, numbers: Numbers) -> None:
        """Write every number under `validation/`."""
        for name, value in numbers.items():
            self._writer.add_scalar(f"validation/{name}", value, step)

    def end(self) -> None:
        """Close the event file."""
        if self._writer is not None:
            self._writer.close()


class WeightsAndBiases(Callback):
    """Write an offline run of W&B in `wandb/`; nothing leaves the machine until the user syncs it."""

    def __init__(self, folder: Path, project: str, config: Mapping[str, Any]) -> None:
        self._folder, self._project, self._config = folder, project, dict(config)
        self._module = _library("wandb", "output.wandb", "pip install wandb")
        self._run: Any = None

    def start(self, step: int, steps: int) -> None:
        """Start an offline run."""
        del step, steps
        self._run = self._module.init(
            mode="offline", dir=str(self._folder), project=self._project, config=self._config, name=self._folder.name
        )

    def step(self, step: int, numbers: Numbers, times: Numbers) -> None:
        """Log every number."""
        self._run.log({**numbers, **times}, step=step)

    def evaluation(self, step: int, numbers: Numbers) -> None:
        """Log every number under `validation/`."""
        self._run.log({f"validation/{name}": value for name, value in numbers.items()}, step=step)

    def end(self) -> None:
        """Close the run."""
        if self._run is not None:
            self._run.finish()


def _library(name: str, key: str, remedy: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ConfigurationError(
            f"{key} = true needs {name}, which is not installed; {remedy}, or set it to false"
        ) from None


def configured(output: sections.Output, config: Mapping[str, Any]) -> list[Callback]:
    """Return the callbacks that the section [output] configures.

    Raises:
        ConfigurationError: a library is missing; the message says how to install it.
    """
    folder = Path(output.folder)
    callbacks: list[Callback] = [Console()] if output.console else []
    if output.tensorboard:
        callbacks.append(TensorBoard(folder))
    if output.wandb:
        callbacks.append(WeightsAndBiases(folder, output.wandb_project, config))
    return callbacks


@contextlib.contextmanager
def started(callbacks: Sequence[Callback], step: int, steps: int) -> Iterator[None]:
    """Start every callback; at the end, even after an error, end those that were started."""
    with contextlib.ExitStack() as stack:
        for callback in callbacks:
            stack.callback(callback.end)
            callback.start(step, steps)
        yield
