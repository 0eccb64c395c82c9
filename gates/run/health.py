"""Examine what judging needs: interpreter, libraries, the user's project, peers, caches."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import platformdirs
import psutil

from gates.config import finding
from gates.config.own_subjects import OWN
from gates.config.settings import read
from gates.model import ConfigurationError
from gates.results import machine
from gates.run.session import tool_version
from gates.subjects.peers import environments

FRAMEWORKS = ("numpy", "torch", "mlx", "jax")
LIBRARIES = {  # distributions that Gates itself can do without, what needs each, and the command that brings it
    "mlx": (
        "the subject `reference` and the trainer",
        "pip install '.[trainer]' ./rust/rlkernels-python   # in a checkout of Gates, with Rust",
    ),
    "mlx-lm": (
        "the subject `reference` and the trainer",
        "pip install '.[trainer]' ./rust/rlkernels-python   # in a checkout of Gates, with Rust",
    ),
    "matplotlib": ("pictures of learning curves", "pip install '.[plot]'   # in a checkout of Gates"),
    "datasets": ("prompts of the trainer from `datasets`", "pip install '.[data]'   # in a checkout of Gates"),
    "ray": ("`--engine ray`", "pip install '.[ray]'   # in a checkout of Gates"),
}
LEAST_FREE = (
    1 << 30
)  # bytes: a recorded run with its counterexamples has some 10 MB, an environment of a peer gigabytes
SECONDS = 60.0  # of an interpreter that is asked for its versions
UNANSWERED = (OSError, ValueError, subprocess.SubprocessError)
KERNELS = "import json, rlkernels; print(json.dumps(rlkernels.build_info()))"
VERSIONS = """
import importlib.metadata as held, json, platform, sys
versions = {}
for name in sys.argv[1:]:
    try:
        versions[name] = held.version(name)
    except held.PackageNotFoundError:
        pass
print(json.dumps({"python": platform.python_version(), "versions": versions}))
"""

State = Literal["ok", "absent", "broken"]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the machine or the project.

    Attributes:
        name: in the words of the field.
        state: ok; absent, where only some commands need it; broken, where `gates check` cannot run.
        says: its version, its place, or why it is not ok.
        remedy: the command that mends it; "" where it is ok.
    """

    name: str
    state: State
    says: str
    remedy: str = ""


def examined(here: Path, root: Path, python: str | None) -> list[Part]:
    """Return the parts of this machine and of the project at `root`, in the order in which a run needs them.

    Args:
        here: the folder of the command.
        root: the root of its project.
        python: the interpreter that has the user's library; None for that of the project.
    """
    return [
        _gates(),
        _machine(),
        _kernels(),
        *_libraries(),
        *_project(here, root, python),
        *_peers(),
        *_folders(here),
    ]


def _gates() -> Part:
    return Part("gates", "ok", f"{tool_version()}, Python {platform.python_version()} at {sys.executable}")


def _machine() -> Part:
    memory = psutil.virtual_memory().total / (1 << 30)
    return Part("machine", "ok", f"{machine.cores()} cores, {memory:.0f} GiB, {platform.system()} {platform.machine()}")


def _kernels() -> Part:
    """Return whether the Rust kernels are there and built for release; a process of its own loads them."""
    remedy = "pip install ./rust/rlkernels-python   # in a checkout of Gates, with Rust"
    if importlib.util.find_spec("rlkernels") is None:
        return Part("rlkernels", "absent", "only the subject `rlkernels` and the trainer need it", remedy)
    try:
        build = _asked(sys.executable, KERNELS)
    except UNANSWERED as error:
        return Part("rlkernels", "broken", f"it cannot be loaded: {error}", remedy)
    if build["profile"] != "release":
        return Part("rlkernels", "broken", f"a build for {build['profile']}, whose speeds mean nothing", remedy)
    return Part("rlkernels", "ok", f"{build['version']}, {build['profile']} build")


def _asked(program: str, question: str, *names: str) -> Any:
    """Return what an interpreter prints as JSON; raises one of UNANSWERED."""
    command = [program, "-c", question, *names]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    return json.loads(answer.stdout)


def _libraries() -> Iterator[Part]:
    for name, (needed_by, remedy) in LIBRARIES.items():
        version = _version(name)
        if version is None:
            yield Part(
                name, "absent", f"only {needed_by} need it" if " and " in needed_by else f"only for {needed_by}", remedy
            )
        else:
            yield Part(name, "ok", version)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _project(here: Path, root: Path, python: str | None) -> Iterator[Part]:
    try:
        settings = read(root)
    except ConfigurationError as error:
        yield Part("settings", "broken", str(error), "correct that line")
        return
    yield Part(
        "settings", "ok", f"[tool.gates] of {root / 'pyproject.toml'}" if settings.model_fields_set else "the defaults"
    )
    try:
        files = settings.subjects or finding.subjects_here(here, root) or OWN
        yield Part("subjects", "ok", ", ".join(_near(name, here) for name in files))
    except ConfigurationError as error:
        yield Part("subjects", "absent", str(error).split(". ")[0], "gates init NAME writes a file to fill in")
    yield _interpreter(python or settings.python)


def _near(name: str, here: Path) -> str:
    return os.path.relpath(name, here) if Path(name).is_absolute() else name


def _interpreter(python: str | None) -> Part:
    """Return the versions of NumPy and the frameworks in the interpreter that runs the user's file."""
    name = "your Python"
    program = sys.executable if python is None else shutil.which(python)
    remedy = 'name another with --python, or with python = "…" in [tool.gates]'
    if program is None:
        return Part(name, "broken", f"{python}: there is no such program", remedy)
    try:
        held = _asked(program, VERSIONS, *FRAMEWORKS)
    except UNANSWERED as error:
        return Part(name, "broken", f"{program} does not answer: {error}", remedy)
    version, versions = held["python"], held["versions"]
    if tuple(map(int, version.split(".")[:2])) < (3, 10):
        return Part(name, "broken", f"{program} is Python {version}; must be 3.10 or newer", remedy)
    listed = ", ".join(f"{key} {value}" for key, value in versions.items())
    if "numpy" not in versions:
        return Part(name, "broken", f"{program} (Python {version}) has no NumPy", f"{program} -m pip install numpy")
    return Part(name, "ok", f"{version} at {program}: {listed}")


def _peers() -> Iterator[Part]:
    try:
        known = {name: environments.environment(name).ready for name in environments.peers()}
    except environments.PeerError as error:
        yield Part("peers", "broken", str(error), "gates peers list")
        return
    ready = [name for name, made in known.items() if made]
    missing = [name for name, made in known.items() if not made]
    if ready:
        yield Part("peers", "ok", ", ".join(ready))
    if missing:
        yield Part(
            "peers", "absent", f"{', '.join(missing)}: only for judging these", f"gates peers sync {' '.join(missing)}"
        )


def _folders(here: Path) -> Iterator[Part]:
    """Return whether results can be written, and where caches lie."""
    try:
        with tempfile.TemporaryFile(dir=here):
            pass
    except OSError as error:
        yield Part("results", "broken", f"{here} cannot be written to: {error.strerror}", "gates check --out DIR")
    else:
        free = shutil.disk_usage(here).free
        says = f"{here / 'results' / 'runs'}, {free / (1 << 30):.1f} GiB free"
        yield Part(
            "results", "ok" if free > LEAST_FREE else "broken", says, "" if free > LEAST_FREE else "free some disk"
        )
    cache = platformdirs.user_cache_path("rl-gates")
    yield Part("cache", "ok", f"{cache}{'' if cache.exists() else ', not made yet'}")
    models = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    yield Part("models", "ok", f"{models}{'' if models.exists() else ', not made yet'}; nothing is downloaded in a run")
