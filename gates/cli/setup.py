"""Shared set-up of the commands: registry, workers, limits, model and results file."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import typer
from safetensors import SafetensorError, safe_open

from gates.model import ConfigurationError, Subject
from gates.registry import Registry, load
from gates.results import machine
from gates.results.jsonl import Writer, compress, file_name


def registry() -> Registry:
    """Return all gates, mutants and subjects."""
    return load()


def jobs(wanted: int) -> int:
    """Return how many workers run side by side."""
    return wanted or machine.cores()


def threads(jobs_count: int) -> int:
    """Return the threads of each worker: one per core for all workers together."""
    return max(1, machine.cores() // jobs_count)


def batch_scheduling() -> None:
    """Set SCHED_BATCH on Linux, so that handing MLX ops to another thread does not preempt this one (losses took 25% longer).

    Workers inherit it. A policy that the user chose is kept.
    """
    if not hasattr(os, "SCHED_BATCH"):
        return
    with contextlib.suppress(OSError):  # a sandbox may forbid either call; the run is then only slower
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def interpreter(python: str | None) -> str | None:
    """Return the path of an interpreter, found as a shell does."""
    if python is None:
        return None
    path = shutil.which(python)
    if path is None and Path(python).exists():
        raise ConfigurationError(f"--python {python}: is not executable; name an interpreter such as .venv/bin/python")
    if path is None:
        raise ConfigurationError(f"--python {python}: there is no such program")
    return str(Path(path).absolute())


def memory(limit_gib: float | None) -> int:
    """Return the bytes that each worker may use: the limit, else three quarters of the machine's memory."""
    import psutil

    if limit_gib is None:
        return int(psutil.virtual_memory().total * 0.75)
    return int(limit_gib * (1 << 30))


def watched(subjects: Iterable[Subject], engine: str, limit_gib: float | None = None) -> list[Subject]:
    """Return subjects with the memory limit of their workers; a cluster's workers have none unless the user sets one."""
    limit = None if limit_gib is None and engine != "local" else memory(limit_gib)
    return [replace(subject, memory_limit=limit) for subject in subjects]


def model(name: str | None, option: str = "--model") -> str | None:
    """Return a model's folder as an absolute path, or a Hugging Face id unchanged; messages begin with `option`."""
    if name is None:
        return None
    folder = Path(name).expanduser()
    if folder.is_dir():
        for pattern, missing in (("config.json", "config.json"), ("*.safetensors", "weights in *.safetensors")):
            if not any(folder.glob(pattern)):
                raise ConfigurationError(
                    f"{option} {name}: the folder has no {missing}, so it is no Hugging Face model"
                )
        _check_files(folder, f"{option} {name}")
        return str(folder.resolve())
    if name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise ConfigurationError(f"{option} {name}: is neither a folder nor an id like mlx-community/Qwen3-0.6B-4bit")
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    if not (home / "hub" / f"models--{name.replace('/', '--')}").is_dir():
        raise ConfigurationError(
            f"{option} {name}: is not in the Hugging Face cache ({home}); nothing is downloaded during a run, "
            f"so fetch it first (hf download {name}) or name a folder"
        )
    return name


def _check_files(folder: Path, option: str) -> None:
    """Refuse a model whose files are torn, which would look like a mistake of the code that loads it."""
    for path in sorted(folder.glob("*.json")):
        try:
            held = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"{option}: {path.name} is torn or no JSON: {error}; fetch the model again"
            ) from None
        if path.name == "config.json" and not isinstance(held, dict):
            raise ConfigurationError(f"{option}: config.json holds no object; fetch the model again")
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="np"):
                pass
        except (OSError, SafetensorError, ValueError) as error:
            raise ConfigurationError(
                f"{option}: {path.name} is torn or no safetensors file: {error}; fetch the model again"
            ) from None


def writer(verb: str, out: Path | None, *, record: bool) -> Writer:
    """Open a new results file in `--out`, in results/gates with `--record`, else in results/runs."""
    if out is not None and record:
        raise ConfigurationError("--out and --record both name a folder; give one of them")
    if str(out) == "-":
        raise ConfigurationError("--out - is no folder for results; leave it out, and --format jsonl prints them too")
    folder = out if out is not None else Path("results", "gates" if record else "runs")
    return Writer(folder / file_name(verb))


def recorded(path: Path) -> None:
    """Compress a file that was recorded to be committed, and report where it is."""
    typer.echo(f"recorded: {compress(path)}", err=True)
