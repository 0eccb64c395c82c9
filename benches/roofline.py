"""Build and run roofline.rs, which measures the peak rates of this machine."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "benches" / "roofline.rs"
PROGRAM = ROOT / ".gates" / "roofline"
FLAGS = ("--edition", "2024", "-C", "opt-level=3", "-C", "target-cpu=native")


def roofline(when):
    """Return the rates of this machine as a record, or None without a Rust compiler.

    Args:
        when: "before" or "after" the rows.
    """
    from gates.results.speed_records import RooflineRecord

    if not _built():
        return None
    done = subprocess.run([str(PROGRAM)], capture_output=True, text=True, check=True)
    return RooflineRecord(when=when, **json.loads(done.stdout))


def _built():
    if PROGRAM.is_file() and PROGRAM.stat().st_mtime > SOURCE.stat().st_mtime:
        return True
    rustc = shutil.which("rustc")
    if rustc is None:
        return False
    PROGRAM.parent.mkdir(exist_ok=True)
    subprocess.run([rustc, *FLAGS, str(SOURCE), "-o", str(PROGRAM)], check=True)
    return True
