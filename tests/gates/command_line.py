"""The command line as a subprocess or in this process, and a subject whose group advantages are right."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from gates import cli
from gates.cli import setup
from gates.run.engines import pool
from gates.run.oracle_cache import OracleCache

CACHED = OracleCache()  # what the oracle gives for the inputs of cases, for all checks of this process
RIGHT = """
import numpy as np

def group_advantages(rewards, group_size, *, scale, ddof, eps, eps_mode, baseline):
    groups = rewards.reshape(-1, group_size).astype(np.float64)
    centred = groups - groups.mean(axis=1, keepdims=True)
    divisor = groups.std(axis=1, ddof=ddof, keepdims=True) + eps
    varies = groups.max(axis=1, keepdims=True) > groups.min(axis=1, keepdims=True)
    advantages = np.divide(centred, divisor, out=np.zeros_like(centred), where=varies)
    return {"advantages": advantages.reshape(-1).astype(rewards.dtype)}

OPS = {"group_advantages": group_advantages}
CONVENTIONS = {"group_advantages": {"scale": ("group",), "eps_mode": ("add",), "baseline": ("mean",)}}
"""


def gates(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command as its users do, in a process of its own; most tests need only `here`."""
    return subprocess.run(
        [sys.executable, "-m", "gates", *arguments], capture_output=True, text=True, cwd=cwd, timeout=240, check=False
    )


def here(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in this process, which saves the start of an interpreter; subjects have workers of their own."""
    out, err = io.StringIO(), io.StringIO()
    handlers = {number: signal.getsignal(number) for number in cli.SIGNALS}
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err), scheduled_as_before():
        patch.chdir(cwd)
        patch.setattr(sys, "argv", ["gates", *arguments])
        patch.setattr(pool, "OracleCache", lambda: CACHED)
        patch.setattr(setup, "jobs", lambda wanted: wanted or 1)  # each worker imports NumPy, and every core runs tests
        for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):  # set by some commands, undone here
            patch.setenv(name, "1")
        try:
            cli.main()
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


@contextmanager
def scheduled_as_before() -> Iterator[None]:
    """Undo a change of the scheduling policy, which later subprocesses would inherit."""
    policy = os.sched_getscheduler(0) if hasattr(os, "sched_getscheduler") else None
    try:
        yield
    finally:
        if policy is not None:
            os.sched_setscheduler(0, policy, os.sched_param(0))


def await_verdict(folder: Path) -> None:
    """Wait until the run that writes to a folder has its first verdict.

    Raises:
        TimeoutError: it has none within a minute.
    """
    for _ in range(600):
        if any('"record":"verdict"' in file.read_text() for file in folder.glob("*.jsonl")):
            return
        time.sleep(0.1)
    raise TimeoutError(f"{folder} has no verdict")
