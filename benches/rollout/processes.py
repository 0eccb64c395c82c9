"""One process for each peer that has an environment of its own: it is set up for a shape, then rolls out when asked."""

from __future__ import annotations

import atexit
import json
import subprocess
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).with_name("workers")


class Process:
    """The peer's Python with `workers/process.py`, which describes its protocol."""

    def __init__(self, peer, python, file):
        self.peer = peer
        line = [python, "-I", str(FOLDER / "process.py"), str(FOLDER / file)]
        self.process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)

    def ask(self, message):
        """Return what it answers."""
        try:
            self.process.stdin.write(json.dumps(message) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            status = self.process.wait()
            raise RuntimeError(f"the process of {self.peer} ended with status {status}; its errors are printed above")
        return json.loads(line)

    @property
    def ended(self):
        """Say whether it is gone."""
        return self.process.poll() is not None


def call(peer, setup, way=""):
    """A call that lets the peer roll out once and returns its lengths, and the peer's version.

    Args:
        peer: of `gates peers list`; its file in `workers` is named like its module.
        setup: `name` of the shape, `arguments` of mlx-lm's Qwen3, `weights` (a file), `prompt`, `lengths`, `tokens` at
            most, `temperature`, `top_p`, `seed`, and what else its file asks for.
        way: tells the peer's processes apart where it is timed in several ways.

    Raises:
        ImportError: the peer has no environment.
        RuntimeError: its process ended.
    """
    from gates.subjects.peers import environments

    environment = environments.environment(peer)
    if not environment.ready:
        raise ImportError(f"{peer} has no environment; `gates peers sync {peer}` makes it")
    known = environments.peers()[peer]
    if _process(peer, way).ended:
        _process.cache_clear()
    process = _process(peer, way)
    process.ask(setup)
    return lambda: process.ask(setup["name"]), environment.versions.get(known.distribution, "")


@cache
def _process(peer, way):  # noqa: ARG001  the key of another process
    from gates.subjects.peers import environments

    python = environments.environment(peer).python
    return Process(peer, python, f"{environments.peers()[peer].import_name}.py")
