"""Run a training script with the recorder on its path."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from gates.errors import ConfigurationError

RECORDER = Path(__file__).parent / "recorder"
OPTIONS = "GATES_XRAY"  # the variable that starts the recorder; gates_xray.py reads it
PATH = "PYTHONPATH"
ENDING_S = 10.0  # after an interruption the script has this long to end by itself


@dataclass(frozen=True, slots=True)
class Asked:
    """What the recorder is asked.

    Attributes:
        folder: where it writes.
        updates: how many updates.
        columns: the most tokens of an update.
        seconds: the longest that an update may be expected to take.
        parameters: patterns of names; the fit is restricted to these.
        stop: end the script after the last recorded update.
    """

    folder: str
    updates: int
    columns: int
    seconds: float
    parameters: tuple[str, ...]
    stop: bool


def run(command: Sequence[str], asked: Asked, *, output: int | None) -> tuple[int, bool]:
    """Run a script, and return its exit status and whether it was interrupted.

    Args:
        command: the program and its arguments.
        asked: of the recorder.
        output: a file descriptor for what the script prints, None for our own.

    Raises:
        ConfigurationError: there is no such program.
    """
    program = shutil.which(command[0])
    if program is None:
        raise ConfigurationError(
            f"no program {command[0]!r}: write the command as you would without Gates, as in "
            "`gates xray -- python train.py`"
        )
    environment = dict(os.environ)
    environment[OPTIONS] = json.dumps(asdict(asked))
    environment[PATH] = os.pathsep.join(filter(None, (str(RECORDER), environment.get(PATH))))
    with subprocess.Popen([program, *command[1:]], env=environment, stdout=output) as process:
        try:
            return process.wait(), False
        except KeyboardInterrupt:  # the terminal has interrupted the script, too
            return _ended(process), True


def _ended(process: subprocess.Popen[bytes]) -> int:
    """Wait for an interrupted script, and end it if it does not end."""
    try:
        return process.wait(ENDING_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.send_signal(signal.SIGTERM)
    try:
        return process.wait(ENDING_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.kill()
        return process.wait()


def reason(status: int) -> str:
    """Return how a script ended, in words."""
    if status >= 0:
        return f"the script ended with {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = str(-status)
    return f"the script was ended by {name}"


def standard_error() -> int:
    """Return the descriptor of standard error, for a script whose output must not mix with a document's."""
    return sys.stderr.fileno()
