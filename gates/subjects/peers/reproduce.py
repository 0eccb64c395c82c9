"""Run the programs that reproduce findings, each in its peer's own environment, without Gates."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from gates.subjects.peers import declared, environments
from gates.subjects.peers.declared import Finding
from gates.subjects.peers.discovery import PeerError

LIMIT_S = 120.0
SHOWN = 400  # characters of what a program prints
VARIABLES = {  # as in a worker: one thread, no network, nothing compiled
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TORCHDYNAMO_DISABLE": "1",
}


@dataclass(frozen=True, slots=True)
class Reproduced:
    """What a finding's program printed, and whether the finding holds."""

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
    """Run the programs of one peer's findings side by side, in the order of the findings."""
    with ThreadPoolExecutor(max(1, jobs)) as pool:
        return list(pool.map(partial(run, peer), findings))


def _variables(mine: Mapping[str, str]) -> dict[str, str]:
    kept = {name: mine[name] for name in ("HOME", "LANG", "PATH", "TMPDIR") if name in mine}
    return kept | VARIABLES
