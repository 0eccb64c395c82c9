"""Run the programs that reproduce findings, each in its peer's own environment, without Gates.

The programs of one peer run as forks of a process with their imports, since a library may take ten seconds to import. A
program that fails so is run again by itself, and that result counts.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from gates.subjects.peers import declared, environments
from gates.subjects.peers.declared import Finding
from gates.subjects.peers.discovery import PeerError

LIMIT_S = 120.0
SHOWN = 400  # characters of a program's output
VARIABLES = {  # as in a worker: one thread, no network, no compilation
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TORCHDYNAMO_DISABLE": "1",
}
FORKS = """
import json, os, sys, tempfile, time
asked = json.load(sys.stdin)
for line in asked["imports"]:
    loaded, package = set(sys.modules), line.split()[1].partition(".")[0]
    try:
        exec(line, {})
    except BaseException:  # half of the package would stay: a program that prepares its import needs none of it
        for name in set(sys.modules) - loaded:
            if name.partition(".")[0] == package:
                del sys.modules[name]


def start(program):
    out = tempfile.TemporaryFile()
    child = os.fork()
    if child:
        return child, out, time.monotonic()
    os.dup2(out.fileno(), 1)
    os.dup2(out.fileno(), 2)
    failed = 1
    try:
        exec(compile(program, "<stdin>", "exec"), {"__name__": "__main__"})
        failed = 0
    finally:
        sys.stdout.flush()
        os._exit(failed)


left, running, found = list(enumerate(asked["programs"])), {}, {}
while left or running:
    while left and len(running) < asked["jobs"]:
        place, program = left.pop(0)
        running[place] = start(program)
    for place, (child, out, began) in list(running.items()):
        ended, status = os.waitpid(child, os.WNOHANG)
        if not ended and time.monotonic() - began > asked["limit_s"]:
            os.kill(child, 9)
        if ended:
            out.seek(0)
            found[place] = [status == 0, out.read().decode(errors="replace")]
            del running[place]
    time.sleep(0.02)
print(json.dumps([found[place] for place in sorted(found)]))
"""


@dataclass(frozen=True, slots=True)
class Reproduced:
    """The output of a finding's program, and whether the finding holds."""

    peer: str
    finding: Finding
    holds: bool
    output: str


def known() -> dict[str, tuple[str, Finding]]:
    """Return every finding with its peer, by id."""
    return {
        finding.id: (name, finding)
        for name, peer in environments.peers().items()
        for finding in declared.conformance(peer).finding
    }


def run(peer: str, finding: Finding) -> Reproduced:
    """Run a finding's program in its peer's environment.

    Raises:
        PeerError: there is no environment.
    """
    environment = environments.environment(peer)
    if not environment.ready:
        raise PeerError(f"{peer} has no environment yet; `gates peers sync {peer}` makes it")
    try:
        done = subprocess.run(
            [str(environment.python), "-I", "-"],
            input=finding.repro,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_S,
            check=False,
            env=_variables(os.environ),
            cwd=environment.path,
        )
    except subprocess.TimeoutExpired:
        return Reproduced(peer, finding, holds=False, output=f"did not end in {LIMIT_S:g} s")
    printed = done.stdout.strip() if done.returncode == 0 else (done.stderr.strip() or done.stdout.strip())
    return Reproduced(peer, finding, done.returncode == 0, printed[-SHOWN:])


def run_all(peer: str, findings: tuple[Finding, ...], jobs: int) -> list[Reproduced]:
    """Run the programs of one peer's findings in parallel; the results are in the order of the findings."""
    held = _forked(peer, findings, jobs)
    alone = [finding for finding in findings if finding.id not in held]
    with ThreadPoolExecutor(max(1, jobs)) as pool:
        outcomes = held | {outcome.finding.id: outcome for outcome in pool.map(partial(run, peer), alone)}
    return [outcomes[finding.id] for finding in findings]


def _forked(peer: str, findings: tuple[Finding, ...], jobs: int) -> dict[str, Reproduced]:
    """Return the findings, by id, that hold in forks of one process; none where forks are unsafe.

    MLX hangs in a fork of a process that has imported it.
    """
    environment, programs = environments.environment(peer), [finding.repro for finding in findings]
    imports = _imports(programs)
    if sys.platform != "linux" or len(findings) < 2 or not environment.ready or any("mlx" in line for line in imports):
        return {}
    request = {"imports": imports, "programs": programs, "jobs": max(1, jobs), "limit_s": LIMIT_S}
    try:
        done = subprocess.run(
            [str(environment.python), "-I", "-c", FORKS],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_S * (1 + len(findings)),
            check=True,
            env=_variables(os.environ),
            cwd=environment.path,
        )
        results = json.loads(done.stdout.splitlines()[-1])
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        return {}
    return {
        finding.id: Reproduced(peer, finding, holds=True, output=printed.strip()[-SHOWN:])
        for finding, (holds, printed) in zip(findings, results, strict=True)
        if holds
    }


def _imports(programs: list[str]) -> list[str]:
    """Return the distinct import statements of programs."""
    nodes = (node for program in programs for node in ast.parse(program).body)
    return list(dict.fromkeys(ast.unparse(node) for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)))


def _variables(mine: Mapping[str, str]) -> dict[str, str]:
    kept = {name: mine[name] for name in ("HOME", "LANG", "PATH", "TMPDIR") if name in mine}
    return kept | VARIABLES
