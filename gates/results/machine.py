"""Facts of this machine and this checkout, for the header of a results file."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

NOTED_FEATURES = (
    "sse4_2",
    "avx",
    "f16c",
    "fma",
    "avx2",
    "avx512f",
    "avx512dq",
    "avx512bw",
    "avx512vl",
    "avx512_bf16",
    "neon",
    "asimd",
)


def cpu() -> tuple[str, list[str]]:
    """Return the processor's name and the features that kernels use."""
    fields: dict[str, str] = {}
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            fields.setdefault(key.strip(), value.strip())
    except OSError:  # not Linux; sysctl has the name on macOS
        return _output("sysctl", "-n", "machdep.cpu.brand_string") or platform.processor() or platform.machine(), []
    flags = set((fields.get("flags") or fields.get("Features") or "").split())
    return fields.get("model name") or platform.machine(), [name for name in NOTED_FEATURES if name in flags]


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def blas() -> str:
    """Return the BLAS of the judge's process, which need not be a subject's."""
    config: Any = np.show_config(mode="dicts")
    build = config.get("Build Dependencies", {}).get("blas", {})
    return f"{build.get('name', 'unknown')} {build.get('version', '')}".strip()


@cache
def commit() -> tuple[str | None, bool | None]:
    """Return the commit of this checkout, and whether tracked files differ from it; None if git does not know."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None, None
    head = _output("git", "-C", str(root), "rev-parse", "--verify", "HEAD")
    if not head:
        return None, None
    changed = _output(
        "git",
        "--no-optional-locks",
        "-C",
        str(root),
        "status",
        "--porcelain",
        "--untracked-files=no",
        "--",
        ".",
        ":(exclude)results",
    )
    return head, None if changed is None else bool(changed)


def _output(*command: str) -> str | None:
    """Return the stripped output of a command, or None if it fails or takes more than ten seconds."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
