"""The command line as a subprocess, and a subject whose group advantages are right."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

RIGHT = """
import numpy as np

def group_advantages(rewards, group_size, *, scale, ddof, eps, eps_mode, baseline):
    groups = rewards.reshape(-1, group_size).astype(np.float64)
    centred = groups - groups.mean(axis=1, keepdims=True)
    divisor = groups.std(axis=1, ddof=ddof, keepdims=True) + eps
    varies = groups.max(axis=1, keepdims=True) > groups.min(axis=1, keepdims=True)
    advantages = np.divide(centred, divisor, out=np.zeros_like(centred), where=varies)
    return {"advantages": advantages.reshape(-1).astype(rewards.dtype)}

OPS = {"group_advantages": group_advantages}
CONVENTIONS = {"group_advantages": {"scale": ("group",), "eps_mode": ("add",), "baseline": ("mean",)}}
"""


def gates(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gates", *arguments], capture_output=True, text=True, cwd=cwd, timeout=120, check=False
    )


def await_verdict(folder: Path) -> None:
    """Wait until the run that writes to a folder has its first verdict.

    Raises:
        TimeoutError: it has none within a minute.
    """
    for _ in range(600):
        if any('"record":"verdict"' in file.read_text() for file in folder.glob("*.jsonl")):
            return
        time.sleep(0.1)
    raise TimeoutError(f"{folder} has no verdict")
