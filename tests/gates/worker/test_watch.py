"""Detached processes end with the worker, and shared pages count once."""

import contextlib
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from gates.model import Subject
from gates.worker import watch
from gates.worker.process import Worker

DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open({note!r}, "w") as file:
            file.write(str(os.getpid()))
        {ends}
    os._exit(0)
os.wait()
while not os.path.exists({note!r}) or not os.path.getsize({note!r}):
    time.sleep(0.01)
return {{"y": x}}
"""

SHARED = """
import os, time
import numpy as np
shared = np.ones(200 << 17)  # 200 MiB
children = []
for _ in range(4):
    pid = os.fork()
    if pid == 0:
        shared.sum()
        time.sleep(2.0)
        os._exit(0)
    children.append(pid)
for pid in children:
    os.waitpid(pid, 0)
return {"y": x}
"""


def subject(folder: Path, body: str) -> Subject:
    """Write a subject whose op `double` runs this body."""
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    (folder / "mine.py").write_text(f"def double(x):\n{lines}\n\nOPS = {{'double': double}}\n")
    return Subject("mine", folder / "mine.py", "mine")


def lives(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False


ENDS = ["time.sleep(90)", "os.execvp('sleep', ['sleep', '90'])"]
if sys.platform == "linux":  # elsewhere a daemon with a cleared environment is not found
    ENDS.append("os.execve('/bin/sleep', ['sleep', '90'], {{}})")


@pytest.mark.parametrize("ends", ENDS)
def test_a_daemon_ends_with_the_worker(tmp_path: Path, ends: str) -> None:
    """A daemon with its own session whose parent ended before the judge looked."""
    note = tmp_path / "pid"
    running = Worker.start(subject(tmp_path, DAEMON.format(note=str(note), ends=ends.format())), threads=1)
    try:
        assert running.call("double", {"x": 1.0}, limit_s=20.0).kind == "value"
        pid = int(note.read_text())
        assert lives(pid)
    finally:
        running.close()
    deadline = time.monotonic() + 5.0
    try:
        while lives(pid):
            assert time.monotonic() < deadline, "the daemon outlived the worker"
            time.sleep(0.05)
    finally:
        if lives(pid):
            psutil.Process(pid).kill()


def test_other_processes_are_spared(tmp_path: Path) -> None:
    """Processes of another worker have another token."""
    quiet = subject(tmp_path, "return {'y': x}")
    first, second = (Worker.start(quiet, threads=1) for _ in range(2))
    try:
        first.close()
        assert second.call("double", {"x": 1.0}, limit_s=5.0).kind == "value"
    finally:
        first.close()
        second.close()


@pytest.mark.skipif(sys.platform != "linux", reason="macOS does not say how much of its memory a process shares")
def test_shared_pages_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four children share an array of 200 MiB: the sum of resident sizes exceeds 600 MiB, the memory used does not."""
    sums: list[int] = []

    known = watch._resident

    def resident(process: psutil.Process) -> int:
        sums.append(known(process))
        return sums[-1]

    monkeypatch.setattr(watch, "_resident", resident)
    limited = replace(subject(tmp_path, SHARED), memory_limit=600 << 20)
    running = Worker.start(limited, threads=1)
    try:
        outcome = running.call("double", {"x": 1.0}, limit_s=30.0)
    finally:
        running.close()
    assert outcome.kind == "value", outcome.error
    assert sum(sorted(sums)[-5:]) > 600 << 20
