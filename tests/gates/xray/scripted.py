"""Run scripts with the recorder on their path, on one rank or several."""

from __future__ import annotations

import atexit
import functools
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
from gates.xray import launch
from gates.xray.picture import read

SCRIPTS = Path(__file__).parent / "scripts"
LIMIT_S = 200.0
ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # every processor runs tests, and threads that wait for each other spin


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
            env={**os.environ, **ONE_THREAD, **recorder, **variables},
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


TORCH = ("torch", "torch._dynamo", "torch.distributed.fsdp")  # the first step of an optimizer imports the second
MLX = (  # what takes a second of mlx-lm's import; MLX itself is imported by each script
    "transformers.models.auto.tokenization_auto",
    "transformers.tokenization_utils_tokenizers",
)


@functools.cache
def _forking(python: str, modules: tuple[str, ...]) -> subprocess.Popen[str]:
    """Start a process that has imported these modules; it ends with this one."""
    process = subprocess.Popen(
        [python, str(Path(__file__).with_name("forking.py")), *modules],
        env={**os.environ, **ONE_THREAD},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    atexit.register(process.stdout.close)
    atexit.register(process.wait)
    atexit.register(process.stdin.close)  # the last registered is called first
    return process


def run_torch(
    folder: Path,
    command: Sequence[str],
    ranks: Sequence[dict[str, str]] = ({},),
    *,
    recorder: bool = True,
    **options: object,
) -> list[str]:
    """Run a script of PyTorch as `run` does, in forks of a process that has imported torch.

    test_cli.py has a script that imports it itself, under the recorder.
    """
    asked = {launch.OPTIONS: json.dumps({"folder": str(folder), "updates": 2, **options})} if recorder else {}
    each = [{**asked, **variables} for variables in ranks]
    return forked(_forking(interpreter(), TORCH), folder, command, each, recorder=recorder)


def run_mlx(folder: Path, command: Sequence[str], *, recorder: bool = True, **options: object) -> str:
    """Run a script of MLX in a fork of a process that has imported transformers; the script imports MLX, under the recorder."""
    variables = {launch.OPTIONS: json.dumps({"folder": str(folder), "updates": 2, **options})} if recorder else {}
    (printed,) = forked(_forking(sys.executable, MLX), folder, command, [variables], recorder=recorder)
    return printed


def forked(
    process: subprocess.Popen[str],
    folder: Path,
    command: Sequence[str],
    variables: Sequence[dict[str, str]],
    *,
    recorder: bool,
) -> list[str]:
    """Run a script in a fork of a process for each rank, and return what each printed."""
    files = [folder.with_name(f"{folder.name}.{rank}.txt") for rank in range(len(variables))]
    each = [{"printed": str(file), "variables": own} for file, own in zip(files, variables, strict=True)]
    request = {"command": list(command), "recorder": str(launch.RECORDER) if recorder else None, "ranks": each}
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    codes = json.loads(process.stdout.readline())
    printed = [file.read_text(encoding="utf-8") for file in files]
    assert codes == [0] * len(variables), "\n".join(printed)
    return printed


def torch_ranks(folder: Path, variant: str, ranks: int) -> dict[str, Any]:
    """Return the X-ray of torch_ranks.py on gloo."""
    folder.mkdir()
    command = [str(SCRIPTS / "torch_ranks.py"), variant, str(folder.with_suffix(".store"))]
    run_torch(folder, command, [{"RANK": str(rank), "WORLD_SIZE": str(ranks)} for rank in range(ranks)])
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
