"""Run scripts with the recorder on their path, on one rank or several."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gates.report.xray import document
from gates.subjects.peers import environments
from gates.xray import launch, read

SCRIPTS = Path(__file__).parent / "scripts"
LIMIT_S = 200.0


def interpreter(peer: str = "trl") -> str:
    """Return an interpreter with torch."""
    environment = environments.environment(peer)
    if not environment.ready:
        pytest.skip(f"no environment; `gates peers sync {peer}` makes it")
    return str(environment.python)


def run(folder: Path, command: Sequence[str], ranks: Sequence[dict[str, str]] = ({},), **options: object) -> list[str]:
    """Run a process for each rank, and return what each printed on both streams.

    Args:
        folder: of the recording; none is made where it is empty.
        command: with the interpreter.
        ranks: variables of each process.
        options: of the recorder.
    """
    asked = json.dumps({"folder": str(folder), "updates": 2, **options})
    recorder = {launch.OPTIONS: asked, "PYTHONPATH": str(launch.RECORDER)}
    processes = [
        subprocess.Popen(
            command,
            env={**os.environ, **recorder, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for variables in ranks
    ]
    try:
        printed = [process.communicate(timeout=LIMIT_S)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * len(processes), "\n".join(printed)
    return printed


def torch_ranks(folder: Path, variant: str, ranks: int) -> dict[str, Any]:
    """Return the X-ray of torch_ranks.py on gloo."""
    folder.mkdir()
    command = [interpreter(), str(SCRIPTS / "torch_ranks.py"), variant, str(folder.with_suffix(".store"))]
    run(folder, command, [{"RANK": str(rank), "WORLD_SIZE": str(ranks)} for rank in range(ranks)])
    return document.record(read(folder))


def mlx_ranks(folder: Path, variant: str, ranks: int) -> dict[str, Any]:
    """Return the X-ray of mlx_ranks.py on MLX's ring."""
    folder.mkdir()
    hosts = folder.with_suffix(".hosts")
    hosts.write_text(json.dumps([[f"127.0.0.1:{port}"] for port in _ports(ranks)]))
    variables = [{"MLX_RANK": str(rank), "MLX_HOSTFILE": str(hosts)} for rank in range(ranks)] if ranks > 1 else [{}]
    run(folder, [sys.executable, str(SCRIPTS / "mlx_ranks.py"), variant], variables)
    return document.record(read(folder))


def _ports(count: int) -> list[int]:
    """Return free ports."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(server.getsockname()[1]) for server in sockets]
    for server in sockets:
        server.close()
    return ports
