"""Locate, check and build the environments of peers.

An environment is a venv of the judge's own Python version, filled by uv or pip (see `installer`) from a requirements file in
which every package is pinned. A venv cannot be moved, so it is built in place, under a lock; `ready.json` is written last.
Without that file it is incomplete, and the next sync starts from scratch.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import textwrap
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import platformdirs
from filelock import FileLock, Timeout

from gates.nearest import hint
from gates.subjects.peers import installer
from gates.subjects.peers.discovery import Peer, PeerError, discover, packages

__all__ = ["Peer", "PeerEnv", "PeerError", "PeerRow", "environment", "listing", "peers", "pinned", "sync"]

HERE = Path(__file__).resolve().parent
CACHE_VARIABLE = "GATES_CACHE_DIR"
MARKER = "ready.json"
REMEMBERED_LINES = 40  # last lines of an installer's output, searched for the reason of a failure
EXPLANATION = 600  # characters of the reason in a message
LOOKED_S = 120.0  # time limit for checking the files of an environment
GRACE_S = 5.0  # between SIGTERM and SIGKILL for an installer
UNREACHABLE = (
    "NewConnectionError",
    "Failed to establish a new connection",
    "Temporary failure in name resolution",
    "Name or service not known",
    "nodename nor servname",
    "Network is unreachable",
    "Connection refused",
    "ConnectTimeoutError",
    "ReadTimeoutError",
    "ProxyError",
    "client error (Connect)",  # from here on messages of uv
    "operation timed out",
)
LIST_VERSIONS = """
import json
from importlib.metadata import distributions
print(json.dumps({d.metadata["Name"]: d.version for d in distributions()}))
"""

MISSING_FILES = """
import json
from importlib.metadata import distributions
gone = [str(f) for d in distributions() for f in d.files or () if f.suffix in {".py", ".so"} and not f.locate().exists()]
print(json.dumps({"versions": {d.metadata["Name"]: d.version for d in distributions()}, "gone": gone[:3]}))
"""

OnLine = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class PeerEnv:
    """One environment on disk; its versions are known once it is ready."""

    path: Path
    python: Path
    ready: bool
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PeerRow:
    """One row of `gates peers list`."""

    name: str
    distribution: str
    version: str
    ready: bool
    path: Path
    size: int  # bytes on disk
    purpose: str


@cache
def peers() -> dict[str, Peer]:
    """Return the peers of this folder by name; see `discovery`."""
    return discover(HERE)


def environment(name: str) -> PeerEnv:
    """Return the peer's environment without creating or running anything."""
    peer = _known(name)
    path = _root() / f"{name}-{_fingerprint(peer)}"
    python = path / "bin" / "python"
    versions = _read_marker(path / MARKER)
    ready = versions is not None and python.exists()  # false for a dangling link to an interpreter
    return PeerEnv(path, python, ready, versions if ready and versions is not None else {})


def sync(name: str, *, on_line: OnLine) -> PeerEnv:
    """Make the peer's environment unless it is ready; safe to interrupt and to run in several processes.

    Args:
        name: of `peers()`.
        on_line: called with each line of progress.

    Returns:
        The environment, ready.

    Raises:
        PeerError: an unknown name, or the environment could not be made; the message has reason and remedy.
    """
    target = environment(name)
    if target.ready:
        why = broken(target)
        if not why:
            return target
        on_line(f"the environment is broken: {why}; making it anew")
    try:
        target.path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target.path.with_suffix(".lock"), name, on_line):
            current = environment(name)  # another process may have made it meanwhile
            if not current.ready or broken(current):
                _build(_known(name), current, on_line)
    except OSError as error:
        raise PeerError(
            f"the environment of {name} cannot be written at {target.path}: {error}; "
            f"make room or set {CACHE_VARIABLE}, then run `gates peers sync {name}`"
        ) from error
    return environment(name)


def broken(environment: PeerEnv) -> str:
    """Return the defect of a ready environment: a broken interpreter, or missing packages or files; "" if none.

    Files are not read, so ten thousand of them take a second.
    """
    try:
        done = subprocess.run(
            [str(environment.python), "-I", "-c", MISSING_FILES],
            capture_output=True,
            text=True,
            timeout=LOOKED_S,
            check=False,
        )
        seen = json.loads(done.stdout) if done.returncode == 0 else None
    except (OSError, ValueError, subprocess.TimeoutExpired):
        seen = None
    if seen is None:
        return "its interpreter does not start"
    if seen["gone"]:
        return f"{seen['gone'][0]} is gone"
    changed = sorted(name for name, version in environment.versions.items() if seen["versions"].get(name) != version)
    return f"{changed[0]} is not {environment.versions[changed[0]]}" if changed else ""


def listing() -> list[PeerRow]:
    """Return a row for every peer, in the order of their names."""
    rows = []
    for peer in peers().values():
        target = environment(peer.name)
        size = _size(target.path)
        rows.append(PeerRow(peer.name, peer.distribution, pinned(peer), target.ready, target.path, size, peer.purpose))
    return rows


def _known(name: str) -> Peer:
    known = peers()
    if name not in known:
        raise PeerError(
            f"{name!r} is no peer{hint(name, known)}; must be one of {', '.join(known)}; `gates peers list` shows them"
        )
    return known[name]


def _root() -> Path:
    chosen = os.environ.get(CACHE_VARIABLE)
    return (Path(chosen).expanduser().resolve() if chosen else platformdirs.user_cache_path("rl-gates")) / "peers"


def _fingerprint(peer: Peer) -> str:
    """Hash the interpreter and the requirements without their header."""
    interpreter = f"{sys.implementation.cache_tag} {platform.python_version()} {sys.platform} {platform.machine()}"
    listed = " listed" if peer.listed else ""
    return hashlib.sha256(f"{interpreter}{listed}\n{packages(peer.requirements)}".encode()).hexdigest()[:12]


def _read_marker(marker: Path) -> dict[str, str] | None:
    try:
        versions = json.loads(marker.read_text(encoding="utf-8"))["versions"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return {str(key): str(value) for key, value in versions.items()} if isinstance(versions, dict) else None


def pinned(peer: Peer) -> str:
    """Return the version of the peer that its requirements pin."""
    for line in packages(peer.requirements).splitlines():
        package, _, rest = line.partition("==")
        if package.strip().lower() == peer.distribution.lower():
            return rest.partition(";")[0].strip()
    return ""


def _size(path: Path) -> int:
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # a running installer removes its temporary files
                total += os.lstat(f"{folder}/{name}").st_size  # a Path of each of 100,000 files takes seconds
    return total


@contextlib.contextmanager
def _locked(path: Path, name: str, on_line: OnLine) -> Iterator[None]:
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        on_line(f"another process is making the environment of {name}; waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _build(peer: Peer, target: PeerEnv, on_line: OnLine) -> None:
    start = time.monotonic()
    if target.path.exists():
        on_line(f"removing what is left at {target.path}")
        shutil.rmtree(target.path)
    on_line(f"making a Python {platform.python_version()} environment at {target.path}")
    _run(peer, installer.make_command(target.path), lambda _: None)
    _install(peer, target, on_line)
    lines: list[str] = []
    _run(peer, [str(target.python), "-I", "-c", LIST_VERSIONS], lines.append)
    seconds = round(time.monotonic() - start, 1)
    facts = {"peer": peer.name, "versions": json.loads(lines[-1]), "seconds": seconds}
    draft = target.path / f"{MARKER}.part"
    draft.write_text(json.dumps(facts, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    draft.replace(target.path / MARKER)
    on_line(f"ready after {seconds:g} s")


def _install(peer: Peer, target: PeerEnv, on_line: OnLine) -> None:
    """Fill the environment; if the index is unreachable, from uv's cache of earlier syncs."""
    command = installer.install_command(target.python, peer.requirements, listed=peer.listed)
    variables = installer.environment_variables()
    try:
        _run(peer, command, on_line, variables)
    except PeerError as error:
        if installer.uv() is None or "cannot be reached" not in str(error):
            raise
        on_line("the package index cannot be reached; trying with what is cached")
        try:
            _run(peer, [*command, "--offline"], on_line, variables)
        except PeerError:
            raise error from None


def _run(peer: Peer, command: list[str], on_line: OnLine, environment: Mapping[str, str] | None = None) -> None:
    """Run one step and forward its output; the process never outlives this call."""
    last: deque[str] = deque(maxlen=REMEMBERED_LINES)
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
        cwd=_root(),  # not in a project, whose settings uv would read
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                last.append(line.rstrip())
                on_line(line.rstrip())
            code = process.wait()
        except BaseException:
            _stop(process)
            raise
    if code:
        raise PeerError(_reason(peer, command, code, list(last)))


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()


def _reason(peer: Peer, command: list[str], code: int, lines: list[str]) -> str:
    remedy = f"run `gates peers sync {peer.name}`"
    if any(sign in line for line in lines for sign in UNREACHABLE):
        return f"{peer.name} could not be installed: the package index cannot be reached; connect to it, then {remedy}"
    why = _error(lines) or "it printed nothing"
    step = command[command.index("-m") + 1] if "-m" in command else Path(command[0]).name
    return f"{peer.name} could not be installed: {step} ended with status {code}: {why}; then {remedy}"


def _error(lines: list[str]) -> str:
    """Return the reason among an installer's lines: uv's explanation, else the last error, else the last line."""
    for start, line in enumerate(lines):
        if line.lstrip().startswith(("error:", "×")):  # uv explains in several lines, some of them a tree
            message = " ".join(lines[start:]).translate(dict.fromkeys(map(ord, "×│╰─▶├")))
            return textwrap.shorten(message, EXPLANATION)
    errors = [line for line in lines if line.lower().startswith("error")] or [line for line in lines if line]
    return errors[-1] if errors else ""
