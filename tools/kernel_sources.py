"""Check whether results/kernels/proofs.jsonl has proofs for the current sources; needs only Python and git.

    python3 tools/kernel_sources.py neon fuzz-short     # ends with 0 if both are recorded for these sources

`.ci/run` calls it before anything is installed.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "results" / "kernels" / "proofs.jsonl"
SOURCES = ("rust/Cargo.toml", "rust/Cargo.lock", "rust/rlkernels", "tools/neon", "tools/fuzz")
RECORDED_AS = {
    "exp-and-log": "exp and log",
    "neon": "NEON",
    "fuzz-short": "fuzz in short",
    "asan": "AddressSanitizer",
    "miri": "Miri",
}  # other proofs are recorded under their own name


def sources() -> str:
    """Return a digest of the files that the proofs depend on, or "" if one has uncommitted changes."""
    listed = subprocess.run(["git", "ls-files", "--stage", "--", *SOURCES], cwd=ROOT, check=True, stdout=-1).stdout
    changed = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", *SOURCES], cwd=ROOT, check=False).returncode
    return "" if changed else hashlib.sha256(listed).hexdigest()


def held(names: Sequence[str]) -> bool:
    """Print and return whether the record has these proofs for the current sources."""
    lines = [json.loads(line) for line in RECORD.read_text(encoding="utf-8").splitlines()]
    now, recorded = sources(), {line["proof"]: line for line in lines}
    for name in names:
        line = recorded.get(RECORDED_AS.get(name, name), {})
        if not now or line.get("sources") != now:
            print(f"{name}: not recorded for these sources of the kernels")
            return False
        print(f"{name}: recorded for these sources of the kernels on {line['date']}: {line['found']}")
    return True


if __name__ == "__main__":
    sys.exit(0 if held(sys.argv[1:]) else 1)
